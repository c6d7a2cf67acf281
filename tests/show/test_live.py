"""A live lab without a browser: widgets in, picture, text and description out."""

import ast
import base64
import io
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from labkit.errors import InputRefused
from labkit.show import byte_size, choice, linear, live, still, toggle

VIEW = "application/vnd.jupyter.widget-view+json"


def shown(lab, **more):
    return live(
        lab,
        far=toggle("ten times taller", False),
        way=choice("direction", ["up", "down"], "up"),
        size=byte_size("message size", 1024, 65536, 1024),
        n=linear("ranks N", 1, 64, 8),
        **more,
    )


def png(view):
    return view._page.image.value


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def test_controls_stand_in_the_fixed_order(lab):
    grid = shown(lab)._page.box.children[1]
    assert [w.description for w in grid.children] == [
        "ranks N",
        "message size",
        "direction",
        "ten times taller",
    ]


def test_a_moved_widget_moves_the_line_the_picture_and_the_text_and_back_again(lab):
    view = shown(lab)
    first, text = png(view), repr(view)
    view._page._widgets["n"].value = 32
    assert view.picture.artists.line.get_ydata()[-1] == 32
    assert view.values == {"n": 32, "size": 1024, "way": "up", "far": False}
    assert view.facts == ["n = 32, size = 1024", "y ends at 32 and starts at 0"]
    assert (np.abs(pixels(first) - pixels(png(view))).max(axis=2) > 100).sum() > 200
    assert (
        "y ends at 32" in view._page.readout.value and "lk.still(labs.toy, n=32" in view._page.readout.value
    )
    view.set(n=8)
    assert png(view) == first and repr(view) == text


def test_pictures_do_not_depend_on_the_way_there(lab):
    view = shown(lab)
    view.set(n=3, far=True, way="down").set(far=False).set(n=40, way="up")
    assert png(view) == png(shown(lab).set(n=40))
    tall = shown(lab).set(far=True)
    assert png(view.set(n=8, far=True)) == png(tall)


