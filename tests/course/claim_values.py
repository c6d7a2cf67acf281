"""What the tests of the sections' claims look at: computed values, and the numbers in them."""

import re

from labkit.course.claims import all_claims


def value(id):
    return all_claims()[id].row()["labkit_value"]


def figures(id, pattern):
    """All numbers that the groups of ``pattern`` find in the claim's computed value."""
    found = re.search(pattern, value(id))
    assert found, f"{pattern!r} not in {value(id)!r}"
    return [float(group.replace(",", "")) for group in found.groups()]
