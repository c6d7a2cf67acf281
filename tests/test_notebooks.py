"""The guard over stored notebooks: what nbval does not see (tools/guard.py), and links between notebooks."""

import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

from tools.guard import anchors, links, problems

ROOT = Path(__file__).resolve().parent.parent
START = "00_start_here.ipynb"
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])


def read(path):
    return nbformat.read(path, as_version=4)


def test_there_are_notebooks_and_a_start_page():
    assert START in [path.name for path in PATHS]


@each_notebook
def test_the_stored_notebook_keeps_the_rules(path):
    assert problems(path) == []


@each_notebook
def test_links_lead_to_notebooks_and_headings_that_exist(path):
    broken = []
    for target in links(read(path)):
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        # The reader's copy holds the notebooks and nothing else, so a link leads to one of them.
        if file not in PATHS or (anchor and unquote(anchor) not in anchors(read(file))):
            broken.append(target)
    assert broken == []


@each_notebook
def test_pictures_come_from_the_notebook_itself(path):
    prose = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    assert re.findall(r"!\[[^\]]*\]\(https?://\S+|<img[^>]+src=[\"']https?://\S+", prose) == []


@pytest.mark.parametrize("page", ["README.md", f"notebooks/{START}"])
def test_every_notebook_is_listed(page):
    text = (ROOT / page).read_text("utf-8")
    assert [path.name for path in PATHS if path.name not in text and not page.endswith(path.name)] == []
