"""What nbval cannot see in a stored notebook, as rules: ``problems(path)`` lists every breach.

nbval compares text only and only in cells that carry a count, ignores pictures, and obeys ignore marks. So a
stripped count, a dropped picture or a mark would let a notebook pass uncompared; the rules say so.
"""

import ast
import base64
import io
import re
from pathlib import Path

import nbformat
from PIL import Image

from tools.notebooks import WIDGET, normalise, to_text

ALLOWED_TAGS: frozenset[str] = frozenset()
LONGEST_CELL = 16  # lines; about ten is the aim
LARGEST_FILE = 500_000  # bytes
NARROWEST_PICTURE = 300  # pixels
HAN = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")

IN_SOURCE = {
    r"\b(interact\w*|Output|clear_output|display)\s*\(": "nbval cannot compare {0} faithfully",
    r"NBVAL_|PYTEST_VALIDATE": "the mark {0} would keep nbval from comparing",
    r"\b(time\.\w+|perf_counter|monotonic|datetime\.now)\s*\(|\bimport time\b": "{0} differs in every run",
    r"\bimport\s+\*": "{0} hides where names come from",
    r"filterwarnings": "{0} hides warnings",
}
IN_OUTPUT = {
    r"0x[0-9a-fA-F]{6,}": "the address {0} differs in every run",
    r"(?<![\w/.:])/(home|root|tmp|usr|var|opt|work|Users)/[\w.-]+|\b[A-Z]:\\\w+": "the path {0} is local",
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d": "the time {0} differs in every run",
    r"Traceback \(most recent call last\)|\bWarning: ": "{0} does not belong into a stored output",
}
ALLOWED_OUTPUT = {"text/plain", "text/html", "text/markdown", "image/png"}


def problems(path: Path) -> list[str]:
    """Every breach of the rules in one stored notebook, each with the cell it is in."""
    text = path.read_text("utf-8")
    notebook = nbformat.reads(text, as_version=4)
    found = []
    if len(text.encode()) > LARGEST_FILE:
        found.append(f"{path.name} has {len(text.encode())} bytes; at most {LARGEST_FILE} are allowed")
    if "widgets" in notebook.metadata:
        found.append("metadata.widgets stores widget states; make notebooks removes them")
    labs: set[str] = set()
    count = 0
    for cell in notebook.cells:
        breaches = [
            f"the tag {tag!r} is not allowed"
            for tag in cell.metadata.get("tags", [])
            if tag not in ALLOWED_TAGS
        ]
        if cell.cell_type == "code":
            count += 1
            if cell.execution_count != count:
                breaches.append(
                    f"its count is {cell.execution_count} and must be {count}: nbval skips cells without one"
                )
            breaches += (
                in_source(cell.source) + in_outputs(cell) + in_pictures(cell, shows_lab(cell.source, labs))
            )
        found += [f"cell {cell.id}: {breach}" for breach in breaches]
    if not found and to_text(normalise(notebook)) != text:
        found.append(f"{path.name} is not as make notebooks writes it: ids, metadata or layout differ")
    return found


def in_source(source: str) -> list[str]:
    """Breaches in the text of a code cell."""
    breaches = matches(IN_SOURCE, source)
    lines = source.splitlines()
    if len(lines) > LONGEST_CELL:
        breaches.append(
            f"it has {len(lines)} lines; at most {LONGEST_CELL} are allowed, the rest belongs in labkit"
        )
    if any(line.split("#")[0].rstrip().endswith(";") for line in lines):
        breaches.append("a line ends in ';', which hides the output in JupyterLab and not in nbval")
    if HAN.search(source):
        breaches.append("Chinese stands in Markdown and HTML only")
    try:
        ast.parse(source)
    except SyntaxError as error:
        breaches.append(f"it is not plain Python (no % or ! commands): {error.msg}")
    return breaches


