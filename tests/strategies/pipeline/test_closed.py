"""The closed forms of a pipeline's step against the simulation of the real orders."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.strategies.pipeline import (
    SCHEDULES,
    StageTimes,
    bubble_over_ideal,
    pipeline_span,
    pipeline_work,
    schedule,
    simulate,
)

NAMES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "zb-h1": "ZB-H1",
    "zb-h2": "ZB-H2",
    "zb-v": "ZB-V",
    "zb-1p": "ZB-1p",
    "zb-2p": "ZB-2p",
}
WHOLE = ("gpipe", "1f1b", "interleaved")
SPLIT = tuple(name for name in NAMES if name not in WHOLE)


def closed(name, p, m, v, times, transfer=0.0, longer=0):
    """Span and busiest work by the closed forms."""
    forward, backward, weight = times
    name = "1f1b" if name == "interleaved" else name
    span = pipeline_span(name, p, m, v, forward, backward, weight, transfer, longer)
    return span, pipeline_work(name, p, m, v, forward, backward, longer)


def simulated(name, p, m, v, times, transfer=0.0, longer=0):
    """Span and busiest work of the order itself, its stages laid out one by one."""
    chunks = SCHEDULES[NAMES[name]].chunks(v)
    kinds = [0, *[1] * (p * chunks - 2 - longer), *[2] * longer, 3][-p * chunks :]
    forward, backward, weight = (np.asarray(part, float)[kinds] for part in times)
    stages = StageTimes(forward, backward, np.full(p * chunks - 1, float(transfer)), weight)
    run = simulate(schedule(NAMES[name], p, m, v, stages), *stages)
    return run.span, run.busy.max()


def alike(forward, gradient, weight):
    """Times of equal stages."""
    return np.full(4, forward), np.full(4, gradient + weight), np.full(4, weight)


def chunks_of(name):
    return {"interleaved": 3, "zb-v": 2}.get(name, 1)


def grid(name):
    """All small pipelines, of fewer micro-batches than ranks as well; interleaving needs multiples of p."""
    for p in range(1 + (name == "interleaved"), 8):
        yield from ((p, m) for m in range(1, 20) if name != "interleaved" or m % p == 0)


# ---- equal stages, no transfers


@pytest.mark.parametrize("name", NAMES)
def test_equal_passes_are_exact_everywhere(name):
    times = alike(1.0, 1.0, 1.0)
    for p, m in grid(name):
        v = chunks_of(name)
        assert closed(name, p, m, v, times) == pytest.approx(simulated(name, p, m, v, times), rel=1e-9)


@pytest.mark.parametrize("passes", [(4.0, 4.0, 3.0), (1.0, 1.4, 0.6), (1.0, 2.0, 1.0), (3.0, 2.0, 2.0)])
@pytest.mark.parametrize("name", [*WHOLE, "zb-h1"])
def test_equal_stages_are_exact_whatever_their_passes_take(name, passes):
    for p, m in grid(name):
        v, times = chunks_of(name), alike(*passes)
        assert closed(name, p, m, v, times) == pytest.approx(simulated(name, p, m, v, times), rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("rounds", [2, 3, 6])
def test_the_papers_bubbles(p, rounds):
    """Narayanan et al. 2021, section 2.2; Qi et al. 2024, table 2, and the ranks' later beginnings."""
    m, f, g, w = rounds * p, 4.0, 4.0, 3.0
    times, work = alike(f, g, w), m * (f + g + w)
    assert closed("1f1b", p, m, 1, times)[0] == pytest.approx(work * (1 + bubble_over_ideal(p, m)))
    assert closed("interleaved", p, m, 3, times)[0] == pytest.approx(
        3 * work * (1 + bubble_over_ideal(p, m, 3))
    )
    assert closed("zb-h1", p, m, 1, times)[0] == pytest.approx(work + (p - 1) * (f + g - w))
    # ZB-H2's last rank begins p - 1 forwards later and never waits again.
    assert closed("zb-h2", p, m, 1, times)[0] == pytest.approx(work + (p - 1) * f)
    assert closed("zb-v", p, m, 2, alike(1.0, 1.0, 1.0))[0] == pytest.approx(6 * m + p - 1)


