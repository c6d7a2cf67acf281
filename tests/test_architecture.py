"""The house rules of the architecture that a program can check."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Lowest floor first; a module imports from its own floor's wing and from floors below, never from above.
FLOORS = [
    {"errors"},
    {"units", "intervals"},
    {"spec"},
    {"presets", "collectives"},
    {"strategies"},
    {"planner"},
    {"practice"},
    {"evidence"},
    {"course"},
    {"show"},
    {"cli"},
    {"__main__"},
]
COMPUTING = {"errors", "units", "intervals", "spec", "collectives", "strategies", "planner", "practice"}
HEAVY = {"matplotlib", "ipywidgets", "IPython", "pandas", "torch"}
OUTSIDE_WORLD = {"pathlib", "os", "io", "time", "datetime", "tempfile", "shutil", "subprocess"}
MODULES = sorted((ROOT / "labkit").rglob("*.py"))


def wing(path):
    return path.relative_to(ROOT / "labkit").with_suffix("").parts[0]


def short(path):
    return str(path.relative_to(ROOT))


COMPUTING_MODULES = [path for path in MODULES if wing(path) in COMPUTING]
each_module = pytest.mark.parametrize("path", MODULES, ids=short)


def floor(name):
    floors = [number for number, names in enumerate(FLOORS) if name in names]
    assert floors, f"labkit.{name} has no floor yet: give it one in FLOORS"
    return floors[0]


def imports(tree):
    """The module of every import in the file, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name labkit in full"
            inside = (
                [f"labkit.{alias.name}" for alias in node.names] if node.module == "labkit" else [node.module]
            )
            yield from inside


def outside_functions(tree):
    """The same file without the bodies of its functions: what runs when it is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
    return tree


def parse(path):
    return ast.parse(path.read_text("utf-8"))


@each_module
def test_imports_run_downward_only(path):
    own = wing(path)
    if own == "__init__":
        return  # names every wing as text, loads none: test_importing_labkit_loads_no_heavy_package
    upward = []
    for name in imports(parse(path)):
        parts = name.split(".")
        if parts[0] == "labkit" and len(parts) > 1 and parts[1] != own and floor(parts[1]) >= floor(own):
            upward.append(name)
    assert upward == []


@pytest.mark.parametrize("path", COMPUTING_MODULES, ids=short)
def test_what_computes_opens_no_file_reads_no_clock_and_draws_nothing(path):
    allowed = {"pandas"} if path.name == "search.py" else set()  # the one that hands back a table
    names = set(imports(parse(path)))
    assert {name.split(".")[0] for name in names} & (HEAVY | OUTSIDE_WORLD) - allowed == set()
    assert [name for name in names if name.startswith("labkit.presets")] == []
    calls = [node.func for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    allowed = {"open"} if path.name == "timeline.py" else set()  # to_chrome(path), the one that writes a file
    called = {call.id for call in calls if isinstance(call, ast.Name)}
    assert called & {"open", "print", "input"} - allowed == set()


@pytest.mark.parametrize("path", [path for path in MODULES if wing(path) != "show"], ids=short)
def test_heavy_packages_are_imported_on_first_use_outside_show(path):
    names = imports(outside_functions(parse(path)))
    assert [name for name in names if name.split(".")[0] in HEAVY] == []


def test_importing_labkit_loads_no_heavy_package():
    check = f"import sys, labkit; print(sorted({HEAVY!r} & set(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "[]"


def test_every_public_name_of_labkit_is_there():
    import labkit

    assert [name for name in labkit.__all__ if not hasattr(labkit, name)] == []


@each_module
def test_modules_stay_short(path):
    assert len(path.read_text("utf-8").splitlines()) <= 320


def test_nothing_says_pip_install_labkit():
    texts = [path for pattern in ("*.md", "*.toml", "*.yml", "Makefile") for path in ROOT.glob(pattern)]
    texts += [*MODULES, *(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "tools").glob("*.py")]
    pattern = re.compile(r"pip3? install (-U |--upgrade )?[\"']?labkit\b(?!-workbook)")
    assert [path.name for path in texts if pattern.search(path.read_text("utf-8"))] == []