def in_outputs(cell) -> list[str]:
    """Breaches in the stored text of a code cell's outputs."""
    breaches = []
    for output in cell.outputs:
        if output.output_type == "error" or output.get("name") == "stderr":
            breaches.append("it stores an error or a warning")
        data = output.get("data", {})
        if WIDGET in data:
            breaches.append("it stores a widget view, which shows 'model not found' after reopening")
        if set(data) - {WIDGET} - ALLOWED_OUTPUT:
            breaches.append(
                f"it stores {', '.join(sorted(data))}; allowed are {', '.join(sorted(ALLOWED_OUTPUT))}"
            )
        plain = output.get("text", "") + data.get("text/plain", "")
        if HAN.search(plain) and "text/markdown" not in data:  # the plain twin of a table says the same
            breaches.append("Chinese stands in Markdown and HTML only")
        breaches += matches(IN_OUTPUT, plain + data.get("text/html", "") + data.get("text/markdown", ""))
    return breaches


def in_pictures(cell, lab_expected: bool) -> list[str]:
    """Breaches in a cell's pictures: a lab has one, it decodes, and its numbers stand below the setting."""
    stored = [output for output in cell.outputs if "image/png" in output.get("data", {})]
    breaches = ["it shows a lab and stores no picture"] if lab_expected and not stored else []
    for output in stored:
        try:
            with Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))) as image:
                image.load()
                colours = image.convert("RGB").getcolors(2)
                if image.width < NARROWEST_PICTURE or (colours is not None and len(colours) < 2):
                    breaches.append(f"its picture of {image.width} x {image.height} pixels shows nothing")
        except (OSError, ValueError, SyntaxError) as error:
            breaches.append(f"its picture does not decode: {error}")
        if not output.metadata.get("image/png", {}).get("alt", "").strip():
            breaches.append("its picture has no alternative text in metadata['image/png']['alt']")
        readout = output.data.get("text/plain", "").partition("\n")[2]  # the first line is the setting
        if not re.search(r"\d", readout):
            breaches.append(
                "its picture has no readout with numbers below the setting, so nbval compares nothing of it"
            )
    return breaches


def shows_lab(source: str, labs: set[str]) -> bool:
    """Whether the last expression of a cell is a lab; ``labs`` collects the names given to labs before."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return False
    for statement in statements:
        if isinstance(statement, ast.Assign) and is_lab(statement.value, labs):
            labs.update(target.id for target in statement.targets if isinstance(target, ast.Name))
    return bool(statements) and isinstance(statements[-1], ast.Expr) and is_lab(statements[-1].value, labs)


def is_lab(node: ast.expr, labs: set[str]) -> bool:
    """``live(...)``, ``still(...)``, a name that holds one, or ``NAME.set(...)``, which returns the lab."""
    if isinstance(node, ast.Name):
        return node.id in labs
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "set" and isinstance(node.func, ast.Attribute):
        return is_lab(node.func.value, labs)
    return name in ("live", "still")


def matches(rules: dict[str, str], text: str) -> list[str]:
    """The messages of the rules whose pattern occurs in the text."""
    found = [(message, re.search(pattern, text)) for pattern, message in rules.items()]
    return [message.format(repr(match[0])) for message, match in found if match]


def anchors(notebook: nbformat.NotebookNode) -> set[str]:
    """What a link may name after '#': the headings, with hyphens for blanks, as JupyterLab makes them."""
    headings = [
        heading
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for heading in re.findall(r"^#+ +(.+?) *$", cell.source, re.M)
    ]
    return {re.sub(r"[*`]", "", heading).replace(" ", "-") for heading in headings}


def links(notebook: nbformat.NotebookNode) -> list[str]:
    """The targets of all links and pictures in Markdown cells, as written; code and the web left out."""
    targets = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"```.*?```|`[^`\n]*`", "", cell.source, flags=re.S)
            targets += re.findall(r"\]\(<?([^)\s>]+)", prose)
            targets += re.findall(r"(?:href|src)=[\"']([^\"']+)", prose)
    return [target for target in targets if not target.startswith(("https://", "http://"))]
