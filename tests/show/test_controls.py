"""Controls are descriptions: what they offer, what they refuse, which widget they become."""

import ipywidgets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.show import byte_size, choice, linear, log2, play, preset, toggle
from labkit.show.page import widget
from labkit.units import GiB, KiB, MiB, TiB


@pytest.mark.parametrize(
    ("control", "kind", "group"),
    [
        (linear("ranks", 2, 64, 8), ipywidgets.IntSlider, "topology"),
        (linear("bandwidth", 1.5, 9, 3, step=0.25), ipywidgets.FloatSlider, "topology"),
        (log2("GPUs", 1, 1024, 8), ipywidgets.SelectionSlider, "topology"),
        (byte_size("size", 1024, 2**30, 2**20), ipywidgets.SelectionSlider, "sizes"),
        (choice("algorithm", ["ring", "double_tree"], "ring"), ipywidgets.ToggleButtons, "algorithm"),
        (
            choice("algorithm", [f"recursive_{i}" for i in range(8)], "recursive_3"),
            ipywidgets.Dropdown,
            "algorithm",
        ),
        (preset("cluster", ["a100", "h100"], "h100"), ipywidgets.ToggleButtons, "topology"),
        (toggle("logarithmic", False), ipywidgets.Checkbox, "view"),
        (play("step", 0, 14, 3), ipywidgets.IntSlider, "view"),
    ],
)
def test_each_control_becomes_its_widget_with_its_value(control, kind, group):
    made = widget(control)
    assert type(made) is kind and made.value == control.value and made.description == control.label
    assert control.group == group


def test_the_readout_of_a_slider_has_the_decimals_of_its_step():
    assert widget(linear("x", 0, 1, 0.25, step=0.25)).readout_format == ".2f"
    assert widget(linear("x", 12.5, 100, 25, step=12.5)).readout_format == ".1f"


@given(st.integers(0, 40), st.integers(0, 12))
def test_sizes_are_all_powers_of_two_and_read_as_themselves(low, doublings):
    control = byte_size("size", 2**low, 2 ** (low + doublings), 2**low)
    assert [value for _, value in control.options] == [2 ** (low + i) for i in range(doublings + 1)]
    units = {"B": 1, "KiB": KiB, "MiB": MiB, "GiB": GiB, "TiB": TiB}
    for words, value in control.options:
        number, unit = words.split()
        assert int(number) * units[unit] == value


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: linear("ranks", 2, 64, 1), "outside 2 to 64"),
        (lambda: log2("GPUs", 3, 64, 8), "no range between two powers of two"),
        (lambda: byte_size("size", 1024, 4096, 3000), "choose from 1 KiB, 2 KiB, 4 KiB"),
        (lambda: choice("algorithm", ["ring"], "tree"), "'tree' is not offered"),
        (lambda: toggle("log", 1), "neither True nor False"),
        (lambda: toggle("log", True, group="looks"), "no group of controls"),
    ],
)
def test_a_control_that_cannot_be_is_refused(make, words):
    with pytest.raises(InputRefused, match=words):
        make()


def test_a_choice_may_give_words_to_its_values():
    control = choice("segments", {"whole message": 1, "best": 0}, 0)
    assert widget(control).value == 0 and control.words() == "whole message, best"


def test_none_is_refused_because_a_widget_shows_it_as_nothing_chosen():
    with pytest.raises(InputRefused, match="another value"):
        choice("bucket", {"whole": None, "25 MB": 25e6}, None)
