"""Pipeline schedules: bubbles, transfers that show or hide, and start times against a longest path."""

from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.pipeline import gpipe, one_f_one_b, peak_in_flight, simulate
from labkit.strategies.timeline import BACKWARD, COMPUTING, FORWARD, TRANSFER

SCHEDULES = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "1f1b, doubled warm-up": lambda p, m: one_f_one_b(p, m, warmup=2),
}
RATIOS = [(1, 1), (1, 2), (1, 3), (2, 1), (1, 1.5)]


def lengthening(order, forward, backward, transfer):
    """By how many transfer times the transfers make the step longer."""
    spans = [simulate(order, forward, backward, c).span for c in (transfer, 0)]
    return (spans[0] - spans[1]) / transfer


# ---- equal stages, no transfer time (claim 3.3-j): one bubble for all schedules and any forward : backward


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("forward", "backward"), RATIOS)
@pytest.mark.parametrize(
    ("p", "m", "bubble"), [(4, 4, "3/7"), (4, 16, "3/19"), (4, 24, "3/27"), (4, 32, "3/35"), (8, 32, "7/39")]
)
def test_bubble_of_equal_stages(schedule, forward, backward, p, m, bubble):
    t = simulate(SCHEDULES[schedule](p, m), forward, backward)
    assert t.span == (m + p - 1) * (forward + backward)
    assert t.bubble == pytest.approx(float(Fraction(bubble)), rel=1e-12)


def test_all_schedules_but_no_pipelining_share_the_bubble_at_every_size():
    for p in range(1, 9):
        for m in range(1, 33):
            for schedule in SCHEDULES.values():
                t = simulate(schedule(p, m), 1.0, 2.0)
                assert t.bubble == pytest.approx((p - 1) / (m + p - 1), rel=1e-12, abs=1e-15)


def test_without_warm_up_one_micro_batch_follows_the_other():
    t = simulate(one_f_one_b(4, 5, warmup=0), 1, 2, transfer=0.5)
    assert t.span == 5 * (4 * 3 + 2 * 3 * 0.5)
    assert peak_in_flight(one_f_one_b(4, 5, warmup=0)).tolist() == [1, 1, 1, 1]


# ---- transfer time (claim 2.4-h)


@pytest.mark.parametrize(("forward", "backward"), RATIOS)
@pytest.mark.parametrize("transfer", [2**-7, 0.25, 1.0, 4.0])
@pytest.mark.parametrize(("m", "claimed"), [(16, 28), (32, 52)])
def test_plain_1f1b_shows_its_transfers_whatever_their_length(forward, backward, transfer, m, claimed):
    assert lengthening(one_f_one_b(4, m), forward, backward, transfer) == pytest.approx(claimed)


@pytest.mark.parametrize("p", range(2, 9))
@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
def test_plain_1f1b_pays_a_round_trip_for_every_p_micro_batches(p, rounds):
    claimed = 2 * (p - 1) * rounds + 2 * (p - 2)
    assert lengthening(one_f_one_b(p, rounds * p), 1, 2, 0.25) == pytest.approx(claimed)


@pytest.mark.parametrize(("forward", "backward"), RATIOS)
@pytest.mark.parametrize("share", [2**-7, 0.5, 1.0])
@pytest.mark.parametrize("m", [1, 3, 16, 32])
@pytest.mark.parametrize("p", [2, 4, 7])
def test_doubled_warm_up_hides_transfers_up_to_half_a_forward_and_backward(forward, backward, share, m, p):
    transfer = share * (forward + backward) / 2
    assert lengthening(one_f_one_b(p, m, warmup=2), forward, backward, transfer) == pytest.approx(2 * (p - 1))


def test_beyond_that_doubled_warm_up_shows_them_again():
    assert lengthening(one_f_one_b(4, 16, warmup=2), 1, 2, 1.1 * 1.5) == pytest.approx(78 / 11)


@pytest.mark.parametrize(("forward", "backward"), RATIOS)
@pytest.mark.parametrize("transfer", [2**-7, 0.25, 4.0])
@pytest.mark.parametrize("m", [1, 16, 32])
def test_gpipe_pays_the_way_up_and_down_once(forward, backward, transfer, m):
    assert lengthening(gpipe(4, m), forward, backward, transfer) == pytest.approx(6)


# ---- micro-batches in flight


def test_peak_in_flight():
    assert peak_in_flight(one_f_one_b(4, 16)).tolist() == [4, 3, 2, 1]
    assert peak_in_flight(one_f_one_b(4, 16, warmup=2)).tolist() == [7, 5, 3, 1]
    assert peak_in_flight(gpipe(4, 16)).tolist() == [16, 16, 16, 16]
    assert peak_in_flight(one_f_one_b(4, 2, warmup=2)).tolist() == [2, 2, 2, 1]


# ---- any schedule on random unequal stages


