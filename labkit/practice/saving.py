"""Saving a checkpoint: its bytes, how long copying and writing take, and how long the job stands still.

A checkpoint of the whole training state, not the activation checkpoints of ``strategies.checkpoint``.
"""

import numpy as np

from labkit.planner.states import MIXED, Recipe
from labkit.spec.checks import amount, noun, one_of, together, whole
from labkit.units import plain

SYNCHRONOUS, ASYNCHRONOUS, OVERLAPPED = "synchronous", "asynchronous", "overlapped"
WAYS = (SYNCHRONOUS, ASYNCHRONOUS, OVERLAPPED)


def checkpoint_bytes(parameters, recipe: Recipe = MIXED):
    """Bytes of a checkpoint: weights, and what the optimizer holds; gradients are made anew in each step.

    With the usual recipe 2 + 12 = 14 bytes per parameter. ``parameters`` may be an array. Refused: numbers
    not above 0, and what is no recipe.

    >>> checkpoint_bytes(13e9) / 1e9
    182.0
    """
    noun(recipe, Recipe, "the recipe")
    return plain(amount(parameters, "the number of parameters") * (recipe.weights + recipe.optimizer))


def write_seconds(size, rate, writers=1, shared=np.inf):
    """Seconds until ``size`` bytes are written by ``writers``, each of ``rate`` bytes/s, at once.

    ``shared``: bytes/s that the file system takes from all of them together; without end where the writers
    are the limit. All writers have equal shares. Refused: amounts not above 0, writers below 1.

    >>> write_seconds(182e9, 5e9), round(write_seconds(182e9, 1e9, 32), 2)
    (36.4, 5.69)
    """
    together("a write", size=size, rate=rate, writers=writers, shared=shared)
    each = amount(rate, "bytes per second of a writer") * whole(writers, "writers", arrays=True)
    most = amount(shared, "bytes per second of the file system", endless=True)
    return plain(amount(size, "the bytes of a checkpoint") / np.minimum(each, most))


def copy_seconds(size, cards, rate):
    """Seconds until every card has copied its share of ``size`` bytes to the host, each at ``rate`` bytes/s.

    Some 25 GB/s for a PCIe 4 x16 slot into pinned memory, a fifth of it into pageable memory, which the
    driver first copies through a pinned buffer of its own. Refused: amounts not above 0, cards below 1.

    >>> round(copy_seconds(182e9, 16, 25e9), 3), copy_seconds(182e9, 16, 5e9)
    (0.455, 2.275)
    """
    together("a copy", size=size, cards=cards, rate=rate)
    share = amount(size, "the bytes of a checkpoint") / whole(cards, "cards", arrays=True)
    return plain(share / amount(rate, "bytes per second of a copy"))


def host_bytes(size, cards, per_host=8):
    """Bytes of host memory that one copy of the checkpoint takes on each host of ``per_host`` cards.

    >>> host_bytes(182e9, 16) / 1e9
    91.0
    """
    together("host memory", size=size, cards=cards, per_host=per_host)
    cards, here = (
        whole(number, what, arrays=True) for number, what in ((cards, "cards"), (per_host, "cards of a host"))
    )
    return plain(amount(size, "the bytes of a checkpoint") * np.minimum(here, cards) / cards)


def stall_seconds(way, step, every, copy, write):
    """Seconds that the job stands still for each save, once saving has become a routine.

    ``way``: ``synchronous``, all wait for the write; ``asynchronous``, all wait for the copy to host memory,
    which is then written in the background; ``overlapped``, the copy too runs beside the next forward and
    backward, and only the update at the end of that step waits for it. Nothing in either copy may change
    while it is made, so the update has to wait for the copy, and never for the write. There is one copy in
    host memory: a save waits until the one before it is written.

    ``step``: seconds of a step; ``every``: steps from save to save; ``copy``, ``write``: seconds. Arrays
    broadcast. The host's copies and the network's traffic beside the step cost nothing here.

    >>> stall_seconds("synchronous", 1.0, 100, 0.5, 36.0), stall_seconds("asynchronous", 1.0, 100, 0.5, 36.0)
    (36.0, 0.5)
    >>> stall_seconds("overlapped", 1.0, 100, 0.5, 36.0), stall_seconds("asynchronous", 1.0, 20, 0.5, 36.0)
    (0.0, 16.5)
    """
    together("a stall", way=way, step=step, every=every, copy=copy, write=write)
    way = one_of(WAYS, way, "the way of saving")
    step = amount(step, "the seconds of a step")
    trained = step * whole(every, "the steps between two saves", arrays=True)
    copy, write = (
        amount(seconds, f"the seconds of a {what}", zero=True)
        for seconds, what in ((copy, "copy"), (write, "write"))
    )
    copied = np.where(way == OVERLAPPED, np.maximum(copy - step, 0), copy)
    # Beside the write there are the steps up to the next save, without those that already hid the copy.
    beside = np.where(way == OVERLAPPED, trained - np.minimum(copy, step), trained)
    behind = copied + np.maximum(write - beside, 0)
    return plain(np.where(way == SYNCHRONOUS, write, behind))


def stall_share(way, step, every, copy, write):
    """The share of the time that the job stands still for saving.

    >>> round(stall_share("synchronous", 1.0, 324, 0.5, 36.0), 3)
    0.1
    """
    stall = np.asarray(stall_seconds(way, step, every, copy, write))
    trained = np.asarray(step, float) * np.asarray(every)
    return plain(stall / (trained + stall))
