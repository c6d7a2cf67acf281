"""The grid of calls: cells, colours of states and words, against the job written out here."""

import pytest

from labkit.errors import InputRefused
from labkit.show import labs, theme


def columns(patch):
    """Left edges of the cells of a state, as columns from 1."""
    if not patch.get_visible():
        return []
    corners = patch.get_path().vertices.reshape(-1, 4, 2)
    return sorted(int(x) + 1 for x in corners[:, :, 0].min(axis=1))


def test_cells_of_the_guides_hang(drawn):
    artists, _ = drawn("hang_counters", n=4, fault="leaves a call out", rank=1, at=2, ahead=1)
    cells = artists["cells"]
    assert columns(cells["ended"]) == [1] * 4
    assert columns(cells["ended, different layers met"]) == [2] * 4 + [3] * 4
    assert columns(cells["waiting"]) == [4] * 4
    assert columns(cells["queued behind"]) == [5] * 4
    assert list(artists["frame"].get_xdata()) == [3, 4, 4, 3, 3]
    assert artists["words"].texts[5:10] == ["AG 1", "AG 3", "AG 4", "AR", "RS 4"]
    assert artists["title"].get_text() == "the reader: mismatch at call 4, likely rank 1"
    _, _, _, suspect = [colour for _, colour in artists["ranks"]._texts][::-1]
    assert suspect == theme.COLOURS["text"]
    assert [colour for _, colour in artists["ranks"]._texts][1] == theme.COLOURS["warning"]


def test_a_job_that_ends_has_no_frame(drawn):
    artists, _ = drawn("hang_counters", fault="swaps two", at=1)
    assert not len(artists["frame"].get_xdata())
    assert artists["title"].get_text() == "the reader: nothing differs, and the data is wrong"
    assert columns(artists["cells"]["waiting"]) == []


def words(**setting):
    return "\n".join(labs.hang_counters.readout(labs.hang_counters.compute(**setting)))


def test_the_readout():
    said = words()
    assert "found: mismatch at call 4, 2 after the fault" in said and "calls 2 and 3" in said
    assert "nobody is named: 1 against 1" in words(n=2)
    assert "nobody is named: no mismatch" in words(fault="all come: network")
    assert "9, 8, 9, 9; their logs end with the same call" in words(at=6)
    assert "rank 1 of 3" in words(n=3, rank=7)


@pytest.mark.parametrize("wrong", [{"n": 1}, {"n": 9}, {"rank": -1}, {"fault": "sleeps"}, {"at": 0}])
def test_refused(wrong):
    with pytest.raises(InputRefused):
        labs.hang_counters.compute(**wrong)
