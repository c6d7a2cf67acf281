"""Labels, ticks, PNG writing and remembered words."""

import io
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image

from labkit.errors import InputRefused
from labkit.show import png, theme, ticks
from labkit.show.labels import EndLabels, beside, spread
from labkit.show.words import Canvas, Renderer


@given(st.lists(st.floats(-50, 150), max_size=9), st.floats(1, 10))
def test_spread_keeps_apart_inside_and_in_order(wanted, apart):
    got = spread(wanted, apart, 0, 100)
    assert all(-1e-9 <= y <= 100 + 1e-9 for y in got)
    ordered = sorted(got)
    assert all(b - a >= apart - 1e-6 for a, b in itertools.pairwise(ordered))
    assert [wanted[i] for i in np.argsort(got)] == sorted(wanted)


def test_spread_moves_no_further_than_needed():
    assert spread([20, 80], 10, 0, 100) == [20, 80]
    assert spread([50, 50], 10, 0, 100) == [45, 55]
    assert spread([0, 0, 99], 10, 0, 100) == [0, 10, 99]
    assert spread([5] * 21, 10, 0, 100) == pytest.approx(np.arange(21) * 5)


def labelled(ends, right=0.8):
    with theme.style():
        figure = Figure(figsize=(6, 3), dpi=100)
        canvas = Canvas(figure)
        ax = theme.axes(figure, right=right)
        ax.set(xlim=(0, 1), ylim=(0, 1))
        lines = [ax.plot([0, 0.5, 1], [0.5, 0.5, end], label=f"line {i}")[0] for i, end in enumerate(ends)]
        labels = EndLabels(ax, lines)
        labels.place()
        canvas.draw()
    return figure, ax, lines, labels


