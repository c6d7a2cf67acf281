"""The checks of stored notebooks proved by mutation: each alteration of a good notebook must be caught.

The notebook altered is one of the course's own. nbval runs once, on a copy with several cells altered, and
must fail in exactly those cells; everything that nbval does not see must be said by tools/guard.py.
"""

import base64
import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from tools.guard import problems
from tools.notebooks import WIDGET, differences, normalise, to_text
from tools.quiet import quiet_environment

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def is_picture(output):
    return "image/png" in output.get("data", {})


def text_of(output):
    return output.get("text", "") + output.get("data", {}).get("text/plain", "")


@cache
def subject():
    """(name, text) of the smallest notebook with a picture and two text outputs, cut off behind them."""
    found = []
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        if len(picture_cells(code)) >= 1 and len(text_cells(code)) >= 2:
            last = max(code.index(picture_cells(code)[0]), code.index(text_cells(code)[1]))
            notebook.cells = notebook.cells[: notebook.cells.index(code[last]) + 1]
            found.append((last, path.name, to_text(notebook)))
    assert found, "no notebook has a picture and two text outputs"
    return min(found)[1:]


def picture_cells(code):
    return [cell for cell in code if any(is_picture(output) for output in cell.outputs)]


def text_cells(code):
    with_numbers = [c for c in code if len(c.outputs) == 1 and re.search(r"\d", text_of(c.outputs[0]))]
    return [cell for cell in with_numbers if not is_picture(cell.outputs[0])]


def fresh():
    notebook = nbformat.reads(subject()[1], as_version=4)
    return notebook, [cell for cell in notebook.cells if cell.cell_type == "code"]


def next_digit(text):
    """The text with its last digit counted on by one."""
    head, digit, tail = re.fullmatch(r"(.*)(\d)(\D*)", text, re.S).groups()
    return f"{head}{(int(digit) + 1) % 10}{tail}"


def test_nbval_fails_in_exactly_the_altered_cells(tmp_path):
    notebook, code = fresh()
    picture, (first, second) = picture_cells(code)[0], text_cells(code)[:2]
    plotted = next(output for output in picture.outputs if is_picture(output))
    plotted.data["text/plain"] = next_digit(plotted.data["text/plain"])
    first.outputs = []
    output = second.outputs[0]
    if output.output_type == "stream":
        output.text = next_digit(output.text)
    else:
        output.data["text/plain"] = next_digit(output.data["text/plain"])
    copy = tmp_path / subject()[0]
    copy.write_text(to_text(notebook), "utf-8")
    report = tmp_path / "report.xml"
    nbval = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=120", f"--junitxml={report}", str(copy)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-Wdefault", *nbval]
    environment = quiet_environment(tmp_path / "home")
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    cases = ElementTree.parse(report).getroot().iter("testcase")
    names = [case.get("name") for case in cases if case.find("failure") is not None]
    failed = [int(re.search(r"\d+$", name)[0]) for name in names]
    assert failed == sorted(code.index(cell) for cell in (picture, first, second)), run.stdout


def strip_a_count(notebook, code):
    code[0].execution_count = None


def strip_outputs_and_counts(notebook, code):
    for cell in code:
        cell.outputs, cell.execution_count = [], None


def drop_a_picture(notebook, code):
    del picture_cells(code)[0].outputs[0].data["image/png"]


def drop_the_output_of_a_lab(notebook, code):
    picture_cells(code)[0].outputs = []


def shrink_a_picture(notebook, code):
    picture_cells(code)[0].outputs[0].data["image/png"] = png(1, 1)


def blank_a_picture(notebook, code):
    picture_cells(code)[0].outputs[0].data["image/png"] = png(900, 380)


def break_a_picture(notebook, code):
    data = picture_cells(code)[0].outputs[0].data
    data["image/png"] = data["image/png"][:400]


def drop_the_alternative_text(notebook, code):
    picture_cells(code)[0].outputs[0].metadata = nbformat.from_dict({})


def drop_the_readout(notebook, code):
    data = picture_cells(code)[0].outputs[0].data
    data["text/plain"] = data["text/plain"].splitlines()[0]


def keep_a_widget_view(notebook, code):
    picture_cells(code)[0].outputs[0].data[WIDGET] = {"model_id": "1"}


def keep_widget_states(notebook, code):
    notebook.metadata["widgets"] = {}


def keep_time_stamps(notebook, code):
    code[0].metadata["execution"] = {"iopub.status.busy": "2026-11-29T15:00:00Z"}


def add_an_ignore_tag(notebook, code):
    code[0].metadata["tags"] = ["nbval-ignore-output"]


def add_an_ignore_comment(notebook, code):
    code[0].source = "# NBVAL_IGNORE_OUTPUT\n" + code[0].source


