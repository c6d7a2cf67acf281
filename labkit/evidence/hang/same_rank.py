"""Dumps that claim the same rank: one process dumped twice, or several processes under one name.

A tool that keys dumps by file name keeps one of them without a word. Here one process is put together, and
of several none is believed. Copies and dumps of other runs are left out before (``one_run``).
"""

from dataclasses import replace

from labkit.evidence.hang.one_run import one_process, one_run
from labkit.evidence.hang.records import COMPLETED, SCHEDULED, STARTED, Call, Evidence
from labkit.spec.rule import listed

_PROGRESS = ("", SCHEDULED, STARTED, COMPLETED)


def settle(dumps: list[Evidence]) -> list[Evidence]:
    """The same evidence, each rank once; ``dumps``: one for each file, each with its one source."""
    by_rank: dict[int | None, list[Evidence]] = {}
    for dump in one_run(dumps):
        by_rank.setdefault(dump.sources[0].rank, []).append(dump)
    settled = []
    for rank, same in by_rank.items():
        if rank is None or len(same) == 1:
            settled += same
        elif all(one_process(same[0], other) for other in same[1:]):
            settled.append(_together(same))
        else:
            settled += [_without_rank(dump) for dump in same]
            paths = listed([dump.sources[0].path for dump in same], "and")
            settled[-1].warnings.append(
                f"{paths} are all named as rank {rank}, but come from different processes, so whose they are "
                "stays open: give the files of one run, each with its global rank at the end of its name"
            )
    return settled


def _together(same: list[Evidence]) -> Evidence:
    """One process's dumps as one: every call once, as far as any of them has it."""
    whole = Evidence()
    for dump in same:
        whole.add(dump)
    calls: dict[int | None, Call] = {}
    lone = [call for call in whole.calls if call.order is None]
    for call in whole.calls:
        if call.order is not None:
            known = calls.get(call.order)
            calls[call.order] = call if known is None else _fuller(known, call)
    whole.calls = [*lone, *(calls[order] for order in sorted(calls))]
    waits = {}
    for wait in whole.waits:  # of the same group the last is kept that has come further
        key = (wait.group, None if wait.call is None else wait.call.order)
        if key not in waits or (wait.enqueued or 0) >= (waits[key].enqueued or 0):
            waits[key] = wait
    whole.waits = list(waits.values())
    return whole


def _fuller(one: Call, other: Call) -> Call:
    """One record of a call out of two: the later state, and the frames where either has them."""
    later = max(one, other, key=lambda call: _PROGRESS.index(call.state))
    return replace(later, frames=one.frames or other.frames)


def _without_rank(dump: Evidence) -> Evidence:
    dump.calls = [replace(call, rank=None) for call in dump.calls]
    dump.waits = [
        replace(wait, rank=None, call=None if wait.call is None else replace(wait.call, rank=None))
        for wait in dump.waits
    ]
    dump.sources = [replace(source, rank=None) for source in dump.sources]
    return dump