def test_end_labels_never_touch_each_other_and_stay_in_the_figure():
    figure, ax, lines, labels = labelled([0.5, 0.51, 0.5, 0.02, 0.99, 7.0])
    boxes = [text.get_window_extent() for text in labels.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(box.x0 >= ax.bbox.x1 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(ax.bbox.y0 <= (box.y0 + box.y1) / 2 <= ax.bbox.y1 for box in boxes)
    assert [text.get_color() for text in labels.texts] == [line.get_color() for line in lines]


def test_end_labels_follow_their_lines_and_vanish_with_them():
    _, ax, lines, labels = labelled([0.2, 0.8])
    low, high = (text.get_position()[1] for text in labels.texts)
    assert low < high
    lines[0].set_ydata([0.5, 0.5, 0.95])
    lines[1].set_ydata([0.5, 0.1, np.nan])
    texts = labels.place()
    assert texts[0].get_position()[1] > texts[1].get_position()[1]
    assert texts[1].get_position()[0] < ax.transData.transform((0.6, 0))[0]  # the line ends in the middle now
    lines[1].set_visible(False)
    lines[0].set_data([], [])
    assert [text.get_visible() for text in labels.place()] == [False, False]


@pytest.mark.parametrize("point", list(itertools.product([0, 0.3, 0.6, 1], repeat=2)))
def test_a_text_beside_a_point_stays_inside_the_axes(point):
    with theme.style():
        figure = Figure(figsize=(6, 3), dpi=100)
        canvas = Canvas(figure)
        ax = theme.axes(figure)
        ax.set(xlim=(0, 1), ylim=(0, 1))
        text = beside(ax.text(0, 0, "a knee at 64 KiB"), *point)
        canvas.draw()
    box = text.get_window_extent()
    assert ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1 and ax.bbox.y0 <= box.y0 and box.y1 <= ax.bbox.y1


@pytest.mark.parametrize(
    ("kind", "log", "limits", "words"),
    [
        ("size", 2, (1024, 2**30), ["1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"]),
        ("time", 10, (1e-6, 1), ["1 µs", "1 ms", "1 s"]),
        ("rate", None, (0, 50e9), ["0 B/s", "10 GB/s", "20 GB/s", "30 GB/s", "40 GB/s", "50 GB/s"]),
        ("share", None, (0, 1), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        ("number", 2, (2, 64), ["2", "4", "8", "16", "32", "64"]),
        ("number", None, (0, 20000), ["0", "5,000", "10,000", "15,000", "20,000"]),
        ("bytes", None, (0, 100e9), ["0 B", "20 GB", "40 GB", "60 GB", "80 GB", "100 GB"]),
    ],
)
def test_axes_read_in_units_with_few_ticks(kind, log, limits, words):
    with theme.style():
        figure = Figure(figsize=(6, 3), dpi=100)
        canvas = Canvas(figure)
        ax = theme.axes(figure)
        ticks.scale(ax.xaxis, kind, log=log)
        ax.set_xlim(*limits)
        canvas.draw()
    low, high = limits
    shown = [label.get_text() for label in ax.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert [word for word in words if word not in shown] == [] and len(shown) <= 8
    assert len(ax.xaxis.get_minorticklocs()) == 0


def test_an_unknown_kind_of_axis_is_refused():
    with pytest.raises(InputRefused, match="no kind of axis"):
        ticks.scale(Figure().add_subplot().xaxis, "weight")


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(4))))
def test_fast_png_is_lossless(pixels):
    assert (np.asarray(Image.open(io.BytesIO(png.fast(pixels))).convert("RGBA")) == pixels).all()


def test_a_small_png_keeps_the_themes_colours_and_comes_near_all_others():
    shades = np.linspace(0, 255, 300).astype(np.uint8)
    pixels = np.full((60, 300, 4), 255, np.uint8)
    pixels[:30, :, :3] = np.stack([shades, shades[::-1], 0 * shades], -1)  # far more than a palette holds
    colours = [
        tuple(int(theme.COLOURS[name][i : i + 2], 16) for i in (1, 3, 5)) for name in ("expert", "tensor")
    ]
    for row, colour in zip((40, 50), colours, strict=True):
        pixels[row, 100:150, :3] = colour
    seen = np.asarray(Image.open(io.BytesIO(png.small(pixels))).convert("RGB")).astype(int)
    assert [tuple(seen[row, 120]) for row in (40, 50)] == colours
    assert (seen[59] == 255).all() and np.abs(seen - pixels[..., :3]).max() <= 16


@pytest.mark.parametrize("angle", [0, 90, 30])
def test_remembered_words_look_like_matplotlibs_own(angle):
    drawn = []
    for kind in (FigureCanvasAgg, Canvas, Canvas):
        with theme.style():
            figure = Figure(figsize=(3, 3), dpi=144)
            figure.text(
                100 / 432, 100 / 432, "Tygj 64 KiB", rotation=angle, va="baseline", rotation_mode="anchor"
            )
            figure.text(0.5, 0.9, r"$\alpha$ and $2^{10}$", color="red")
            canvas = kind(figure)
            canvas.draw()
            drawn.append(np.asarray(canvas.buffer_rgba())[:, :, :3].astype(int))
    assert (drawn[0] < 128).any() and np.abs(drawn[0] - drawn[1]).max() <= 2
    assert (drawn[1] == drawn[2]).all()


@pytest.mark.parametrize("words", ["1196", "(73.6)", "pp 16: 164 GB", "8,192", "94.4 %", "12 µs", "BG 7"])
@pytest.mark.parametrize("look", [{"size": 11}, {"size": 9.25}, {"size": 12, "weight": "bold"}])
def test_a_number_put_together_from_letters_is_matplotlibs_own(words, look):
    prop, seen, sizes = FontProperties(**look), [], []
    for kind in (RendererAgg, Renderer, Renderer):
        renderer = kind(300, 60, 144)
        renderer.draw_text(renderer.new_gc(), 20, 40, words, prop, 0)
        seen.append(np.array(renderer.buffer_rgba()).astype(int))
        sizes.append(renderer.get_text_width_height_descent(words, prop, False))
    assert seen[0].any() and abs(seen[0] - seen[1]).max() <= 4 and (seen[1] == seen[2]).all()
    assert sizes[0] == sizes[1] == sizes[2]
