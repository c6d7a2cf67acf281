"""The course's tables: text that stands in columns, Markdown that shows what was written."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.course.table import Table, cell, table


def test_columns_start_under_one_another_with_chinese_words_two_columns_wide():
    shown = table(("English", "中文", "what"), (("ring", "环", "a"), ("tree", "树形结构", "b")))
    assert repr(shown) == "\n".join(
        (
            "English  中文      what",
            "ring     环        a",
            "tree     树形结构  b",
        )
    )


def test_the_full_width_forms_are_wide_and_greek_letters_are_not():
    shown = table(("x", "y"), (("（档）", "1"), ("α, µs", "2"), ("A", "3")))
    assert repr(shown).splitlines() == ["x       y", "（档）  1", "α, µs   2", "A       3"]


def test_no_line_ends_in_blanks():
    shown = table(("a", "b"), (("1", ""), ("2", "long cell")))
    assert [line for line in repr(shown).splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("sign", "|*_<$")
def test_signs_that_markdown_would_read_are_escaped(sign):
    lines = table((f"head{sign}", "b"), ((f"1{sign}2", "x"),))._repr_markdown_().splitlines()
    assert lines == [f"| head\\{sign} | b |", "| :-- | :-- |", f"| 1\\{sign}2 | x |"]


@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])), min_size=1, max_size=4))
def test_markdown_shows_every_cell_as_it_was_written(cells):
    *_, line = Table(tuple("h" * len(cells)), (tuple(cells),))._repr_markdown_().splitlines()
    # Only a bar without a backslash parts two cells; a backslash before a sign is not shown.
    found = re.findall(r"\| ((?:\\.|[^|\\])*) (?=\|)", line)
    assert [re.sub(r"\\(.)", r"\1", one) for one in found] == cells


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "none"),
        (np.nan, "none"),
        (True, "yes"),
        (False, "no"),
        (np.bool_(True), "yes"),
        (np.float64(2) > 3, "no"),
        ("0.5000", "0.5000"),
        ("nan", "nan"),
        (0.123456, "0.123"),
        (np.float64(1.5), "1.5"),
        (7, "7"),
        (1, "1"),
    ],
)
def test_a_cell_as_text(value, text):
    assert cell(value) == text


def test_rows_may_come_one_at_a_time_and_mix_text_with_numbers():
    shown = table(["what", "value"], ([name, value] for name, value in (("a", 1.25), ("b", np.nan))))
    assert shown == Table(("what", "value"), (("a", "1.25"), ("b", "none")))
