"""Key press to new pixels: how long a live lab takes to answer a slider, in JupyterLab in Chromium.

``python benchmarks/bench_slider.py [presses]`` prints median and 95th percentile for a lab whose axes stay
fixed and for the same lab drawn anew each time, as when limits move. Targets on 2 cores: p95 80 and 160 ms.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
import labbrowser  # noqa: E402

CELLS = (
    "from labkit.show import Lab, byte_size, linear, live\nfrom labkit.show.labs.alpha_beta import *",
    'live(alpha_beta, n=linear("ranks N", 2, 256, 2))',
    """def redraw(artists, result):
    update(artists, result)


live(Lab("moving", compute, build, redraw, readout, alt), n=linear("ranks N", 2, 256, 2))""",
)
# From the time stamp of the key event to the first frame that can show the decoded picture.
MEASURE = """([box]) => { const img = box.querySelector('img.labkit-picture');
  window.__times = []; let pressed = 0;
  box.addEventListener('keydown', e => { pressed = e.timeStamp; }, true);
  new MutationObserver(() => { const from = pressed; img.decode().then(() =>
    requestAnimationFrame(() => window.__times.push(performance.now() - from))); })
  .observe(img, {attributes: true, attributeFilter: ['src']}); }"""


def measure(presses: int = 44) -> dict[str, list[float]]:
    """Milliseconds from key press to new pixels, per press, for both ways of drawing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        path = folder / "bench.ipynb"
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
        with labbrowser.jupyterlab(folder) as address, labbrowser.browser(folder, height=1800) as context:
            notebook = labbrowser.NotebookPage(context, address, folder / "work", path)
            notebook.run_all()
            times = {}
            for way, lab in zip(("axes fixed", "axes move"), notebook.labs(), strict=True):
                lab.press("ranks N", times=3)
                notebook.page.evaluate(MEASURE, [lab.box.element_handle()])
                lab.focus("ranks N")
                for done in range(presses):
                    notebook.page.keyboard.press("ArrowRight")
                    notebook.page.wait_for_function(f"window.__times.length > {done}", timeout=10_000)
                    notebook.page.wait_for_timeout(60)
                times[way] = notebook.page.evaluate("window.__times")
            notebook.close()
    return times


def p95(times: list[float]) -> float:
    """The value that 95 % of the times do not exceed."""
    return sorted(times)[max(0, -(-95 * len(times) // 100) - 1)]


def main() -> None:
    """Prints the two rows."""
    if labbrowser.chromium() is None:
        print("slider: left out, no Chromium here")
        return
    targets = {"axes fixed": 80, "axes move": 160}
    for way, times in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 44).items():
        median = statistics.median(times)
        print(f"slider, {way}: median {median:.0f} ms, p95 {p95(times):.0f} ms, target p95 {targets[way]} ms")


if __name__ == "__main__":
    main()
