"""Fields of a trace that hold what they should not: the rest is read, and what they tell is not known."""

import math

import pytest

from labkit.evidence.profile import read_profile
from tests.evidence.profile.made import comm, compute, described, write


@pytest.mark.parametrize(
    "damaged",
    [
        {"External id": [1]},
        {"External id": {"a": 1}},
        described(elements=10**400),
        described(elements=2**64),
        {"Input Dims": [[10**400]], "Input type": ["float"], **described()},
        {"Input Dims": [[10**200, 10**200]], "Input type": ["float"], "Collective name": "allreduce"},
    ],
)
def test_a_damaged_field_of_a_collective_costs_its_own_figure_alone(tmp_path, damaged):
    path = write(tmp_path / "rank-0.json", [compute(0, 10), comm(5, 10, **damaged)])
    profile = read_profile(path)
    (rank,) = profile.ranks.values()
    assert rank.communication == pytest.approx(10e-6)
    sizes = [one.size for one in profile.collectives]
    assert all(size is None or math.isfinite(size) for size in sizes)
    assert repr(profile)
