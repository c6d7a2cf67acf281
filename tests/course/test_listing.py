"""Code shown in notebooks is the code that runs, without the words before it."""

import ast

import pytest

from labkit.collectives import cost
from labkit.course.listing import is_check, is_refusal, source
from labkit.planner import traffic


def plain(n, size):
    """One line of words."""
    half = size / 2
    return n * half


def long_words(n):
    """Several lines.

    Among them a line of code: n + 2
    """
    # a comment stays
    words = """a text in three quotes is no docstring"""
    return n + 1, words


def without(n):
    return n - 1


def test_the_docstring_goes_and_the_code_stays():
    assert source(plain).text == "def plain(n, size):\n    half = size / 2\n    return n * half"


def test_a_long_docstring_goes_whole_and_comments_and_later_texts_stay():
    assert source(long_words).text == (
        "def long_words(n):\n"
        "    # a comment stays\n"
        '    words = """a text in three quotes is no docstring"""\n'
        "    return n + 1, words"
    )


def test_a_function_without_docstring_is_shown_whole():
    assert source(without).text == "def without(n):\n    return n - 1"


def refusing(n):
    """Half of a number."""
    if n < 0:
        raise ValueError("too small")
    if n > 9:
        n = 9
    return n / 2


def test_what_refuses_bad_input_goes_and_other_branches_stay():
    shown = source(refusing)
    assert shown.text == "def refusing(n):\n    if n > 9:\n        n = 9\n    return n / 2"
    assert "too small" in source(refusing, body_only=False).text


def checking(n, size, way="ring"):
    """Half of a message."""
    float(size)
    n, size = int(n), abs(size)
    half = size / 2
    size = round(half)
    if way == "tree":
        words = "no tree"
        raise ValueError(words)
    return n * size


def test_what_passes_arguments_through_a_check_goes_only_at_the_start():
    assert source(checking).text == (
        'def checking(n, size, way="ring"):\n    half = size / 2\n    size = round(half)\n    return n * size'
    )


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("n = whole(n, 'n', 1)", True),
        ("n, m = (whole(v, 'a number', 1) for v in (n, m))", True),
        ("noun(n, int)", True),
        ("half = whole(n, 'n', 1)", False),
        ("n = 2", False),
        ("n = n + 1", False),
        ("n = whole(2, 'two', 1)", False),
        ("print('n')", False),
    ],
)
def test_a_check_gives_an_argument_back(line, is_one):
    assert is_check(ast.parse(line).body[0], {"n", "m"}) == is_one


def test_the_docstring_can_be_asked_for():
    assert source(plain, body_only=False).text == (
        'def plain(n, size):\n    """One line of words."""\n    half = size / 2\n    return n * half'
    )


@pytest.mark.parametrize("function", [cost.collective_cost, cost.volume, traffic.bucket_count])
def test_what_is_shown_of_labkit_is_the_program_less_its_docstring(function):
    whole, shown = (ast.parse(source(function, body_only=only).text).body[0] for only in (False, True))
    assert ast.get_docstring(whole) and not ast.get_docstring(shown)
    kept = [ast.dump(line) for line in whole.body[1:] if not is_refusal(line)]
    seen = [ast.dump(line) for line in shown.body]
    assert seen == kept[len(kept) - len(seen) :]
    assert all(
        is_check(line, {a.arg for a in whole.args.args})
        for line in whole.body[1:]
        if ast.dump(line) not in seen and not is_refusal(line)
    )
    assert ast.dump(shown.args) == ast.dump(whole.args)


def test_text_and_markdown_are_the_same_code():
    shown = source(plain)
    assert repr(shown) == shown.text
    assert shown._repr_markdown_() == f"```python\n{shown.text}\n```"