@st.composite
def pipelines(draw):
    """An order and times: unequal stages, unequal boundaries, some of them free."""
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    seconds = st.floats(0.01, 10)
    order = SCHEDULES[draw(st.sampled_from(sorted(SCHEDULES)))](p, m)
    forward, backward = (draw(st.lists(seconds, min_size=p, max_size=p)) for _ in range(2))
    transfer = draw(st.lists(st.one_of(st.just(0.0), seconds), min_size=p - 1, max_size=p - 1))
    return order, forward, backward, transfer


def longest_path(order, forward, backward, transfer):
    """Start of every (stage, kind, micro-batch), by walking back from it along all that must come before."""
    p = len(order)
    duration = {FORWARD: forward, BACKWARD: backward}
    before = {(i, *op): (i, *previous) for i, stage in enumerate(order) for previous, op in pairwise(stage)}

    @cache
    def stop(node):
        return start(node) + duration[node[1]][node[0]]

    @cache
    def start(node):
        i, kind, k = node
        waits = [0.0]
        if node in before:
            waits.append(stop(before[node]))
        if kind == FORWARD and i > 0:
            waits.append(stop((i - 1, FORWARD, k)) + transfer[i - 1])
        if kind == BACKWARD and i == p - 1:
            waits.append(stop((i, FORWARD, k)))
        if kind == BACKWARD and i < p - 1:
            waits.append(stop((i + 1, BACKWARD, k)) + transfer[i])
        return max(waits)

    return {(i, *op): start((i, *op)) for i, stage in enumerate(order) for op in stage}


def computing(t):
    """(stage, kind, micro-batch) -> (start, stop), without the transfers."""
    columns = [column.tolist() for column in (t.lane, t.kind, t.item, t.start, t.stop)]
    blocks = zip(*columns, strict=True)
    return {(i, kind, k): (start, stop) for i, kind, k, start, stop in blocks if kind in COMPUTING}


@given(pipelines())
@settings(max_examples=100)
def test_start_times_are_the_longest_paths(pipeline):
    starts = {node: start for node, (start, _) in computing(simulate(*pipeline)).items()}
    assert starts == pytest.approx(longest_path(*pipeline), rel=1e-12)


@given(pipelines())
@settings(max_examples=100)
def test_a_stage_does_one_thing_at_a_time_and_its_whole_order(pipeline):
    order, forward, backward, _ = pipeline
    t = simulate(*pipeline)
    blocks = computing(t)
    for i, stage in enumerate(order):
        times = [blocks[i, kind, k] for kind, k in stage]
        assert all(a[1] <= b[0] for a, b in pairwise(times))
    m = len(order[0]) // 2
    assert t.busy == pytest.approx(m * (np.array(forward) + np.array(backward)), rel=1e-12)
    assert np.all(t.idle >= -1e-9)


@given(pipelines())
@settings(max_examples=50)
def test_every_boundary_is_crossed_once_up_and_once_down_per_micro_batch(pipeline):
    order, _, _, transfer = pipeline
    t = simulate(*pipeline)
    p, m = len(order), len(order[0]) // 2
    moves = t.kind == TRANSFER
    for i in range(p):
        neighbours = (i > 0) + (i < p - 1)
        assert np.count_nonzero(moves & (t.lane == i)) == m * neighbours
    assert (t.stop - t.start)[moves].sum() == pytest.approx(2 * m * sum(transfer), rel=1e-9)


@given(pipelines())
@settings(max_examples=50)
def test_peak_in_flight_is_the_one_counted_on_the_clock(pipeline):
    order = pipeline[0]
    blocks = computing(simulate(*pipeline))
    micro_batches = range(len(order[0]) // 2)
    for i, peak in enumerate(peak_in_flight(order)):
        begun = np.array([blocks[i, FORWARD, k][0] for k in micro_batches])
        finished = np.array([blocks[i, BACKWARD, k][1] for k in micro_batches])
        held = [np.count_nonzero((begun <= now) & (now < finished)) for now in begun]
        assert max(held) == peak


# ---- refusals


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gpipe(0, 4), "0 stages"),
        (lambda: one_f_one_b(4, 0), "0 micro-batches"),
        (lambda: one_f_one_b(4, 4, warmup=-1), "warm-up factor is -1"),
        (lambda: simulate([], 1, 1), "order is empty"),
        (lambda: simulate([[(FORWARD, 0)]], 1, 1), "stage 0 does not run each"),
        (lambda: simulate([*gpipe(1, 2), *gpipe(1, 3)], 1, 1), "stage 1 does not run each"),
        (lambda: simulate([[(BACKWARD, 0), (FORWARD, 0)]], 1, 1), "for ever: stage 0 at backward 0"),
        (lambda: simulate(gpipe(2, 2), [1, 1, 1], 1), r"one per stage, shape \(2,\)"),
        (lambda: simulate(gpipe(2, 2), 1, 0), "backward times must be finite and above zero"),
        (lambda: simulate(gpipe(2, 2), 1, 1, [1, 1]), r"one per boundary, shape \(1,\)"),
        (lambda: simulate(gpipe(2, 2), 1, 1, -1), "transfer times must be finite and zero or more"),
        (lambda: simulate(gpipe(2, 2), float("inf"), 1), "forward times"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
