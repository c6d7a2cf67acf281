"""The jobs run for real, always under a time limit: they hang, time out, leave dumps, and are diagnosed."""

import os

import pytest

from labkit.errors import InputRefused
from labkit.evidence.hang.read import read_hang
from labkit.evidence.hang_jobs import run_hang, silences
from labkit.evidence.hang_jobs.record import record
from labkit.evidence.hang_jobs.table import JOBS
from tests.evidence.torch_jobs import needs_torch

MISTAKES = {  # on two ranks: verdict, first call, who is absent; nobody is suspected, one against one
    "branch": ("mismatch", 4, ()),
    "shape": ("mismatch", 5, ()),
    "order": ("order", 3, ()),
    "extra_batch": ("missing_rank", 6, (0,)),
}


def left_behind(folder):
    """Processes that still have the folder's name in their command."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                found += [number] if str(folder).encode() in file.read() else []
        except OSError:
            pass
    return found


@needs_torch
@pytest.mark.parametrize("name", MISTAKES)
def test_two_ranks_hang_and_are_diagnosed(name, tmp_path):
    job = run_hang(name, tmp_path / "job", ranks=2)
    verdict, first, absent = MISTAKES[name]
    assert any(job.codes) and job.ranks == 2
    hang = read_hang(job.folder)
    assert hang.verdict in verdict.split(), hang
    assert (hang.first.sequence, hang.absent) == (first, absent), hang
    if name != "extra_batch":
        assert hang.suspects == ()
    if name != "shape":
        assert max(silences(job.folder).values()) >= 3  # silent until the limit, then the error
    if os.path.isdir("/proc"):
        assert left_behind(job.folder) == []


@needs_torch
def test_four_ranks_and_the_recording_of_them(tmp_path):
    """The whole way of a recording: run, made relative, read."""
    made = record("branch", tmp_path)
    assert len(list(made.iterdir())) == 8
    for path in made.iterdir():
        content = path.read_bytes()
        assert str(tmp_path).encode() not in content and b"site-packages" not in content
    hang = read_hang(made)
    assert (hang.verdict, hang.suspects) == ("mismatch", (0,))


@pytest.mark.parametrize(
    ("name", "ranks", "said"),
    [
        ("no such job", None, "use one of"),
        (3, None, "use one of"),
        ("branch", 1, "from 2"),
        ("branch", 9, "to 4"),
    ],
)
def test_what_is_no_job_is_refused(name, ranks, said, tmp_path):
    with pytest.raises(InputRefused, match=said):
        run_hang(name, tmp_path, ranks)


@needs_torch
def test_a_folder_in_use_is_refused(tmp_path):
    (tmp_path / "mine").write_text("kept\n")
    for folder, said in (
        (tmp_path, "not empty"),
        (tmp_path / "mine", "cannot be written"),
        (3, "give a path"),
    ):
        with pytest.raises(InputRefused, match=said):
            run_hang("branch", folder)


def test_every_job_says_its_mistake():
    assert all(job.mistake.endswith(".") for job in JOBS.values())
