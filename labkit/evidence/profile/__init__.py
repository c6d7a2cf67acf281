"""Profiler traces: where the seconds of measured steps went, rank by rank, in the terms of predicted ones."""

from labkit.evidence.profile.beside import beside
from labkit.evidence.profile.groups import GroupRow
from labkit.evidence.profile.profile import Profile, read_profile
from labkit.evidence.profile.ranks import Collective
from labkit.evidence.profile.steps import RankProfile

__all__ = ["Collective", "GroupRow", "Profile", "RankProfile", "beside", "read_profile"]
