"""Micro-batches in flight: the closed form is the peak of each schedule, block by block."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.in_flight import in_flight
from labkit.spec import Plan
from labkit.strategies.pipeline import (
    gpipe,
    interleaved,
    one_f_one_b,
    peak_in_flight,
    stage_times,
    zb_h1,
    zb_h2,
    zb_v,
)
from labkit.strategies.pipeline.memory_bounded import greedy

ORDERS = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "zb-v": zb_v,
    "zb-1p": lambda p, m: greedy(p, m, p, *stage_times(p)),
    "zb-2p": lambda p, m: greedy(p, m, 2 * p, *stage_times(p)),
}


@pytest.mark.parametrize("schedule", ORDERS)
@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 3), (4, 16), (8, 24)])
def test_the_closed_form_is_the_peak_of_the_schedule(schedule, p, m):
    found = in_flight(Plan(pp=p, accumulation=m, schedule=schedule), np.arange(p))
    simulated = peak_in_flight(ORDERS[schedule](p, m))
    assert np.all(found >= simulated)
    assert found.max() == simulated.max()
    if schedule in ("gpipe", "1f1b"):
        assert found.tolist() == simulated.tolist()


@pytest.mark.parametrize(("p", "m", "v"), [(4, 16, 2), (4, 4, 3), (8, 24, 3)])
def test_interleaving(p, m, v):
    found = in_flight(Plan(pp=p, v=v, accumulation=m), np.arange(p))
    assert found == pytest.approx(peak_in_flight(interleaved(p, m, v)))
    if m > 2 * p:
        assert found[0] == pytest.approx(
            p * (1 + (p - 1) / (p * v))
        )  # Korthikanti et al. (2022), section 4.2.3


def test_unequal_chunks_count_by_their_layers():
    """Interleaving on 4 ranks with 2 chunks: rank 3 ran 4 micro-batches through chunk 0, 1 through 1."""
    plan = Plan(pp=4, v=2, accumulation=16)
    for layers in ((1,) * 8, (0, 1, 1, 1, 1, 1, 1, 0), (3, 1, 1, 1, 1, 1, 1, 0)):
        for rank in range(4):
            found = in_flight(plan.changed(stage_layers=layers), rank)
            assert found == pytest.approx(_by_hand(layers, rank))
    assert in_flight(plan.changed(stage_layers=(0, 1, 1, 1, 1, 1, 1, 0)), 3) == 4


def _by_hand(layers, rank, p=4, v=2):
    """Layers in flight over layers of the rank, after its warm-up and one forward more, chunk by chunk."""
    left, chunk, counts = 2 * (p - 1 - rank) + (v - 1) * p + 1, 0, [0] * v
    while left:
        here = min(left, p)
        counts[chunk], left, chunk = counts[chunk] + here, left - here, (chunk + 1) % v
    own = [layers[c * p + rank] for c in range(v)]
    return sum(n * count for n, count in zip(own, counts, strict=True)) / sum(own)


def test_one_rank_keeps_one():
    assert in_flight(Plan(accumulation=8, schedule="gpipe"), 0) == 1
    assert in_flight(Plan(pp=np.array([1, 4]), accumulation=8), 0).tolist() == [1, 4]


def test_refusals():
    with pytest.raises(InputRefused, match="pipeline rank"):
        in_flight(Plan(), -1)
