"""A plan in words has what it uses, and nothing else."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.spec import Plan
from labkit.spec.plan_words import said


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(), "one card, m 1 x 1"),
        (Plan(dp=8, ep=8, micro_batch=3), "dp 8, ep 8, m 1 x 3"),
        (
            Plan(tp=4, pp=2, cp=2, v=2, zero=1, recompute="full", sequence_parallel=True, accumulation=4),
            "tp 4 x cp 2 ring x pp 2 + sequence parallel, v 2, ZeRO-1, full recompute, m 4 x 1",
        ),
        (Plan(pp=4, schedule="zb-h1", accumulation=8), "pp 4, zb-h1, m 8 x 1"),
    ],
)
def test_plans_in_words(plan, words):
    assert said(plan) == words


@pytest.mark.parametrize("wrong", ["dp 32", None, Plan(dp=np.array([1, 2]))])
def test_anything_but_one_plan_is_refused(wrong):
    with pytest.raises(InputRefused):
        said(wrong)
