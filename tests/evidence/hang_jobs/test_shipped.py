"""The recordings: whole, small, with nothing of a machine in them, and each diagnosed as it was made."""

import re

import pytest

from labkit.evidence.hang.files import read_files
from labkit.evidence.hang.read import read_hang
from labkit.evidence.hang_jobs import recorded_hang, silences
from labkit.evidence.hang_jobs.table import JOBS

# Verdict, number of the first call, absent ranks, suspects; None where it may be anything. By the scripts:
# one barrier to connect the ranks, then a call for each step.
DECIDED = {
    "branch": ("mismatch", 4, (), (0,)),
    "shape": ("mismatch", None, (), (3,)),
    "order": ("order", 3, (), (3,)),
    "extra_batch": ("missing_rank", 6, (0, 1, 2), (3,)),
    "dtype": ("mismatch", 3, (), (3,)),
    "group": ("missing_rank", None, None, None),
    "missing": ("missing_rank", 4, (3,), (3,)),
    "loading": ("timeout_too_short", 2, None, (3,)),
    "circular": ("circular_wait", None, None, ()),
    "walk_on": ("missing_rank", 6, (1, 2), (0,)),
    "silent": ("missing_rank", 6, (1, 2), (0,)),
    "half_filled": ("mismatch", 3, (), (0,)),
}


@pytest.mark.parametrize("name", DECIDED)
def test_each_is_decided(name):
    hang = read_hang(recorded_hang(name))
    verdict, first, absent, suspects = DECIDED[name]
    assert hang.verdict in verdict.split(), hang
    assert first is None or hang.first.sequence == first, hang
    assert absent is None or hang.absent == absent, hang
    assert suspects is None or hang.suspects == suspects, hang


def test_a_wrong_root_is_not_in_a_dump():
    """Neither dumps nor messages of gloo name a root: it must not be called the network, nor decided."""
    hang = read_hang(recorded_hang("root"))
    assert hang.verdict in ("undecided", "mismatch"), hang
    assert hang.first.sequence == 3


@pytest.mark.parametrize("name", JOBS)
def test_nothing_of_a_machine_is_in_them(name):
    total = 0
    for path in recorded_hang(name).iterdir():
        content = path.read_bytes()
        total += len(content)
        assert not re.search(rb"/(home|root|work|tmp|usr|opt|var)/", content), path
        assert b"site-packages" not in content
    assert total < 60_000


@pytest.mark.parametrize("name", JOBS)
def test_every_file_of_them_is_read(name):
    evidence = read_files(recorded_hang(name))
    # Rank 0 of this job was ended before it had said a word.
    empty = ["rank_0.log is empty"] if name == "abort" else []
    assert [warning.rpartition("/")[2] for warning in evidence.warnings] == empty
    ranks = JOBS[name].ranks
    dumps = {source.rank for source in evidence.sources if source.kind == "dump"}
    expected = {"abort": set(), "missing": set(range(ranks - 1))}.get(name, set(range(ranks)))
    assert dumps == expected


def test_both_moments_are_on_record():
    """Claim 6.1-i: not a word until the limit, then an error that says how long it waited."""
    for name in ("branch", "order", "root", "circular"):
        assert set(silences(recorded_hang(name)).values()) == {4}
        for path in recorded_hang(name).glob("rank_*.log"):
            assert re.search(r"Timed out waiting 4000ms|Connection closed by peer", path.read_text("utf-8"))
