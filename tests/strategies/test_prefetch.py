"""Parameter prefetch: cases by hand, the recurrence against the events, memory, and where it breaks even."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.prefetch import (
    break_even_bandwidth,
    gathered_layers,
    prefetch_bytes,
    prefetch_timeline,
    prefetched,
    whole_gradients,
)
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER


def rows(t, kind):
    """(item, start, stop) of one kind of block, by start."""
    chosen = t.kind == kind
    columns = (t.item[chosen].tolist(), t.start[chosen].tolist(), t.stop[chosen].tolist())
    return sorted(zip(*columns, strict=True), key=lambda row: row[1:])


# ---- by hand: two layers, forward 2 s, backward 4 s, gather 1 s, scatter 1 s


def test_without_prefetch_every_gather_shows_and_the_scatters_hide():
    """Gather 0, forward 0, gather 1, forward 1, ...; a scatter runs beside the next backward."""
    t = prefetch_timeline(2, 2, 4, 1, 1, depth=0)
    assert rows(t, FORWARD) == [(0, 1, 3), (1, 4, 6)]
    assert rows(t, BACKWARD) == [(2, 7, 11), (3, 12, 16)]
    # After backward 2 its layer is free: first the next layer's gather, then the scatter.
    assert rows(t, TRANSFER) == [(0, 0, 1), (1, 3, 4), (2, 6, 7), (3, 11, 12), (4, 12, 13), (5, 16, 17)]
    assert t.exposed[0] == 5 and t.hidden[0] == 1


def test_one_layer_ahead_only_the_ends_show():
    t = prefetch_timeline(2, 2, 4, 1, 1, depth=1)
    assert rows(t, FORWARD) == [(0, 1, 3), (1, 3, 5)]
    assert rows(t, BACKWARD) == [(2, 5, 9), (3, 9, 13)]
    # Gather 2 waits until forward 0 has freed its layer.
    assert rows(t, TRANSFER) == [(0, 0, 1), (1, 1, 2), (2, 3, 4), (3, 5, 6), (4, 9, 10), (5, 13, 14)]
    assert t.exposed[0] == 2 and t.coverage == 4 / 6


def test_a_kept_last_layer_is_gathered_once():
    t = prefetch_timeline(2, 2, 4, 1, 1, depth=0, keep_last=True)
    assert [item for item, *_ in rows(t, TRANSFER)] == [0, 1, 3, 4, 5]
    assert rows(t, BACKWARD) == [(2, 6, 10), (3, 11, 15)] and t.span == 16


def test_a_slow_network_never_rests_and_computing_waits():
    """Gathers of 5 s: backward 2 waits until 15; its scatter comes after gather 3, from 20 to 25."""
    t = prefetch_timeline(2, 2, 4, 5, 5, depth=1)
    assert rows(t, TRANSFER)[:4] == [(0, 0, 5), (1, 5, 10), (2, 10, 15), (3, 15, 20)]
    assert rows(t, BACKWARD) == [(2, 15, 19), (3, 20, 24)]
    assert t.communication[0] == t.span == 30


def test_deeper_prefetch_can_delay_a_scatter_and_so_the_backward_that_needs_its_memory():
    """No slack at all: at depth 2 the scatters stand behind gathers nobody needs yet."""
    assert [prefetched(4, 1, 1, 1, 0, depth=d).exposed for d in (1, 2)] == [1, 2]


def test_the_sum_of_the_claims_list():
    """4.1-g: forward 33 ms, gather 12.4 ms: all hidden but the ends, the network idle 62 % of the time."""
    forward, gather = 2 * 12 * 5120**2 * 8192 / 156e12, 12 * 5120**2 * 2 * 63 / 64 / 50e9
    one = prefetched(1000, forward, 2 * forward, gather, gather)
    assert one.coverage > 0.999 and one.compute_idle < 0.001
    assert one.network_idle == pytest.approx(1 - gather / forward, abs=1e-3)
    assert 0.62 < one.network_idle < 0.63


# ---- the recurrence equals the events, and what every timeline obeys

SECONDS = st.floats(0, 5).map(lambda x: round(x, 3))
CASES = st.tuples(
    st.integers(1, 9),
    st.floats(0.05, 5),
    st.floats(0.05, 5),
    SECONDS,
    SECONDS,
    st.integers(0, 11),
    st.booleans(),
)


@given(CASES, st.sampled_from([1.0, 1.2, 3.0]))
@settings(max_examples=300)
def test_the_recurrence_is_the_event_by_event_timeline(case, slow_down):
    t, one = (each(*case, slow_down=slow_down) for each in (prefetch_timeline, prefetched))
    assert one.span == pytest.approx(t.span, rel=1e-9)
    assert one.compute == pytest.approx(t.busy[0], rel=1e-9)
    assert one.communication == pytest.approx(t.communication[0], rel=1e-9, abs=1e-9)
    assert one.exposed == pytest.approx(t.exposed[0], rel=1e-9, abs=1e-9)
    if one.communication > 1e-6:
        assert one.coverage == pytest.approx(t.coverage, rel=1e-6, abs=1e-6)
    assert one.compute_idle == pytest.approx(t.idle[0] / t.span, abs=1e-9)


def alive(begin, end):
    """Most of the stretches that hold at one moment; one that ends where another begins is over."""
    events = sorted([(stop, -1) for stop in end] + [(start, 1) for start in begin])
    return int(np.cumsum([change for _, change in events]).max())


@given(CASES.filter(lambda case: case[3] > 0 and case[4] > 0))
@settings(max_examples=200)
def test_memory_holds_what_it_promises_and_streams_do_one_thing_at_a_time(case):
    layers, *_, depth, keep_last = case
    t = prefetch_timeline(*case)
    sent, computed = rows(t, TRANSFER), sorted(rows(t, FORWARD) + rows(t, BACKWARD))
    for stream in (sent, sorted(computed, key=lambda row: row[1])):
        assert all(before[2] <= after[1] + 1e-9 for before, after in pairwise(stream))
    gathers = {item: (start, stop) for item, start, stop in sent if item < 2 * layers}
    assert len(gathers) == 2 * layers - keep_last and len(sent) == 3 * layers - keep_last
    freed = {item: stop for item, _, stop in computed}
    if keep_last:
        freed[layers - 1] = freed[layers]
    for item, start, _ in computed:
        assert gathers.get(item, gathers[min(item, layers - 1)])[1] <= start + 1e-9
    begins = [gathers[item][0] for item in gathers]
    assert alive(begins, [freed[item] for item in gathers]) <= depth + 1
    scatters = {item - layers: stop for item, _, stop in sent if item >= 2 * layers}
    backs = {item: start for item, start, _ in computed if item >= layers}
    assert alive(backs.values(), [scatters[item] for item in backs]) <= 2


@given(CASES)
@settings(max_examples=200)
def test_bounds(case):
    layers, forward, backward, gather, scatter, depth, keep_last = case
    one = prefetched(*case)
    assert one.span >= max(one.compute, one.communication) - 1e-9
    assert one.span <= one.compute + one.communication + 1e-9
    assert one.exposed >= gather + scatter - 1e-9  # the first gather and the last scatter
    if depth == 0:
        assert one.exposed >= (2 * layers - keep_last) * gather + scatter - 1e-9
    if depth == 1 and gather <= forward and gather + scatter <= backward:
        assert one.exposed == pytest.approx(gather + scatter, rel=1e-9, abs=1e-9)


def test_slowed_computing_of_many_plans_by_hand():
    """Two layers, forward 2 s, backward 4 s, one ahead, twice as slow beside a collective of 1 s or 0.5 s.

    Beside gathers 1 to 3 and the first scatter; each of them adds half of its seconds to what is computed.
    """
    many = prefetched(2, 2, 4, np.array([1, 0.5]), np.array([1, 0.5]), slow_down=2)
    assert many.compute.tolist() == [14, 13] and many.exposed.tolist() == [2, 1]


def test_many_plans_at_once_are_each_alone():
    gather, forward = np.array([0.5, 1.0, 3.0]), np.array([[1.0], [2.0]])
    many = prefetched(5, forward, 2 * forward, gather, gather, depth=2)
    assert many.span.shape == many.coverage.shape == many.compute.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            alone = prefetched(5, forward[i, 0], 2 * forward[i, 0], gather[j], gather[j], depth=2)
            assert many.span[i, j] == alone.span and many.network_idle[i, j] == alone.network_idle


def test_nothing_to_send():
    one = prefetched(4, 1, 2, 0, 0)
    assert one.exposed == 0 and np.isnan(one.coverage) and one.network_idle == 1


# ---- memory and the break-even


def test_bytes_by_hand():
    """4.1-f: a layer of 0.63 GB; two gathered, and the gradients of one computed and one scattered."""
    layer = 12 * 5120**2 * 2
    assert prefetch_bytes(40, layer, layer, depth=1) == 4 * layer
    assert prefetch_bytes(40, layer, 2 * layer, depth=0) == 5 * layer
    assert prefetch_bytes(1, layer, layer, depth=3) == 2 * layer
    # Planner case D13: 7e9 parameters in 32 layers, bf16, one layer ahead: 0.82 GiB of gathered layers.
    assert prefetch_bytes(32, 2 * 7e9 / 32, 0.0, depth=1) / 2**30 == pytest.approx(0.815, abs=5e-4)
    assert prefetch_bytes(np.array([1, 40]), 1.0, 1.0, np.array([[0], [3]])).tolist() == [[2, 3], [2, 6]]


@pytest.mark.parametrize("alpha", [0.0, 1e-5])
@pytest.mark.parametrize("ratio", [1.5, 2.0, 3.0])
def test_at_the_break_even_bandwidth_all_hides_and_just_below_it_does_not(alpha, ratio):
    n, weights, forward, layers = 64, 0.63e9, 0.033, 200
    needed = break_even_bandwidth(forward, ratio * forward, weights, weights, n, alpha)
    for times, hides in ((1.0, True), (0.97, False)):
        gather = (n - 1) * (alpha + weights / n / (times * needed))
        one = prefetched(layers, forward, ratio * forward, gather, gather, depth=1)
        assert (one.exposed < 2 * gather * 1.001) == hides


def test_what_is_held_by_hand():
    assert prefetch_bytes(40, 3.0, 5.0, 2) == 3 * 3 + 2 * 5 and prefetch_bytes(1, 3.0, 5.0, 2) == 3 + 5
    assert gathered_layers(np.array([0, 0.5, 2, 9]), 2).tolist() == [0, 0.5, 2, 3]
    assert whole_gradients(np.array([0, 0.5, 2, 9])).tolist() == [0, 0.5, 2, 2]


def test_break_even_by_hand():
    """Under the forward 63/64 x 0.63 GB in 33 ms; with a short backward, twice that in it."""
    assert break_even_bandwidth(33e-3, 66e-3, 0.63e9, 0.63e9, 64) == pytest.approx(0.6201562e9 / 33e-3)
    assert break_even_bandwidth(33e-3, 33e-3, 0.63e9, 0.63e9, 64) == pytest.approx(2 * 0.6201562e9 / 33e-3)
    # Gradients in fp32 are twice the bytes: three layers' worth under the backward.
    assert break_even_bandwidth(33e-3, 66e-3, 0.63e9, 1.26e9, 64) == pytest.approx(1.5 * 0.6201562e9 / 33e-3)


def test_latency_alone_can_be_too_long_and_one_rank_needs_no_network():
    n = np.array([1, 8, 4096])
    needed = break_even_bandwidth(33e-3, 66e-3, 0.63e9, 0.63e9, n, 1e-5)
    assert needed[0] == 0 and 0 < needed[1] < np.inf and needed[2] == np.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: prefetched(0, 1, 2, 1, 1), "number of layers is 0"),
        (lambda: prefetched(4, 1, 2, 1, 1, depth=-1), "prefetch depth is -1"),
        (lambda: prefetched(4, 1, 2, 1, 1, keep_last=1), "keep_last is 1"),
        (lambda: prefetched(4, 1, -2, 1, 1), "backward of a layer is -2"),
        (
            lambda: prefetched(4, np.ones(2), np.ones(3), 1, 1),
            "arrays of the times of a layer must broadcast",
        ),
        (lambda: prefetch_timeline(4, 0, 1, 1, 1), "forward of a layer is 0"),
        (lambda: prefetch_timeline(4, 1, 1, -1, 1), "gather of a layer is -1"),
        (lambda: break_even_bandwidth(0, 1, 1, 1, 8), "forward is 0"),
        (lambda: prefetch_bytes(2.5, 1, 1), "number of layers is 2.5"),
        (lambda: prefetch_bytes(np.ones(2), np.ones(3), 1), r"not layers \(2,\), weights \(3,\)"),
        (lambda: break_even_bandwidth(np.ones(2), 1, 1, 1, [8, 8, 8]), r"not forward \(2,\), n \(3,\)"),
        (lambda: gathered_layers(-1), "number of layers is -1"),
        (lambda: gathered_layers(np.ones(2), np.ones(3)), "must broadcast"),
        (lambda: whole_gradients("all"), "number of layers is 'all'"),
        (lambda: prefetch_timeline(3, 1, 2, 0.5, 0.2, slow_down=1e308), r"slow-down is 1e\+308"),
        (
            lambda: prefetch_timeline(3, 1e300, 2, 0.5e10, 0.2e10, slow_down=1e10),
            r"forward of a layer is 1e\+300",
        ),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
