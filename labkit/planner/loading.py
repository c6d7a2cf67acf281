"""Host memory of a node while its ranks load a sharded checkpoint: all of each rank's file, or less."""

import numpy as np

from labkit.planner.states import MIXED, Recipe
from labkit.spec.checks import amount, noun, together, whole
from labkit.spec.rule import counted, listed
from labkit.units import format_bytes, plain


def loading_bytes(file, files, ranks=8, recipe: Recipe = MIXED) -> dict:
    """Bytes of host memory on a node while ``ranks`` of it load at once, by what each of them keeps.

    A checkpoint of sharded optimizer states has one ``file`` of so many bytes for each of the ``files`` ranks
    that wrote it. ``every file``: each rank keeps all of them, to cut them anew for another number of ranks,
    or because it does not look. ``master weights``: it keeps these alone of every file, and one file whole
    while it reads it. ``own file``: the one it wrote. The last two need as many ranks as wrote them.
    ``recipe`` has the share of the master weights in a file; where it has none apart, the weights themselves
    are the master, and stand in the file in their place. The numbers may be arrays. DeepSpeed issue 1111 and
    pull request 1525. Refused: bytes not above 0, files or ranks not whole or below 1.

    >>> {kept: f"{size / 1e9:.0f} GB" for kept, size in loading_bytes(525e6, 256).items()}
    {'every file': '1075 GB', 'master weights': '361 GB', 'own file': '4 GB'}
    """
    noun(recipe, Recipe, "the recipe")
    file = amount(file, "the bytes of a file of a checkpoint")
    files, ranks = (
        np.asarray(whole(number, name, arrays=True), float)
        for number, name in ((files, "the files of a checkpoint"), (ranks, "the ranks that load on a node"))
    )
    together("a checkpoint", file=file, files=files, ranks=ranks)
    master = recipe.master or recipe.weights
    written = master + recipe.first_moment + recipe.second_moment
    share = master / written if written else 1.0
    return {
        "every file": plain(ranks * files * file),
        "master weights": plain(ranks * (1 + (files - 1) * share) * file),
        "own file": plain(ranks * file),
    }


def loading_advice(host, file, files, ranks=8, recipe: Recipe = MIXED) -> str:
    """What fits nodes with ``host`` bytes of memory, in one sentence; single numbers, refused as above.

    Another number of ranks than wrote the checkpoint is the usual reason to read every file, and leaves
    taking turns alone.

    >>> print(loading_advice(1e12, 525e6, 256).replace(": ", ":\\n").replace("; ", ";\\n"))
    every file on 8 ranks takes 1.08 TB of 1 TB:
    where as many ranks load as wrote them, keep the master weights alone (361 GB) or read own files (4.2 GB);
    where more or fewer do, load one rank after the other (134 GB)
    """
    for value, name in ((host, "the memory of a host, in bytes,"), (file, "the bytes of a file")):
        amount(value, name, arrays=False)
    files, ranks = whole(files, "the files of a checkpoint"), whole(ranks, "the ranks that load on a node")
    held = loading_bytes(file, files, ranks, recipe)
    said = f"every file on {counted(ranks, 'rank')} takes {format_bytes(held['every file'])}"
    if held["every file"] <= host:
        return f"{said}, which fits {format_bytes(host)}"
    ways = (("keep the master weights alone", "master weights"), ("read own files", "own file"))
    fits = [f"{words} ({format_bytes(held[kept])})" for words, kept in ways if held[kept] <= host]
    alone = loading_bytes(file, files, 1, recipe)["every file"]
    turns = f"load one rank after the other ({format_bytes(alone)})"
    others = turns if alone <= host else "cut the checkpoint anew elsewhere"
    if fits:
        same, other = "where as many ranks load as wrote them", "where more or fewer do"
        others = f"{same}, {listed(fits)}; {other}, {others}"
    return f"{said} of {format_bytes(host)}: {others}"
