"""Section 6.3's claims on going on under another plan."""

import numpy as np

from labkit.course import chapter6_resharding as tables
from labkit.course.claims import claim
from labkit.practice.resharding import assemble, cuts, overlaps
from labkit.practice.resuming import WAYS, resumed
from labkit.spec.plan_words import said


@claim(
    "6.3-d",
    "From 32 to 64 cards parameters and optimizer states are cut anew checkpoint 重切分",
    guide="degrees must divide, or shards do not fit",
    verdict="approximately",
    why="what must divide is the target's degree and the tensor, the source's degree and the target's need "
    "not; "
    "and whether the optimizer comes along is up to the form in which it was saved",
)
def from_32_to_64():
    wide = tables.change(tables.TARGETS["tensor parallel over two nodes"])
    fails = ", ".join(row.name for row in wide.tensors if not row.fits)
    near = " or ".join(said(plan).split(",")[0] for plan in wide.layouts[:3])
    twice = tables.change(tables.TARGETS["twice the replicas"])
    anew = ", ".join(row.name for row in twice.tensors if row.change == "cut anew")
    return (
        f"gpt3-13b, tp 8 x dp 4 to 64 cards: tp 16 x dp 4 splits all but {fails}; nearest that work "
        f"{near}; with "
        f"tp 8 x dp 8 {anew} are cut anew and nothing else"
    )


@claim(
    "6.3-m",
    "Degrees of source and target must divide 源配置和目标配置的切分维度能整除",
    guide="source and target divide",
    verdict="corrected",
    why="each target slice is assembled from the source slices that it overlaps, by its place in the "
    "whole; the "
    "condition is the target's degree against the tensor",
)
def degrees():
    row = np.arange(13)
    shards = np.split(row, cuts(13, 3)[1:-1])
    made = assemble(shards, 4)
    parts = overlaps(cuts(13, 3), cuts(13, 4)).length.size
    exact = "exactly" if np.array_equal(np.concatenate(made), row) else "wrong"
    sizes = " + ".join(str(piece.size) for piece in made)
    problem = tables.change(tables.TARGETS["tensor parallel over two nodes"]).problems[0]
    return (
        f"13 elements from 3 shards onto 4 ({sizes}): {parts} reads, restored {exact}; but "
        f"{problem.message.split(' (')[0]}"
    )


@claim(
    "6.3-n",
    "After each change a short warm-up, do not hope for a seamless transition 不要指望无缝衔接",
    guide="a short warm-up each time",
    verdict="approximately",
    why="with the same global batch, the optimizer's states and the position in the data the loss goes on to "
    "rounding; a warm-up is for another batch or lost states",
)
def seamless():
    said_of = []
    for way in WAYS:
        unbroken, broken = resumed(way)
        apart = np.abs(unbroken - broken).max()
        said_of.append(f"{way}: {tables.rounded(apart)}")
    row = tables.position_table().rows[1]
    return (
        f"saved on 4 ranks, resumed on 6, losses apart by: {'; '.join(said_of)}; without the position "
        f"after 60 % "
        f"of 1,000,000 samples {row[1]} are seen twice and {row[3]} never"
    )