def end_in_a_semicolon(notebook, code):
    code[0].source += ";"


def use_an_output_widget(notebook, code):
    code[0].source += "\ndisplay(1)"


def add_a_magic(notebook, code):
    code[0].source = "%matplotlib inline\n" + code[0].source


def print_an_address(notebook, code):
    text_cells(code)[0].outputs = [stream("<object at 0x7f12ab34cd56>\n")]


def print_a_path(notebook, code):
    text_cells(code)[0].outputs = [stream("read /home/someone/log.txt\n")]


def print_a_warning(notebook, code):
    text_cells(code)[0].outputs = [stream("careful\n", "stderr")]


def print_chinese(notebook, code):
    text_cells(code)[0].outputs = [stream("通信\n")]


def lengthen_a_cell(notebook, code):
    code[0].source += "\nx = 1" * 16


def forget_a_random_id(notebook, code):
    code[0].id = "0123abcd"


def png(width, height):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


def stream(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


MUTATIONS = {
    strip_a_count: "its count is None",
    strip_outputs_and_counts: "its count is None",
    drop_a_picture: "stores no picture",
    drop_the_output_of_a_lab: "stores no picture",
    shrink_a_picture: "shows nothing",
    blank_a_picture: "shows nothing",
    break_a_picture: "does not decode",
    drop_the_alternative_text: "no alternative text",
    drop_the_readout: "no readout",
    keep_a_widget_view: "widget view",
    keep_widget_states: "metadata.widgets",
    keep_time_stamps: "not as make notebooks writes it",
    add_an_ignore_tag: "tag 'nbval-ignore-output'",
    add_an_ignore_comment: "the mark 'NBVAL_'",
    end_in_a_semicolon: "ends in ';'",
    use_an_output_widget: "'display('",
    add_a_magic: "not plain Python",
    print_an_address: "address '0x",
    print_a_path: "the path '/home/someone",
    print_a_warning: "an error or a warning",
    print_chinese: "Chinese",
    lengthen_a_cell: "lines; at most",
    forget_a_random_id: "not as make notebooks writes it",
}


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda function: function.__name__)
def test_the_guard_names_each_alteration(mutate, tmp_path):
    notebook, code = fresh()
    copy = tmp_path / subject()[0]
    copy.write_text(to_text(notebook), "utf-8")
    assert problems(copy) == []
    mutate(notebook, code)
    copy.write_text(to_text(notebook), "utf-8")
    assert MUTATIONS[mutate] in "\n".join(problems(copy))


def test_a_comparison_says_which_line_and_which_picture_changed():
    (stored, _), (altered, code) = fresh(), fresh()
    assert differences(stored, altered) == []
    output = picture_cells(code)[0].outputs[0]
    line = output.data["text/plain"].splitlines()[-1]
    output.data["text/plain"] = next_digit(output.data["text/plain"])
    lines = differences(stored, altered)
    assert f"-{line}" in lines and len([text for text in lines if re.match(r"[+-](?![+-])", text)]) == 2
    output.data["text/plain"] = (
        stored.cells[altered.cells.index(picture_cells(code)[0])].outputs[0].data["text/plain"]
    )
    output.data["image/png"] = png(900, 380)
    assert [text.partition(":")[0] for text in differences(stored, altered)] == [
        f"picture of cell {picture_cells(code)[0].id}"
    ]


def test_what_differs_from_run_to_run_is_left_out_and_the_rest_stays():
    notebook, code = fresh()
    for mutate in (strip_a_count, keep_a_widget_view, keep_widget_states, keep_time_stamps):
        mutate(notebook, code)
    assert to_text(normalise(notebook)) == subject()[1]
    code[0].id = "0123abcd"
    named = [cell.id for cell in normalise(notebook).cells]
    assert "0123abcd" not in named and len(set(named)) == len(named)


def test_a_picture_of_another_figure_is_seen_by_check():
    """nbval and the guard cannot know it; ``make notebooks CHECK=1`` compares pictures, in make test too."""
    path = NOTEBOOKS / "02_collectives_and_cost.ipynb"
    stored = nbformat.read(path, as_version=4)
    changed = nbformat.read(path, as_version=4)
    outputs = [output for cell in changed.cells for output in cell.get("outputs", [])]
    shown = [output for output in outputs if is_picture(output)]
    shown[0].data["image/png"] = shown[1].data["image/png"]
    assert differences(stored, stored) == []
    assert any("of its pixels differ" in line for line in differences(changed, stored))


def test_printed_text_is_one_output_however_it_arrived():
    cell = nbformat.v4.new_code_cell("print(1); print(2)", id="two")
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in ("1\n", "2\n")]
    (output,) = normalise(nbformat.v4.new_notebook(cells=[cell])).cells[0].outputs
    assert output.text == "1\n2\n"
