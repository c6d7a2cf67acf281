"""The lit table says what the procedure says."""

import pytest

from labkit.errors import InputRefused
from labkit.planner.procedure import procedure
from labkit.presets import cluster, model
from labkit.show import labs, still
from labkit.show.labs.decision_table import BAR, LIT, MOST, PER_ROOM, WIDE, compute

SETTINGS = [
    {},
    {"model": "gpt3-13b", "sequence": 2048},
    {"model": "mixtral-8x7b", "cluster": "h100", "nodes": 2, "sequence": 32768, "global_batch": 64},
    {"model": "gpt3-175b", "cluster": "v100", "nodes": 64, "sequence": 2048},
    {"model": "llama2-7b", "nodes": 1, "global_batch": 8},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_rows_are_lit_where_they_hold_and_bars_are_what_they_compare(drawn, settings):
    artists, result = drawn("decision_table", **settings)
    rows = result.found.rows
    colours = artists["bands"].get_facecolor()
    for row, colour in zip(rows, colours, strict=True):
        assert (tuple(colour[:3]) == pytest.approx(tuple(LIT))) == row.holds
    assert artists["answer"].texts == ["yes" if row.holds else "no" for row in rows]
    assert artists["judgement"].texts == [row.judgement for row in rows]
    ends = artists["over"].get_path().vertices[:, 0].reshape(-1, 4).max(axis=1)
    inner = artists["bar"].get_path().vertices[:, 0].reshape(-1, 4).max(axis=1)
    for row, end, stop in zip(rows, ends, inner, strict=True):
        if row.load == row.load:
            assert stop == pytest.approx(BAR + PER_ROOM * min(row.load, 1))
            assert end == pytest.approx(BAR + PER_ROOM * min(max(row.load, 1), MOST))
        else:
            assert stop == BAR and end == BAR + PER_ROOM


@pytest.mark.parametrize("settings", SETTINGS)
def test_actions_take_two_lines_at_most(drawn, settings):
    artists, result = drawn("decision_table", **settings)
    assert len(artists["action"].texts) <= 20 and max(map(len, artists["action"].texts)) <= WIDE
    said = " ".join(artists["action"].texts).replace("\u00a0", " ")
    assert said == " ".join(row.action for row in result.found.rows)


def test_it_is_the_procedure_of_the_planner():
    found = procedure(model("llama2-70b"), cluster("a100", nodes=8), 512)
    assert compute().found.plan == found.plan
    facts = still(labs.decision_table).facts
    plan = found.plan
    assert f"TP {plan.tp} × PP {plan.pp} × DP {plan.dp}" in facts[0]
    assert facts[1] == "rows that hold: " + ", ".join(str(row.number) for row in found.rows if row.holds)


def test_where_nothing_fits_one_sentence_says_so():
    with pytest.raises(InputRefused, match="does not fit 8 cards"):
        compute(model="llama3.1-405b", nodes=1)
