"""What a fresh machine gets: bounds that agree, a wheel with its data, a JupyterLab that keeps to itself."""

import ast
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tools.lab import START, add_chapters, has_screen
from tools.quiet import quiet_environment

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DEPENDENCIES = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = [Requirement(line) for extra in PROJECT["optional-dependencies"].values() for line in extra]
OPTIONAL = {Requirement(line).name for line in PROJECT["optional-dependencies"]["bench"]}
IMPORT_NAMES = {"PIL": "pillow"}


def pins():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    exact = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in exact}


def test_conda_gets_the_same_dependencies_with_the_same_bounds():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))["dependencies"]
    *packages, pip, last = listed
    python, *packages = packages
    assert (pip, last) == ("pip", {"pip": ["-e ."]})
    assert Requirement(python).specifier == Requirement(f"python{PROJECT['requires-python']}").specifier
    bounds = {Requirement(line).name: Requirement(line).specifier for line in packages}
    assert bounds == {requirement.name: requirement.specifier for requirement in DEPENDENCIES}


@pytest.mark.parametrize("requirement", DEPENDENCIES + EXTRAS, ids=lambda requirement: requirement.name)
def test_every_dependency_is_bounded_on_both_sides_and_pinned_within_its_bounds(requirement):
    assert {specifier.operator for specifier in requirement.specifier} == {">=", "<"}
    assert requirement.specifier.contains(pins()[requirement.name])


def test_the_checks_run_with_the_pinned_versions():
    here = {canonicalize_name(found.name): found.version for found in importlib.metadata.distributions()}
    # == also takes a build for one kind of machine: 2.13.0+cpu where 2.13.0 is pinned.
    other = [
        name for name, pin in pins().items() if not SpecifierSet(f"=={pin}").contains(here.get(name, pin))
    ]
    assert other == []
    assert {requirement.name for requirement in DEPENDENCIES + EXTRAS} - OPTIONAL <= set(here)


def test_torch_comes_with_its_extra_alone_and_ci_asks_for_it():
    asked = re.findall(r"tools/environment\.py(.*)", (ROOT / "Makefile").read_text("utf-8"))
    assert asked and all(extras.split() in ([], ["test"]) for extras in asked)
    assert "tools/environment.py bench test\n" in (ROOT / ".ci/run").read_text("utf-8")
    assert pins()["torch"] == "2.13.0"


def test_every_pinned_version_runs_on_the_oldest_python_that_is_promised():
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    needs = {found.name: found.metadata["Requires-Python"] for found in importlib.metadata.distributions()}
    pinned = {
        name: SpecifierSet(need or "") for name, need in needs.items() if canonicalize_name(name) in pins()
    }
    assert [name for name, need in pinned.items() if not need.contains(oldest)] == []


def test_labkit_imports_only_what_it_declares():
    found = set()
    for path in (ROOT / "labkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.split(".")[0])
    outside = {IMPORT_NAMES.get(name, name) for name in found - set(sys.stdlib_module_names) - {"labkit"}}
    assert outside <= {requirement.name for requirement in DEPENDENCIES} | OPTIONAL


def test_a_wheel_works_outside_the_checkout(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("labkit_workbook-*.whl")
    site = tmp_path / "site"
    install = [*pip, "install", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, cwd=tmp_path)
    assert files_below(site / "labkit/data") == files_below(ROOT / "data")
    read = (
        "import labkit, labkit.presets as p; print(labkit.__file__); print(p.data_path('hardware.toml'));"
        "sweeps = [len(labkit.read_sweep(path)) for path in p.sample_sweeps().values()];"
        "print(labkit.cluster('h100').gpus_per_node, sweeps)"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    answer = subprocess.check_output([sys.executable, "-c", read], cwd=tmp_path, env=environment, text=True)
    package, data, figures = answer.splitlines()
    assert Path(package).is_relative_to(site) and Path(data).is_relative_to(site)
    assert re.fullmatch(r"8 \[([1-9], )*[1-9]\]", figures)


def files_below(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_the_readers_copy_is_never_written_over(tmp_path):
    source, target = tmp_path / "notebooks", tmp_path / "my"
    source.mkdir()
    (source / "a.ipynb").write_text("a")
    assert add_chapters(source, target) == ["a.ipynb"]
    (target / "a.ipynb").write_text("answered")
    (source / "a.ipynb").write_text("a, newer")
    (source / "b.ipynb").write_text("b")
    assert add_chapters(source, target) == ["b.ipynb"]
    assert ((target / "a.ipynb").read_text(), (target / "b.ipynb").read_text()) == ("answered", "b")


def test_a_browser_is_opened_only_where_it_would_be_seen(monkeypatch):
    for name in ("CI", "SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert not has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_screen()
    monkeypatch.setenv("SSH_CONNECTION", "there 22 here 22")
    assert not has_screen()


def get(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_make_lab_serves_the_readers_copy_on_loopback_and_ends_on_ctrl_c(tmp_path):
    tree = tmp_path / "a tree with blanks"
    for folder in ("tools", "settings", "notebooks"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "notebooks" / START).touch()
    environment = {**quiet_environment(tmp_path / "home"), "HOME": str(tmp_path / "home"), "CI": "true"}
    command = [sys.executable, "-m", "tools.lab"]
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # As from a terminal: what is started in the background of a script ignores Ctrl-C from birth.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as lab:
        lines = [lab.stdout.readline() for _ in range(4)]
        try:
            address = re.search(rf"http://127\.0\.0\.1:\d+/lab/tree/{START}\?token=\w{{32}}", "".join(lines))[
                0
            ]
            base, token = address.partition("/lab")[0], address.partition("?")[2]
            assert get(address)[0] == 200
            assert get(f"{base}/api/contents")[0] == 403
            contents = json.loads(get(f"{base}/api/contents?{token}")[1])["content"]
            names = [entry["name"] for entry in contents]
            assert sorted(names) == sorted(path.name for path in (tree / "notebooks").glob("*.ipynb"))
            setting = "@jupyterlab/apputils-extension:notification"
            schema = json.loads(get(f"{base}/lab/api/settings/{setting}?{token}")[1])["schema"]["properties"]
            assert schema["fetchNews"]["default"] == "false" and schema["checkForUpdates"]["default"] is False
        finally:
            lab.send_signal(signal.SIGINT)
            try:
                rest = lab.communicate(timeout=30)[0]
            except subprocess.TimeoutExpired:
                lab.kill()
                raise
    assert lab.returncode == 0 and "Traceback" not in rest, "".join(lines) + rest
