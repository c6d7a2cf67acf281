"""The tables of the notebook on one's own cluster: complete, and the figures of what they show."""

from labkit import Plan, StepTime, cluster, model
from labkit.course.your_cluster import (
    WHY,
    best_table,
    census_table,
    fits_table,
    links_table,
    reasons_table,
    run_table,
    seats_table,
)
from labkit.evidence.best_plans import best_plans
from labkit.evidence.mapping import Mapping
from labkit.evidence.runs import RunLog
from labkit.evidence.your_cluster import fitted_cluster
from labkit.planner.search import search
from labkit.presets import sample_sweeps
from labkit.spec.rule import IMPOSSIBLE
from labkit.spec.rules import RULES

A100, LLAMA, SAMPLES = cluster("a100"), model("llama2-7b"), sample_sweeps()
FOUND = search(LLAMA, A100, 64, {"v": 1, "schedule": "1f1b", "recompute": "none"})


def test_every_reason_of_a_search_has_its_meaning():
    assert {rule.name for rule in RULES if rule.severity == IMPOSSIBLE} | {"memory"} == set(WHY)


def test_the_census_adds_up():
    rows = {name: int(number.replace(",", "")) for name, number, _ in census_table(FOUND).rows}
    assert rows.pop("tried") == sum(rows.values()) and rows["left"] == len(FOUND)


def test_links_before_and_after():
    found = fitted_cluster(A100, intra=SAMPLES["a100-8gpu-nvswitch"])
    rows = {row[:2]: row[2:] for row in links_table(A100, found).rows}
    assert rows["inside", "alpha"][:2] == ("1.54 µs", "2.98 µs")
    assert rows["inside", "bandwidth"][:2] == ("235 GB/s", "230 GB/s")
    assert rows["a port", "alpha"][0] == rows["a port", "alpha"][1]
    assert rows["inside", "alpha"][2].startswith("a100-8gpu-nvswitch.txt: all_reduce on 8 ranks as ring")


def test_fits_with_what_stands_out():
    (plain, odd) = fits_table(
        {"one": SAMPLES["a100-8gpu-nvswitch"], "two": SAMPLES["gh200-2x4-sockets"]}
    ).rows
    assert plain == ("one", "all_reduce, 8", "41.8 µs", "132 GB/s", "235 GB/s", "nothing")
    assert "cold start" in odd[-1]


def test_best_plans_and_reasons():
    best = best_plans(FOUND, 3)
    assert [row[0] for row in best_table(best).rows] == ["1", "2", "3"]
    assert [row[1] for row in reasons_table(best).rows] == [text for one in best for text in one.reasons]


def test_a_run_beside_its_prediction(tmp_path):
    plan = Plan(dp=8, global_batch=64, micro_batch=1)
    run = RunLog(tmp_path / "runs.sqlite").record(LLAMA, A100, plan, [2.0, 2.0, 4.0], StepTime(compute=1.5))
    rows = dict(run_table(run).rows)
    assert rows["measured, median"] == "2 s" and rows["predicted / measured - 1"] == "-25 %"
    run = RunLog(tmp_path / "runs.sqlite").record(LLAMA, A100, plan, [2.0])
    assert "predicted" not in dict(run_table(run).rows)


def test_seats_of_a_cyclic_launch():
    nodes, plan = cluster("a100", nodes=2), Plan(tp=8, dp=2, global_batch=64, micro_batch=1)
    rows = dict((row[0], row[1:]) for row in seats_table(LLAMA, nodes, plan, Mapping(("a", "b") * 8)).rows)
    assert rows["tp groups"] == ("2", "2", "0") and rows["dp groups"] == ("8", "0", "8")