# ---- unequal stages and transfers


def drawn(name, draws, transfer=0.25, seed=0):
    """Random pipelines: an embedding and a head of up to 2 layers, an end with a layer less, recompute.

    Transfers take up to ``transfer`` of an inner stage's forward and backward. Plain stages may be one layer
    longer, those of interleaving are equal, as Megatron-LM wants them.
    """
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        p, v = int(rng.integers(2, 13)), {"interleaved": int(rng.integers(2, 5)), "zb-v": 2}.get(name, 1)
        m = p * int(rng.integers(1, 9)) if name == "interleaved" else int(rng.integers(p, 6 * p))
        layers = int(rng.integers(2, 11)) + np.array([0.0, 0.0, 1.0, 0.0])
        longer = 0
        if name != "interleaved":
            longer = int(rng.integers(0, p * v - 1)) * int(rng.integers(2))
            layers[[0, 3]] -= rng.integers(2, size=2)
        ends = np.array([rng.uniform(0, 0.3), 0.0, 0.0, rng.uniform(0, 2)]) * rng.integers(2, size=4)
        weight = layers * rng.uniform(0.6, 1.0) + ends
        backward = 2 * (layers + ends) + layers * rng.integers(2)
        hop = rng.uniform(0, transfer) * (layers[1] + backward[1]) * rng.integers(2)
        yield p, m, v, (layers + ends, backward, weight), hop, longer


def errors(name, draws=300, **options):
    """Relative errors of the span; the busiest work must be exact, and no more than the span."""
    found = []
    for case in drawn(name, draws, **options):
        (span, work), (real, busy) = closed(name, *case), simulated(name, *case)
        assert work == pytest.approx(busy, rel=1e-9)
        assert span >= work * (1 - 1e-12)
        found.append(span / real - 1)
    found = np.array(found)
    print(
        f"{name}: {found.min():+.2%} to {found.max():+.2%}, median {np.median(np.abs(found)):.3%}, "
        f"{np.mean(np.abs(found) > 0.01):.1%} beyond 1 %"
    )
    return found


def test_gpipe_is_exact():
    assert np.abs(errors("gpipe")).max() < 1e-9


@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_within_one_percent(name):
    found = np.abs(errors(name))
    assert found.max() < 0.01
    assert np.median(found) < 1e-9


@pytest.mark.parametrize(
    ("name", "below", "above", "median"),
    [
        ("zb-h1", 0.04, 1e-9, 1e-9),
        ("zb-h2", 0.09, 1e-9, 1e-9),
        ("zb-v", 0.14, 0.02, 0.01),
        ("zb-1p", 0.10, 0.02, 1e-5),
        ("zb-2p", 0.15, 0.03, 1e-3),
    ],
)
def test_zero_bubble_schedules_are_bounded_from_below(name, below, above, median):
    """No formula of them is exact with unequal stages: what is reached, the worst case as well."""
    found = errors(name, draws=200)
    assert -below < found.min()
    assert found.max() < above
    assert np.median(np.abs(found)) < median


def test_transfers_of_plain_1f1b_show_once_per_p_micro_batches():
    """2 (p - 1) a round and 2 (p - 2) at the end, for any length of transfer (claim 2.4-h: 28 and 52)."""
    times = alike(1.0, 1.0, 1.0)
    for p, rounds in ((4, 4), (4, 8), (7, 3)):
        shown = closed("1f1b", p, rounds * p, 1, times, 0.25)[0] - closed("1f1b", p, rounds * p, 1, times)[0]
        assert shown == pytest.approx(0.25 * (2 * (p - 1) * rounds + 2 * (p - 2)))


