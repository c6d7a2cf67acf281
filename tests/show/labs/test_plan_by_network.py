"""Lines are the families' best, the strip has the leader's colour, words say where the lead changes."""

import numpy as np
import pytest

from labkit.course.chapter5_families import FAMILIES, RATES
from labkit.show import labs, still
from labkit.show.labs.plan_by_network import COLOURS, NAMES


@pytest.mark.parametrize("setting", [{}, {"sequence": 8192, "global_batch": 32}, {"overlap": False}])
def test_lines_and_strip_show_the_families_and_their_leader(drawn, setting):
    artists, result = drawn("plan_by_network", **setting)
    for line, mfu in zip(artists["lines"], result.found.mfu, strict=True):
        assert np.array_equal(line.get_ydata(), mfu[:-1], equal_nan=True)
        assert line.get_visible() == np.isfinite(mfu).any()
    covered = 0.0
    for number, patch in enumerate(artists["leaders"]):
        path = patch.get_path().vertices
        if len(path) % 4 == 0 and len(path):
            for low, high in zip(*np.sort(path[:, 0].reshape(-1, 4))[:, [0, -1]].T, strict=True):
                covered += np.log(high / low)
                inside = (0.999 * low <= RATES) & (0.999 * high > RATES)
                assert set(result.lead[inside]) == {number}
    assert covered == pytest.approx(np.log(RATES[-1] / RATES[0]))
    assert [mark.get_xdata()[0] for mark in artists["here"]] == [result.rate] * 2


def test_the_words_name_the_leaders_from_left_to_right():
    result = labs.plan_by_network.compute()
    line = labs.plan_by_network.readout(result)[-1]
    leaders = [NAMES[result.lead[0]], *(NAMES[result.lead[i]] for i in result.edges)]
    places = [line.index(name) for name in leaders]
    assert places == sorted(places) and len(leaders) > 1


def test_the_longest_list_of_leaders_still_fits_its_line():
    facts = still(labs.plan_by_network, cluster="h100", global_batch=256).facts
    assert facts[-1].count(": ") == 5 and max(map(len, facts)) <= 110


def test_a_cut_that_does_not_fit_has_no_line_and_says_so():
    shown = still(labs.plan_by_network, sequence=16384, global_batch=512)
    assert "ZeRO-1 alone does not fit" in " ".join(shown.facts)


def test_a_batch_that_not_all_can_share_is_refused_in_the_figures_place():
    assert "multiple of 32" in still(labs.plan_by_network, global_batch=48).facts[0]


@pytest.mark.parametrize(
    "setting", [{"cluster": "h100"}, {"sequence": 8192}, {"global_batch": 256}, {"overlap": False}]
)
def test_every_control_changes_the_picture(setting):
    plain, changed = (still(labs.plan_by_network, **given).picture.stored() for given in ({}, setting))
    assert plain != changed


def test_one_colour_for_each_family():
    assert len(set(COLOURS)) == len(NAMES) == len(FAMILIES)
