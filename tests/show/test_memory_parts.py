"""Every part of a card's memory has one colour and one name."""

from dataclasses import fields

from labkit.planner.memory import PARTS, RankMemory
from labkit.show import memory_parts, theme


def test_every_part_and_every_sum_has_a_colour_and_a_name():
    assert set(memory_parts.COLOURS) == {*PARTS, "other", *memory_parts.SUMS}
    assert tuple(field.name for field in fields(RankMemory)) == memory_parts.SUMS
    assert all(memory_parts.COLOURS[part] == theme.COLOURS[part] for part in PARTS)
    assert memory_parts.WORDS["optimizer_states"] == "optimizer states"


def test_no_two_parts_share_a_colour():
    assert len({memory_parts.COLOURS[part] for part in PARTS}) == len(PARTS)


def test_a_key_has_the_names_in_their_order():
    key = memory_parts.key(memory_parts.SUMS)
    assert [patch.get_label() for patch in key] == ["states", "activations", "besides"]
