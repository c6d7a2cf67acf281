"""Key press to new pixels: how long a live lab takes to answer a slider, in JupyterLab in Chromium.

``python benchmarks/bench_slider.py [presses]`` prints median and 95th percentile for a lab whose axes stay
fixed, for the same lab drawn anew each time, as when limits move, and for an empty lab: one line and no
computation. The empty lab is the floor of the machine and the browser, so that a slow machine can be told
from a slow lab; it has no target. Exit status 1: a target is missed.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]
import labbrowser  # noqa: E402

from labkit.units import format_time  # noqa: E402

CELLS = (
    "from labkit.show import Lab, byte_size, linear, live\nfrom labkit.show.labs.alpha_beta import *",
    'live(alpha_beta, n=linear("ranks N", 2, 256, 2))',
    """def redraw(artists, result):
    update(artists, result)


live(Lab("moving", compute, build, redraw, readout, alt), n=linear("ranks N", 2, 256, 2))""",
    """def one_line(figure):
    axes = figure.add_subplot(xlim=(0, 1), ylim=(0, 256))
    return axes.plot([0, 1], [0, 0])[0]


def lift(line, n):
    line.set_ydata([n, n])
    return [line]


empty = Lab("empty", lambda n: n, one_line, lift, lambda n: [f"n = {n}"], "one line")
live(empty, n=linear("ranks N", 2, 256, 2))""",
)
TARGETS = {"axes fixed": 0.080, "axes move": 0.160, "empty lab": None}  # seconds, p95, on two cores
# From the time stamp of the key event to the first frame that can show the decoded picture.
MEASURE = """([box]) => { const img = box.querySelector('img.labkit-picture');
  window.__times = []; let pressed = 0;
  box.addEventListener('keydown', e => { pressed = e.timeStamp; }, true);
  new MutationObserver(() => { const from = pressed; img.decode().then(() =>
    requestAnimationFrame(() => window.__times.push(performance.now() - from))); })
  .observe(img, {attributes: true, attributeFilter: ['src']}); }"""


def measure(presses: int = 44) -> dict[str, list[float]]:
    """Seconds from key press to new pixels, per press, for each lab of ``TARGETS``."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        path = folder / "bench.ipynb"
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
        with labbrowser.jupyterlab(folder) as address, labbrowser.browser(folder, height=2600) as context:
            notebook = labbrowser.NotebookPage(context, address, folder / "work", path)
            notebook.run_all()
            times = {}
            for way, lab in zip(TARGETS, notebook.labs(), strict=True):
                lab.press("ranks N", times=3)
                notebook.page.evaluate(MEASURE, [lab.box.element_handle()])
                lab.focus("ranks N")
                for done in range(presses):
                    notebook.page.keyboard.press("ArrowRight")
                    notebook.page.wait_for_function(f"window.__times.length > {done}", timeout=10_000)
                    notebook.page.wait_for_timeout(60)
                times[way] = [taken / 1e3 for taken in notebook.page.evaluate("window.__times")]
            notebook.close()
    return times


def p95(times: list[float]) -> float:
    """The value that 95 % of the times do not exceed."""
    return sorted(times)[max(0, -(-95 * len(times) // 100) - 1)]


def main() -> int:
    """Prints a row for each lab; 1 when a target is missed."""
    if labbrowser.chromium() is None:
        print("slider: left out, no Chromium here")
        return 0
    missed = False
    for way, times in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 44).items():
        target, taken = TARGETS[way], p95(times)
        says = "no target" if target is None else f"target p95 {format_time(target)}"
        slow = target is not None and taken > target
        missed |= slow
        figures = f"median {format_time(statistics.median(times))}, p95 {format_time(taken)}"
        print(f"slider, {way}: {figures}, {says}{'  missed' if slow else ''}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
