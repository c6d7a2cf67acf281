"""Every term of a step has one colour and one name."""

from labkit.show import step_parts, theme
from labkit.spec.step_time import TERMS


def test_every_term_has_a_colour_and_a_name_of_its_own():
    assert tuple(step_parts.WORDS) == TERMS == tuple(step_parts.COLOURS)
    assert len(set(step_parts.WORDS.values())) == len(TERMS)
    busy = [term for term in TERMS if term not in ("bubble", "idle")]  # both are waiting, and grey
    assert len({step_parts.COLOURS[term] for term in busy} | {theme.COLOURS["idle"]}) == len(busy) + 1
    assert step_parts.COLOURS["dp"] == theme.COLOURS["data"] != step_parts.COLOURS["data"]


def test_a_key_has_the_names_in_their_order():
    assert [patch.get_label() for patch in step_parts.key(("dp", "tp"))] == ["data parallel", "tensor"]
