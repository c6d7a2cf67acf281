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


@pytest.mark.parametrize("layers", [(1,) * 6, (0, 1, 1, 1, 1, 0), (1, 6, 3, 4, 5, 1), (9, 1, 2, 1, 7, 3)])
@pytest.mark.parametrize("m", [6, 12])
def test_unequal_chunks_count_by_their_sizes(layers, m):
    """Against the order of the schedule, pass by pass; single plans and an array of them."""
    sizes = np.reshape(layers, (2, 3))
    expected = []
    for rank, passes in enumerate(interleaved(3, m, 2)):
        change = [(1 if kind == "forward" else -1) * layers[stage] for kind, _, stage in passes]
        expected.append(np.cumsum(change).max() / sizes[:, rank].sum())
    plan = Plan(pp=3, v=2, accumulation=m)
    assert in_flight(plan, np.arange(3), sizes) == pytest.approx(expected)
    many = Plan(pp=3, v=2, accumulation=np.array([[3], [m]]))
    assert in_flight(many, np.arange(3), sizes)[1] == pytest.approx(expected)


def test_one_rank_keeps_one():
    assert in_flight(Plan(accumulation=8, schedule="gpipe"), 0) == 1
    assert in_flight(Plan(pp=np.array([1, 4]), accumulation=8), 0).tolist() == [1, 4]


def test_refusals():
    with pytest.raises(InputRefused, match="is 4; of 4 they count from 0"):
        in_flight(Plan(pp=4), 4)
    with pytest.raises(InputRefused, match="must broadcast"):
        in_flight(Plan(pp=np.array([4, 8])), np.arange(3))
    with pytest.raises(InputRefused, match="one row for each of v = 2"):
        in_flight(Plan(pp=4, v=2), np.arange(4), np.ones((3, 4)))
    with pytest.raises(InputRefused, match="pipeline rank"):
        in_flight(Plan(), -1)
