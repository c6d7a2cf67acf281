"""Every check, one part after the other: ``python -m tools.check``.

All parts run even when one fails. At the end stand the parts with their seconds and one plain line that
counts everything: tests, notebook cells and the two answers of ruff.
"""

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tools.quiet import quiet_environment

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ["pytest", "-q"]
# Warnings are errors in our own tests (pyproject.toml), not where Jupyter's own parts run. The cells of
# a notebook share one kernel, so they stay on one worker (loadscope).
NBVAL = ["-n2", "--dist=loadscope", "-Wdefault", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=120"]
PARTS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "tests and doctests": [*PYTEST, "-n2", "--doctest-modules", "labkit", "tests", "--ignore=tests/browser"],
    "notebooks (nbval)": [*PYTEST, *NBVAL, "notebooks"],
    "stored outputs": ["tools.notebooks", "--check"],
    "browser": [*PYTEST, "-rs", "-Wdefault", "tests/browser"],
}


def counts(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped of a JUnit report; a run that left none has failed."""
    if not report.exists():
        return 0, 1, 0
    suites = ElementTree.parse(report).getroot().findall("testsuite")
    total, failed, errors, skipped = (
        sum(int(suite.get(key)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    return total - failed - errors - skipped, failed + errors, skipped


def run(name: str, command: list[str], environment: dict[str, str], folder: Path) -> tuple[int, int, int]:
    """Runs one part and counts it; an exit code that the counts do not explain is one more failure."""
    print(f"\n== {name}", flush=True)
    report = folder / f"{name.replace(' ', '-')}.xml"
    is_pytest = command[0] == "pytest"
    arguments = [*command, f"--junitxml={report}"] if is_pytest else command
    code = subprocess.call([sys.executable, "-m", *arguments], cwd=ROOT, env=environment)
    if not is_pytest:
        return (0, 1, 0) if code else (1, 0, 0)
    passed, failed, skipped = counts(report)
    return passed, failed or int(code != 0), skipped


def main() -> int:
    """Runs all parts; 0 only when nothing failed."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        environment = quiet_environment(folder)
        for name, command in PARTS.items():
            start = time.monotonic()
            rows.append((name, *run(name, command, environment, Path(folder)), time.monotonic() - start))
    print(f"\n{'part':20} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for name, passed, failed, skipped, seconds in rows:
        print(f"{name:20} {passed:7} {failed:7} {skipped:8} {seconds:8.1f}")
    passed, failed, skipped = (sum(row[column] for row in rows) for column in (1, 2, 3))
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