def test_sliders_of_several_labs_in_several_threads_draw_one_after_the_other(lab):
    """JupyterLab answers cells and sliders in different threads of the kernel."""
    inside, most = [], []

    def update(artists, result):
        inside.append(result.n)
        time.sleep(0.001)
        most.append(len(inside))
        inside.pop()
        return lab.update(artists, result)

    views = [shown(replace(lab, update=update)) for _ in range(2)]
    first = png(views[0])
    moves = [lambda view=view: [view.set(n=n) for n in range(20, 40)] for view in (*views, views[0])]
    threads = [threading.Thread(target=move) for move in moves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1 and len(most) >= 60
    assert [png(view.set(n=8)) for view in views] == [first, first]


def test_only_the_moved_artists_are_drawn_again_and_limits_cost_a_full_redraw(lab):
    view = shown(lab)
    drawn = []
    view.picture.figure.canvas.mpl_connect("draw_event", drawn.append)
    view.set(n=9).set(n=10)
    assert drawn == []
    view.set(far=True)
    assert len(drawn) == 1 and view.picture.artists.ax.get_ylim() == (0, 640)


def test_a_refusal_is_a_calm_sentence_in_the_place_of_the_figure(lab):
    view = shown(lab)
    good = png(view)
    view.set(n=1)
    sentence = "One rank has nobody to talk to; choose n of at least 2"
    assert (
        view.error == sentence and view.facts == [sentence] and "labkit-refused" in view._page.readout.value
    )
    blank = pixels(png(view))
    assert blank.shape == pixels(good).shape
    middle = blank[blank.shape[0] // 2 - 40 : blank.shape[0] // 2 + 40]
    assert blank.min() >= 90 and middle.min() < 130  # grey words in the middle, nothing else
    assert (blank < 255).sum() == (middle < 255).sum()
    assert view._page.image.tooltip == sentence
    assert png(view.set(n=8)) == good and view.error == ""


def test_a_failure_says_so_under_the_last_good_picture_and_the_next_value_recovers(lab):
    view = shown(lab)
    good = png(view)
    view.set(n=13)
    assert view.facts == ["This setting failed: ZeroDivisionError: thirteen"]
    assert "labkit-failed" in view._page.readout.value and png(view) == good
    view.set(n=12)
    assert view.error == "" and view.facts[1] == "y ends at 12 and starts at 0" and png(view) != good


def test_a_failure_while_drawing_is_shown_as_well(lab):
    def broken(artists, result):
        if result.n == 20:
            raise RuntimeError("no pen")
        return lab.update(artists, result)

    view = shown(replace(lab, update=broken)).set(n=20)
    assert view.facts == ["This setting failed: RuntimeError: no pen"]
    assert view.set(n=21).facts[0] == "n = 21, size = 1024"


def test_a_lab_that_fails_at_once_raises_where_it_is_made(lab):
    with pytest.raises(ZeroDivisionError):
        live(lab, n=linear("ranks N", 1, 64, 13))
    with pytest.raises(ZeroDivisionError):
        still(lab, n=13)


def test_reset_goes_back_and_clears(lab):
    view = shown(lab)
    first = png(view)
    view.set(n=50, size=2048)
    view._page.keep.click()
    view.set(n=1)
    view._page.reset.click()
    assert view.values == {"n": 8, "size": 1024, "way": "up", "far": False} and png(view) == first
    assert not view.picture.keeps and "in grey" not in view._page.kept.value


def test_keep_leaves_a_grey_copy_behind_and_a_second_keep_replaces_it(lab):
    view = shown(lab).set(n=50)
    clean = png(shown(lab).set(n=20))
    view._page.keep.click()
    view.set(n=20)
    grey = [line for line in view.picture.artists.ax.lines if line.get_label() == "_ghost"]
    assert [line.get_ydata()[-1] for line in grey] == [50] and png(view) != clean
    assert "kept in grey: lk.still(labs.toy, n=50" in repr(view) and "n=50" in view._page.kept.value
    changed = np.abs(pixels(clean) - pixels(png(view))).max(axis=2) > 20
    coloured = np.ptp(pixels(png(view))[changed], axis=1) > 1
    assert (
        changed.sum() > 200 and coloured.mean() < 0.05
    )  # what came in is grey, but for edges of the line itself
    view._page.keep.click()
    view.set(n=30)
    grey = [line for line in view.picture.artists.ax.lines if line.get_label() == "_ghost"]
    assert [line.get_ydata()[-1] for line in grey] == [20]


def test_the_kept_line_survives_a_change_of_limits(lab):
    view = shown(lab).set(n=50)
    view.keep()
    view.set(far=True, n=60)
    assert view.picture.artists.ax.get_ylim() == (0, 640) and view.picture.keeps


def test_the_stored_output_is_small_described_and_the_same_twice(lab):
    view, again = shown(lab), shown(lab)
    data, metadata = view._repr_mimebundle_()
    assert set(data) == {VIEW, "image/png", "text/plain"}
    assert data[VIEW]["model_id"] == view._page.box.model_id
    assert metadata == {"image/png": {"alt": "a line that ends at 8", "width": 600, "height": 300}}
    assert data["text/plain"] == "\n".join(
        [
            "lk.still(labs.toy, n=8, size=1024, way='up', far=False)",
            "n = 8, size = 1024",
            "y ends at 8 and starts at 0",
        ]
    )
    assert again._repr_mimebundle_()[0]["image/png"] == data["image/png"]
    picture = base64.b64decode(data["image/png"])
    assert len(picture) < 30_000 and Image.open(io.BytesIO(picture)).size == (864, 432)
    assert np.abs(pixels(picture) - pixels(png(view))).mean() < 1


def test_still_is_the_same_picture_without_widgets(lab):
    flat, view = still(lab, n=20), shown(lab).set(n=20)
    assert repr(flat) == repr(view)
    data, metadata = flat._repr_mimebundle_()
    assert set(data) == {"image/png", "text/plain"}
    assert data["image/png"] == view._repr_mimebundle_()[0]["image/png"]
    assert metadata["image/png"]["alt"] == "a line that ends at 20"
    assert repr(
        eval(
            repr(flat).split("\n")[0], {"lk": SimpleNamespace(still=still), "labs": SimpleNamespace(toy=lab)}
        )
    ) == repr(flat)


def test_still_shows_a_refusal_too(lab):
    assert repr(still(lab, n=1)).endswith("\nOne rank has nobody to talk to; choose n of at least 2")


def test_a_value_that_is_no_literal_stands_under_its_own_name(lab):
    line = lab.line({"n": 8, "sweep": object(), "sizes": (1, 2)})
    assert line == "lk.still(labs.toy, n=8, sweep=sweep, sizes=(1, 2))"
    assert isinstance(ast.parse(line).body[0].value, ast.Call)


def test_fixed_settings_stay(lab):
    view = live(lab, n=linear("ranks N", 2, 64, 8), way="down")
    assert view.set(n=9).values == {"n": 9, "size": 1024, "way": "down", "far": False}


def test_values_can_be_observed_and_one_set_draws_once(lab):
    view, seen = shown(lab), []
    view.observe(lambda change: seen.append(change["new"]["n"]), "values")
    view.set(n=20, size=2048, way="down")
    assert seen == [20] and view.facts[0] == "n = 20, size = 2048"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"m": 3}, "no control 'm'"),
        ({"n": 65}, "outside 1 to 64"),
        ({"size": 3000}, "choose from 1 KiB, 2 KiB"),
    ],
)
def test_set_refuses_what_the_controls_do_not_offer_and_changes_nothing(lab, values, words):
    view = shown(lab)
    with pytest.raises(InputRefused, match=words):
        view.set(way="down", **values)
    assert view.values["way"] == "up"


def test_settings_a_lab_does_not_have_are_refused(lab):
    with pytest.raises(InputRefused, match="has no setting 'ranks'; it takes n, size, way, far"):
        still(lab, ranks=8)
    needs = replace(lab, compute=lambda n, m=2: None)
    with pytest.raises(InputRefused, match="toy needs a value for n"):
        still(needs)


def test_words_from_a_lab_are_escaped_on_the_page(lab):
    odd = replace(lab, readout=lambda result: ["a < b & c", "$x$"])
    assert "a &lt; b &amp; c" in live(odd)._page.readout.value


def test_the_readout_never_gets_shorter(lab):
    view = shown(lab)
    assert "min-height:40px" in view._page.readout.value
    assert "min-height:40px" in view.set(n=1)._page.readout.value


def test_every_slider_has_room_and_a_label(lab):
    view = shown(lab)
    assert all(w.description and w.style.description_width == "100%" for w in view._page._widgets.values())
    assert view._page.image.layout.max_width == "100%" and view._page.image.width == "600"
