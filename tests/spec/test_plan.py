"""Plan: the third of three batch numbers, arrays as many single plans, refusals in one sentence."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.spec import Plan

small = st.integers(1, 12)
SINGLE = ("micro_batch", "accumulation", "global_batch")
WRONG = ["8", "", None, [8], (8,), {}, True, False, 0, -1, 1.5, float("nan"), float("inf"), 10**30, 1j]


@pytest.mark.parametrize(
    ("given_numbers", "derived"),
    [
        ({"micro_batch": 2, "accumulation": 16, "dp": 8}, (2, 16, 256)),
        ({"micro_batch": 2, "global_batch": 256, "dp": 8}, (2, 16, 256)),
        ({"accumulation": 16, "global_batch": 256, "dp": 8}, (2, 16, 256)),
        ({"global_batch": 256, "dp": 8}, (32, 1, 256)),  # not 256 a rank, which would be 8 times too much
        ({"micro_batch": 2, "dp": 8}, (2, 1, 16)),
        ({"accumulation": 4, "dp": 8}, (1, 4, 32)),
        ({"dp": 8}, (1, 1, 8)),
        (
            {"micro_batch": 2, "accumulation": 3, "global_batch": 5},
            (2, 3, 5),
        ),  # left for the rules to point at
    ],
)
def test_the_missing_batch_numbers_follow(given_numbers, derived):
    plan = Plan(**given_numbers)
    assert (plan.micro_batch, plan.accumulation, plan.global_batch) == derived
    assert all(type(getattr(plan, name)) is int for name in SINGLE)


def test_a_third_that_is_not_whole_is_kept():
    assert Plan(dp=7, global_batch=256, micro_batch=2).accumulation == pytest.approx(256 / 14)
    assert Plan(dp=7, global_batch=256).micro_batch == pytest.approx(256 / 7)


@given(small, small, small)
def test_any_two_give_the_third(dp, micro, steps):
    whole = dp * micro * steps
    for left_out in SINGLE:
        numbers = {"micro_batch": micro, "accumulation": steps, "global_batch": whole}
        del numbers[left_out]
        plan = Plan(dp=dp, **numbers)
        assert (plan.micro_batch, plan.accumulation, plan.global_batch) == (micro, steps, whole)


@pytest.mark.parametrize(
    ("changes", "batch"),
    [
        ({"dp": 8}, (2, 16, 256)),
        ({"accumulation": 18}, (2, 18, 252)),
        ({"global_batch": 266}, (2, 19, 266)),
        ({"micro_batch": 4, "accumulation": 10}, (4, 10, 280)),
        ({"tp": 2}, (2, 256 / 14, 256)),
    ],
)
def test_changed_derives_the_batch_anew(changes, batch):
    plan = Plan(dp=7, global_batch=256, micro_batch=2).changed(**changes)
    assert (plan.micro_batch, plan.accumulation, plan.global_batch) == batch
    assert all(getattr(plan, name) == value for name, value in changes.items())


def test_changed_drops_a_micro_batch_that_is_not_whole():
    assert Plan(global_batch=8, accumulation=3).changed(accumulation=4).micro_batch == 2
    with pytest.raises(InputRefused, match="a plan has no 'gpus'"):
        Plan().changed(gpus=3)


@given(small, small, small, small)
def test_ranks_are_the_product_of_four(tp, cp, pp, dp):
    plan = Plan(tp=tp, cp=cp, pp=pp, dp=dp, ep=7, v=3)
    assert plan.ranks == tp * cp * pp * dp == plan.model_ranks * dp == plan.stage_ranks * pp
    assert type(plan.ranks) is int and plan.single


def test_expert_tp_is_tp_unless_given():
    assert (Plan(tp=8).expert_tp, Plan(tp=8, etp=1).expert_tp) == (8, 1)


@pytest.mark.parametrize(
    ("vocabulary", "tp", "multiple", "padded"),
    [
        (128256, 8, 64, 128512),
        (151936, 2, 64, 151936),
        (151552, 6, 1, 151554),
        (151552, 6, 128, 152064),
        (151552, 6, 0, 151552),
        (50257, 1, 128, 50304),
        (50257, 8, 128, 51200),  # the vocabulary of the published 175B runs
    ],
)
def test_padded_vocabulary(vocabulary, tp, multiple, padded):
    plan = Plan(tp=tp, vocabulary_multiple=multiple)
    assert plan.padded_vocabulary(vocabulary) == padded
    assert type(plan.padded_vocabulary(vocabulary)) is int


def test_a_plan_of_arrays_is_many_plans():
    tp, dp = np.array([1, 2, 4, 8]), np.array([[1], [2]])
    many = Plan(tp=tp, dp=dp, pp=2, global_batch=64, micro_batch=np.array([1, 1, 2, 4]), order="pp-tp-cp-dp")
    assert not many.single and many.ranks.shape == (2, 4)
    for row, column in np.ndindex(2, 4):
        one = Plan(
            tp=int(tp[column]),
            dp=int(dp[row, 0]),
            pp=2,
            global_batch=64,
            micro_batch=int(many.micro_batch[column]),
            order="pp-tp-cp-dp",
        )
        for name in ("ranks", "model_ranks", "stage_ranks", "accumulation", "expert_tp"):
            assert np.broadcast_to(getattr(many, name), (2, 4))[row, column] == getattr(one, name), name
        for dimension in ("tp", "pp", "dp", "cp", "ep"):
            for ask in (Plan.stride, Plan.degree, lambda plan, name: plan.crosses(name, 8)):
                several = np.broadcast_to(ask(many, dimension), (2, 4))
                assert several[row, column] == ask(one, dimension), dimension


def test_arrays_of_choices():
    many = Plan(zero=np.array([0, 3]), recompute=np.array(["none", "full"]), balanced=np.array([True, False]))
    assert not many.single
    with pytest.raises(
        InputRefused, match="recompute of a plan is an array of 2 values, not all of which fit"
    ):
        Plan(recompute=np.array(["none", "some"]))


def test_arrays_that_do_not_broadcast_are_refused():
    with pytest.raises(InputRefused, match=r"must broadcast, not tp \(2,\), dp \(3,\); reshape them"):
        Plan(tp=np.array([1, 2]), dp=np.array([1, 2, 3]))


def refusal(**fields) -> str:
    with pytest.raises(InputRefused) as refused:
        Plan(**fields)
    text = str(refused.value)
    assert "\n" not in text and len(text) < 200
    return text


@pytest.mark.parametrize("name", ["tp", "pp", "dp", "cp", "ep", "v", "etp", *SINGLE])
@pytest.mark.parametrize("value", [*WRONG, np.array([2, 0]), np.array(["2"]), np.array([2.5])])
def test_numbers_that_cannot_be_are_refused(name, value):
    if value is None and name in ("etp", *SINGLE):
        return  # left out
    assert refusal(**{name: value}).startswith(f"{name} of a plan is ")


@pytest.mark.parametrize(
    "name", ["zero", "recompute", "schedule", "context", "sequence_parallel", "balanced"]
)
@pytest.mark.parametrize("value", ["", "other", None, [], [1], (), {}, 4, -1, 1.5, float("nan"), 10**30])
def test_choices_that_are_not_there_are_refused(name, value):
    text = refusal(**{name: value})
    assert text.startswith(f"{name} of a plan is ") and "; use " in text


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"zero": True}, "zero of a plan is True; use 0, 1, 2 or 3"),
        ({"zero": "1"}, "zero of a plan is '1'"),
        ({"balanced": 1}, "balanced of a plan is 1; use False or True"),
        ({"replicate_kv": "yes"}, "replicate_kv of a plan is 'yes'"),
        ({"schedule": "1F1B"}, "use gpipe, 1f1b, zb-h1"),
        ({"vocabulary_multiple": -1}, "from 0 up"),
        (
            {"tp": [1, 2]},
            "tp of a plan is of type list; give a whole number, or a NumPy array of them, from 1 up",
        ),
        ({"tp": 10**10}, "from 1 to 1,000,000,000"),
        ({"tp": 2000, "dp": 10**6}, "a plan has at most 1,000,000,000 ranks, tp x cp x pp x dp"),
        ({"pp": 10**5, "v": 10**5}, "at most 1,000,000,000 virtual stages"),
        ({"ep": 10**5, "etp": 10**5}, "at most 1,000,000,000 expert ranks"),
        ({"micro_batch": 10**5, "accumulation": 10**5}, "at most 1,000,000,000 sequences"),
        ({"tp": np.array([2, 2**16]), "dp": 2**16}, "at most 1,000,000,000 ranks"),
        ({"tp": np.array([])}, "tp of a plan is an array of 0 values"),
        ({"order": "tp-dp-pp"}, "name each of tp, cp, dp, pp once"),
        ({"order": "tp-tp-dp-pp"}, "name each of"),
        ({"order": None}, "the rank order is None"),
        ({"order": ["tp", "cp", "dp", "pp"]}, "the rank order is of type list"),
        ({"stage_layers": 8}, "stage_layers of a plan is 8; give a tuple"),
        ({"stage_layers": "88"}, "stage_layers of a plan is '88'"),
        (
            {"stage_layers": (8, -1)},
            "a number in stage_layers of a plan is -1; give a whole number from 0 up",
        ),
        ({"stage_layers": (8, None)}, "a number in stage_layers of a plan is None"),
        ({"stage_layers": (8, 7.5)}, "is 7.5"),
        ({"stage_layers": (np.array([8, 8]),)}, "an array of 2 values"),
    ],
)
def test_refusals_in_words(fields, says):
    assert says in refusal(**fields)


@pytest.mark.parametrize("dimension", ["", "xp", None, 3, ["tp"], "pp-tp"])
def test_unknown_dimensions_are_refused(dimension):
    for ask in (Plan().stride, Plan().degree, lambda name: Plan().crosses(name, 8)):
        with pytest.raises(InputRefused, match="use tp, cp, dp, pp, ep"):
            ask(dimension)


@pytest.mark.parametrize("vocabulary", [0, -1, "8", None, [8], 7.5, True, float("nan"), np.array(["8"])])
def test_a_vocabulary_that_cannot_be_is_refused(vocabulary):
    with pytest.raises(InputRefused, match="a vocabulary is"):
        Plan(tp=8).padded_vocabulary(vocabulary)


@pytest.mark.parametrize("domain", [0, -8, "8", None, [8], 7.5, True, float("nan")])
def test_a_domain_that_cannot_be_is_refused(domain):
    with pytest.raises(InputRefused, match="a fast-link domain is"):
        Plan(tp=8).crosses("tp", domain)


def test_numpy_numbers_and_whole_floats_become_ints():
    plan = Plan(tp=np.int64(4), pp=2.0, dp=np.array(8), micro_batch=np.float64(2))
    assert (plan.tp, plan.pp, plan.dp, plan.global_batch) == (4, 2, 8, 16)
    assert all(type(getattr(plan, name)) is int for name in ("tp", "pp", "dp", "micro_batch", "global_batch"))
    assert replace(plan) == plan and hash(replace(plan)) == hash(plan)


def test_positions_of_a_rank_are_what_context_parallel_leaves_it():
    assert Plan(cp=4, micro_batch=2).positions(8192) == 4096
    assert Plan(cp=np.array([1, 2, 8]), micro_batch=3).positions(1024).tolist() == [3072, 1536, 384]
    with pytest.raises(InputRefused, match="a sequence is 0"):
        Plan().positions(0)
