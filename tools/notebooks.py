"""Runs every notebook and stores what it shows: ``python -m tools.notebooks [--check] [NOTEBOOK ...]``.

This is the only way in which outputs get into the notebooks. What would differ from run to run (widget ids,
time stamps, the Python version) is left out, so that a second run changes no byte. ``--check`` writes nothing
and prints how the stored outputs differ from fresh ones; pictures count as equal while less than 0.1 % of
their pixels differ visibly, since machines differ by a shade.
"""

import argparse
import base64
import difflib
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import numpy as np
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image

from tools.quiet import quiet_environment

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
CLAIMS = ROOT / "data" / "guide_claims.csv"
WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
RANDOM_ID = re.compile(r"[0-9a-f]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs, run in its own folder with an empty LABKIT_HOME."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            resources={"metadata": {"path": str(path.parent)}},
        )
        client.execute(env=quiet_environment(home), stderr=subprocess.DEVNULL)  # ipykernel logs there
    return notebook


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The same notebook without what differs from run to run; cells keep readable ids and tags."""
    notebook = nbformat.from_dict({**notebook, "nbformat": 4, "nbformat_minor": 5, "metadata": METADATA})
    count, section, taken = 0, "start", {cell.id for cell in notebook.cells}
    for cell in notebook.cells:
        section = _heading(cell) or section
        if RANDOM_ID.fullmatch(cell.id):
            cell.id = _free_id(section, taken)
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        cell.outputs = _joined(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
            if "data" in output:
                output.data.pop(WIDGET, None)
    nbformat.validate(notebook)
    return notebook


def _joined(outputs: list) -> list:
    """Printed text that follows printed text as one output; into how many it falls is a matter of timing."""
    joined = []
    for output in outputs:
        last = joined[-1] if joined else None
        if output.output_type == "stream" and last and last.get("name") == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _heading(cell) -> str | None:
    """A short name from the first heading of a Markdown cell, fit for ids."""
    match = re.search(r"^#+ (.+)$", cell.source, re.M) if cell.cell_type == "markdown" else None
    return "-".join(re.findall(r"[a-z0-9]+", match[1].lower()))[:40].strip("-") if match else None


def _free_id(section: str, taken: set[str]) -> str:
    number = next(n for n in range(1, 10_000) if f"{section}-{n}" not in taken)
    taken.add(f"{section}-{number}")
    return f"{section}-{number}"


def to_text(notebook: nbformat.NotebookNode) -> str:
    """The bytes of the stored file."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def readable(notebook: nbformat.NotebookNode) -> list[str]:
    """Every cell and output as lines that people read; of a picture, its size and description."""
    lines = []
    for cell in notebook.cells:
        lines += [f"--- {cell.cell_type} {cell.id}", *cell.source.splitlines()]
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                lines += [f"{output.name}:", *output.text.splitlines()]
            elif output.output_type == "error":
                lines += ["error:", f"{output.ename}: {output.evalue}"]
            for mime, value in sorted(output.get("data", {}).items()):
                if mime.startswith("image/"):
                    lines.append(f"{mime} {json.dumps(output.metadata.get(mime, {}), sort_keys=True)}")
                else:
                    lines += [f"{mime}:", *str(value).splitlines()]
    return lines


def pictures(notebook: nbformat.NotebookNode) -> list[tuple[str, bytes]]:
    """(cell id, PNG bytes) of every stored picture, in order."""
    return [
        (cell.id, base64.b64decode(output.data["image/png"]))
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def visibly_different(first: bytes, second: bytes) -> float:
    """The share of pixels that differ by more than 40 of 255 in a colour; 1 for pictures of unequal size."""
    a, b = (np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=int) for data in (first, second))
    return float((np.abs(a - b).max(axis=-1) > 40).mean()) if a.shape == b.shape else 1.0


def differences(stored: nbformat.NotebookNode, fresh: nbformat.NotebookNode) -> list[str]:
    """How a stored notebook differs from a fresh one, in lines; none when a reader would see the same."""
    lines = list(difflib.unified_diff(readable(stored), readable(fresh), "stored", "fresh", n=2, lineterm=""))
    for (cell, old), (_, new) in zip(pictures(stored), pictures(fresh), strict=False):
        if old != new and (share := visibly_different(old, new)) > 0.001:
            lines.append(f"picture of cell {cell}: {share:.1%} of its pixels differ")
    if not lines and _without_pictures(stored) != _without_pictures(fresh):
        lines.append("the stored file carries metadata, widget views or ids that make notebooks would remove")
    return lines


def _without_pictures(notebook: nbformat.NotebookNode) -> str:
    return re.sub(r'("image/png": )"[^"]*"', r"\1null", to_text(notebook))


def write_or_check_claims(check: bool) -> list[str]:
    """data/guide_claims.csv from labkit.course.claims; the lines of a difference when only checking."""
    from labkit.course import claims

    if not check:
        claims.write(CLAIMS)
        return []
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder, CLAIMS.name)
        claims.write(fresh)
        old, new = ((p.read_text("utf-8").splitlines() if p.exists() else []) for p in (CLAIMS, fresh))
    return list(difflib.unified_diff(old, new, "stored", "fresh", n=0, lineterm=""))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make notebooks", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    parser.add_argument("notebook", nargs="*", type=Path, help="default: all, and the table of claims")
    arguments = parser.parse_args(argv)
    paths = [path.resolve() for path in arguments.notebook] or sorted(NOTEBOOKS.glob("*.ipynb"))
    failed = False
    for path in paths:
        stored = path.read_text("utf-8")
        try:
            fresh = normalise(execute(path))
        except CellExecutionError as error:
            print(f"{path.name}: stopped\n{error}")
            failed = True
            continue
        if arguments.check:
            lines = differences(nbformat.reads(stored, as_version=4), fresh)
            failed |= bool(lines)
        else:
            lines = []
            path.write_text(to_text(fresh), "utf-8")
        changed = (
            "differs" if lines else "unchanged" if arguments.check or to_text(fresh) == stored else "written"
        )
        print("\n".join([f"{path.name}: {changed}", *lines]), flush=True)
    if not arguments.notebook:
        lines = write_or_check_claims(arguments.check)
        failed |= bool(lines)
        print("\n".join([f"{CLAIMS.name}: {'differs' if lines else 'done'}", *lines]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