# ---- arrays of plans


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_arrays_are_their_single_plans_to_the_last_bit(seed):
    rng = np.random.default_rng(seed)
    cuts, options = 4, 9
    names = rng.choice(["gpipe", "1f1b", *SPLIT], (1, options))
    p, v = rng.integers(1, 9, (cuts, 1)), rng.integers(1, 3, (cuts, 1))
    m = p * rng.integers(1, 5, (1, options))
    longer = rng.integers(0, 3, (cuts, 1)) * (p > 3)
    forward = rng.uniform(1, 2, (cuts, options, 4))
    backward, weight = forward * 2, forward * rng.uniform(0.5, 1)
    transfer = rng.uniform(0, 0.3, (1, options))
    together = pipeline_span(names, p, m, v, forward, backward, weight, transfer, longer)
    work = pipeline_work(names, p, m, v, forward, backward, longer)
    assert together.shape == work.shape == (cuts, options)
    for i in range(cuts):
        for j in range(options):
            plan = names[0, j].item(), int(p[i, 0]), int(m[i, j]), int(v[i, 0]), forward[i, j], backward[i, j]
            assert pipeline_span(*plan, weight[i, j], transfer[0, j], int(longer[i, 0])) == together[i, j]
            assert pipeline_work(*plan, int(longer[i, 0])) == work[i, j]
            assert together[i, j] >= work[i, j] * (1 - 1e-12)


def test_schedules_and_chunks_may_vary_along_any_axis():
    one, two = np.ones(4), np.full(4, 2.0)
    names, v = np.array([["gpipe", "1f1b"], ["1f1b", "zb-h1"]]), np.array([[1, 2], [1, 1]])
    assert pipeline_span(names, 4, 16, v, one, two).tolist() == [[57.0, 105.0], [57.0, 51.0]]
    assert pipeline_span(names.T, 4, np.array([16]), v.T, one, two).tolist() == [[57.0, 57.0], [105.0, 51.0]]


@given(st.sampled_from([*NAMES]), st.integers(1, 6), st.integers(1, 4), st.data())
def test_a_longer_transfer_never_makes_a_step_shorter(name, p, rounds, data):
    seconds = st.lists(st.floats(0.1, 10), min_size=4, max_size=4)
    forward, gradient, weight = (np.array(data.draw(seconds)) for _ in range(3))
    times = forward, gradient + weight, weight
    hops = sorted(data.draw(st.lists(st.floats(0, 5), min_size=2, max_size=2)))
    if name == "zb-v":  # a wait that grows long enough is filled with weight gradients
        return
    short, long = (closed(name, p, rounds * p, chunks_of(name), times, hop)[0] for hop in hops)
    assert short <= long * (1 + 1e-12)


def test_one_rank_waits_for_nothing():
    for name in NAMES:
        times = alike(1.0, 1.0, 1.0)
        span, work = closed(name, 1, 5, chunks_of(name), times, 0.5)
        assert span == work == 15.0 * chunks_of(name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": "2f2b"}, "the schedule is '2f2b'; use gpipe, 1f1b"),
        ({"p": 0}, "pipeline ranks is 0"),
        ({"forward": np.ones(3)}, r"forward times have the shape \(3,\); give four along the last axis"),
        ({"backward": -np.ones(4)}, "the backward time is"),
        ({"weight_gradient": np.full(4, 3.0)}, "a weight gradient takes longer than its backward"),
        ({"longer": 3}, "more longer stages than inner ones"),
        ({"m": np.array([8, 16]), "p": np.array([2, 4, 8])}, "must broadcast"),
    ],
)
def test_refused(changes, words):
    given = {"schedule": "1f1b", "p": 4, "m": 16, "v": 1, "forward": np.ones(4), "backward": np.full(4, 2.0)}
    with pytest.raises(InputRefused, match=words):
        pipeline_span(**(given | changes))
