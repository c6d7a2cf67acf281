"""One JupyterLab and one Chromium for all browser tests; skipped where there is no Chromium."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import labbrowser


@pytest.fixture(scope="session")
def lab_session(tmp_path_factory):
    """(browser context, address, served folder), once for the whole run."""
    if labbrowser.chromium() is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("no Chromium (apt-get install chromium) or no Playwright: browser tests are left out")
    folder = tmp_path_factory.mktemp("jupyterlab")
    with labbrowser.jupyterlab(folder) as address, labbrowser.browser(folder) as context:
        yield context, address, folder / "work"


@pytest.fixture
def open_notebook(lab_session):
    """``open_notebook(path)`` gives a NotebookPage on a copy of that notebook; closed after the test."""
    context, address, work = lab_session
    opened = []

    def open_copy(path) -> labbrowser.NotebookPage:
        opened.append(labbrowser.NotebookPage(context, address, work, Path(path)))
        return opened[-1]

    yield open_copy
    for notebook in opened:
        notebook.close()
