"""Plans that differ only in stages of ZeRO below 3 are timed together, and as if they were not."""

import numpy as np
import pytest

from labkit.planner.alike import Alike
from labkit.planner.step import step_time
from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.spec.step_time import TERMS

GPT, NODES = model("gpt3-13b"), cluster("a100", 4)


def test_what_is_taken_together():
    stages = np.array([0, 3, 1, 2])[:, None]
    plan = Plan(dp=np.array([8, 16, 32]), zero=stages, global_batch=64)
    alike = Alike.of(plan)
    assert (alike.axis, alike.kind.tolist()) == (-2, [0, 1, 0, 0])
    assert alike.plan(plan).zero.ravel().tolist() == [0, 3]
    assert alike.each(np.array([[5.0], [7.0]])).ravel().tolist() == [5, 7, 5, 5]
    assert alike.each(np.ones((2, 3, 4)), 1).shape == (4, 3, 4)
    assert alike.each(np.ones(3)).shape == (3,)  # no axis of stages: the same for all
    assert Alike.of(plan, bucket=np.full((4, 1), 25e6)).axis is None
    assert Alike.of(plan, bucket=np.full(3, 25e6)).axis == -2
    # Each with a stage of its own: nothing to take together.
    assert Alike.of(Plan(dp=np.array([2, 4, 8]), zero=np.array([1, 2, 3]), micro_batch=1)).axis is None
    for zero in (2, np.array([3, 3]), np.array([0, 3]), np.array([[0, 3], [1, 2]])):
        assert Alike.of(Plan(dp=32, zero=zero)).axis is (-1 if np.shape(zero) == (2,) and zero[0] else None)


@pytest.mark.parametrize(("down", "across"), [((4, 1), (1, 2)), ((1, 4), (2, 1)), ((4,), ()), ((4,), (4,))])
def test_every_plan_has_the_seconds_that_it_has_alone(down, across):
    stages = np.array([0, 1, 2, 3]).reshape(down)
    others = np.array([1, 2, 2, 1])[: np.prod(across, dtype=int)].reshape(across)
    how = {"tp": 2, "pp": 2, "dp": 8, "global_batch": 64, "recompute": "full"}
    many = step_time(GPT, NODES, Plan(zero=stages, micro_batch=others, **how))
    for place in np.ndindex(np.shape(many.total)):
        zero, size = (np.broadcast_to(each, many.total.shape)[place].item() for each in (stages, others))
        one = step_time(GPT, NODES, Plan(zero=zero, micro_batch=size, **how))
        for name in TERMS:
            assert np.broadcast_to(getattr(many, name), many.total.shape)[place] == getattr(one, name)
