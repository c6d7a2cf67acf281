"""Resharding: what a checkpoint of one plan becomes under another."""

from labkit.practice.resharding.change import Reshard, nearest_layouts, reshard
from labkit.practice.resharding.formats import FORMATS, Format, Survival, changes, survives
from labkit.practice.resharding.reading import Reads, reads
from labkit.practice.resharding.rows import TensorChange
from labkit.practice.resharding.slices import Overlaps, assemble, cuts, overlaps

__all__ = [
    "FORMATS",
    "Format",
    "Overlaps",
    "Reads",
    "Reshard",
    "Survival",
    "TensorChange",
    "assemble",
    "changes",
    "cuts",
    "nearest_layouts",
    "overlaps",
    "reads",
    "reshard",
    "survives",
]
