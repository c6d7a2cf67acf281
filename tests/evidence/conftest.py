"""What the tests of the run log share."""

import tempfile
from pathlib import Path

import pytest

from labkit.evidence.runs import RunLog
from tests.evidence.run_cases import quick_folder


@pytest.fixture
def quick_path():
    """An empty folder, in memory where there is room for it."""
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        yield Path(folder)


@pytest.fixture
def run_log(quick_path):
    """An empty run log that does not wait long for its lock."""
    return RunLog(quick_path / "runs.sqlite", wait=0.2)
