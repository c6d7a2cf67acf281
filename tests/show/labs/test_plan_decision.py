"""The map of the four-step choice says what the decision says."""

import re

import pytest

from labkit.planner.decide import decide
from labkit.presets import cluster, model
from labkit.show import labs, still
from labkit.show.labs.plan_decision import CLUSTERS, CUT, KINDS, PP, TP, compute
from labkit.show.memory_parts import SUMS


@pytest.mark.parametrize("id", ["gpt3-13b", "llama2-70b", "mixtral-8x7b"])
@pytest.mark.parametrize("batch", [128, 512])
def test_it_frames_the_plan_of_the_decision(id, batch):
    result = compute(model=id, global_batch=batch)
    plan = decide(model(id), cluster("a100", nodes=8), batch).plan
    assert (result.chosen.tp, result.chosen.pp, result.chosen.dp) == (plan.tp, plan.pp, plan.dp)
    words = f"TP {plan.tp} × PP {plan.pp} × DP {plan.dp}"
    assert words in still(labs.plan_decision, model=id, global_batch=batch).facts[0]


def test_cells_have_the_memory_and_the_colour_of_their_cut(drawn):
    artists, result = drawn("plan_decision", model="llama2-70b")
    words = artists["words"].texts
    colours = artists["cells"].get_facecolor()
    for number, word in enumerate(words):
        cut = result.cuts.get((TP[number // len(PP)], PP[number % len(PP)]))
        assert tuple(colours[number][:3]) == pytest.approx(tuple(KINDS[result.kind(cut)]))
        assert (word == "–") == (cut is None)
        if cut is not None:
            assert float(word.strip("()")) == pytest.approx(cut.memory.total / 1e9, rel=0.01)
            assert word.startswith("(") == cut.thin
    assert len(artists["chosen"].get_paths()) == 1


def test_bars_are_the_whole_memory_of_the_leanest_cut_that_is_judged(drawn):
    artists, result = drawn("plan_decision", model="gpt3-13b", micro_batch=2)
    capacity = result.machine.gpu.usable
    for i, tp in enumerate(TP):
        memory, end = result.leanest[tp].memory, 0.0
        for part in SUMS:
            bar = artists["bars"][part][i]
            assert (bar.get_x(), bar.get_width()) == pytest.approx((end, getattr(memory, part) / capacity))
            end += bar.get_width()
        assert end * capacity == pytest.approx(memory.total) and memory.others > 0
        assert not artists["says"][i].get_text().startswith("→")


def test_a_bar_beyond_the_axis_is_cut_and_says_so(drawn):
    artists, result = drawn("plan_decision", model="gpt3-175b", nodes=1)
    over = 0
    for i, tp in enumerate(TP):
        end = max(bars[i].get_x() + bars[i].get_width() for bars in artists["bars"].values())
        cut = result.leanest[tp].memory.total > CUT * result.machine.gpu.usable
        assert end <= CUT + 1e-12 and artists["says"][i].get_text().startswith("→") == cut
        over += cut
    assert over


@pytest.mark.parametrize("nodes", [1, 8])
def test_the_sum_in_the_readout_adds_up(nodes):
    """The fullest stage of the chosen cut, or of the leanest where nothing fits."""
    line = still(labs.plan_decision, model="llama2-70b", nodes=nodes).facts[2]
    sums = r"states ([\d.]+) GB \+ activations ([\d.]+) GB \+ ([\d.]+) GB besides = ([\d.]+) GB of 84 GB$"
    *parts, total = map(float, re.search(sums, line).groups())
    assert sum(parts) == pytest.approx(total, rel=0.01) and (total <= 84) == (nodes == 8)


def test_where_nothing_fits_the_map_stays_and_says_so(drawn):
    artists, result = drawn("plan_decision", model="gpt3-175b", nodes=1)
    assert result.chosen is None and artists["chosen"].get_paths() == []
    assert "no cut will do" in artists["title"].get_text()
    assert "leanest" in still(labs.plan_decision, model="gpt3-175b", nodes=1).facts[2]


def test_a_batch_too_small_for_the_replicas_is_said_in_the_cells(drawn):
    artists, _ = drawn("plan_decision", model="llama2-7b", cluster="b200", nodes=64, global_batch=64)
    assert artists["words"].texts[0] == "batch"


def test_the_clusters_offered_have_nodes_of_at_most_eight_cards():
    for id in CLUSTERS:
        assert cluster(id).domain == cluster(id).gpus_per_node <= max(TP)
