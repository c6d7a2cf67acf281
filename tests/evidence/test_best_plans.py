"""The best plans with reasons: the table's order, steps that are step_time's, and sentences that add up."""

import pytest

from labkit import cluster, model
from labkit.errors import InputRefused
from labkit.evidence.best_plans import best_plans, lead_of
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time

SHAPE, NODE = model("llama2-7b"), cluster("h100")
TABLE = search(SHAPE, NODE, 64, {"recompute": "none", "v": 1, "schedule": "1f1b", "cp": 1})


def test_they_are_the_first_rows_with_their_own_steps():
    found = best_plans(TABLE, 4)
    assert [one.place for one in found] == [1, 2, 3, 4]
    for one in found:
        row = TABLE.iloc[one.place - 1]
        assert one.plan == plan_of(row) and one.memory == row["memory"]
        assert one.step.total == row["seconds"] == step_time(SHAPE, NODE, one.plan).total
        assert one.limit == row["limit"]
        assert getattr(one.step, one.limit) == max(
            getattr(one.step, name)
            for name in ("tp", "cp", "ep", "pp", "dp", "optimizer", "launch", "bubble")
        )
        assert one.longer == pytest.approx(row["seconds"] / TABLE["seconds"].iloc[0] - 1)


def test_the_difference_to_the_next_is_that_of_the_two_rows():
    for one in best_plans(TABLE, 3):
        seconds = TABLE["seconds"].iloc[one.place] - TABLE["seconds"].iloc[one.place - 1]
        assert one.against_next.total == pytest.approx(seconds, abs=1e-9)
        assert sum(one.against_next.by_term.values()) == pytest.approx(seconds, abs=1e-9)
        assert one.reasons[1].startswith("the next takes ")


def test_sure_is_what_exceeds_the_models_error():
    first, second = best_plans(TABLE, 2, error=0.0)
    assert first.sure == (lead_of(TABLE, 0.0).gap > 0) and second.sure == (second.longer > 0)
    first, second = best_plans(TABLE, 2, error=10.0)
    assert not first.sure and not second.sure
    assert second.reasons[-1].endswith("less than the model's error of 1000 %")


def test_fewer_plans_than_asked_for():
    one = best_plans(TABLE.head(1), 5)
    assert len(one) == 1 and one[0].against_next is None and one[0].reasons[-1] == "no other plan runs"
    assert best_plans(TABLE.head(0)) == [] and lead_of(TABLE.head(1)) is None


@pytest.mark.parametrize("count", [0, -1, 1.5, "5", None, 101, 10**40])
def test_counts_that_are_none(count):
    with pytest.raises(InputRefused, match="number of best plans"):
        best_plans(TABLE, count)


@pytest.mark.parametrize("table", [None, 7, "table", [1]])
def test_no_table(table):
    with pytest.raises(InputRefused, match="search"):
        best_plans(table)


@pytest.mark.parametrize("error", [-0.1, "5 %", [0.1]])
def test_errors_that_are_none(error):
    with pytest.raises(InputRefused, match="error of the model"):
        best_plans(TABLE, 2, error)
