"""The best plans as a lab: what a search finds, in its order, within the limit of memory."""

from dataclasses import replace

import pytest

from labkit import cluster, model
from labkit.errors import InputRefused
from labkit.planner.search import search
from labkit.show.labs.your_plans import COUNT, FEWER, TERMS, YOURS, compute, readout
from labkit.spec.step_time import TERMS as ALL
from labkit.units import GB


def test_the_bars_are_the_first_plans_of_the_search_within_the_limit():
    found = compute(most_GB=50.0)
    table = search(model("llama2-13b"), cluster("h100", nodes=2), 512, FEWER)
    table = table[table["memory"] <= 50 * GB]
    assert [one.step.total for one in found.best] == table["seconds"].head(COUNT).tolist()
    assert all(one.memory <= 50 * GB for one in found.best) and len(found.table) == len(table)
    for one in found.best:
        assert sum(getattr(one.step, term) for term in TERMS) == pytest.approx(one.step.total, rel=1e-12)
        assert set(ALL) - set(TERMS) == {"data", "idle"}  # which a predicted step has none of


def test_a_smaller_limit_is_never_faster():
    seconds = [compute(most_GB=most).best[0].step.total for most in (80.0, 60.0, 40.0, 20.0)]
    assert seconds == sorted(seconds)


def test_a_cluster_of_ones_own_with_other_nodes():
    mine = cluster("h100")
    mine = replace(mine, inter=replace(mine.inter, bandwidth=1e9))
    slow, fast = (compute(cluster=YOURS, yours=mine, nodes=2), compute(nodes=2))
    assert slow.machine.nodes == 2 and slow.best[0].step.total > fast.best[0].step.total
    with pytest.raises(InputRefused, match="no cluster 'yours'"):
        compute(cluster=YOURS)


def test_a_limit_that_nothing_keeps():
    lines = readout(compute(most_GB=10.0, nodes=1))
    assert lines[-1].startswith("no plan fits") and lines[2] == "1: no further plan"
