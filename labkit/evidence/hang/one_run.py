"""Of dumps that lie together, those of one run: no copies under another rank, no leftovers of another job.

Folders are used again, and files are copied over each other. What is left out stays among the sources, as a
file without evidence, and a warning names it.
"""

from dataclasses import replace
from itertools import pairwise

from labkit.evidence.hang.records import Evidence
from labkit.spec.rule import listed

_APART = 10  # limits; ranks of one run stop calling within one limit of each other
_LIMIT = 600.0  # seconds: that of PyTorch for NCCL, where no record has one
_A_CLOCK = 10**18  # nanoseconds: September 2001, before any recorder
_NAMED = 6  # files that a sentence names


def one_run(dumps: list[Evidence]) -> list[Evidence]:
    """The same dumps, those of other runs and copies emptied; each dump has its one source.

    Runs are told by the times of their calls: nothing overlaps, and the gap is wider than ten limits, or has
    to be there because a rank has dumps of two processes. The run of most ranks is kept, of equals the newer.
    """
    _leave_out_copies(dumps)
    runs = _runs([dump for dump in dumps if _span(dump) is not None])
    if len(runs) > 1:
        at = max(range(len(runs)), key=lambda at: (len({_rank(dump) for dump in runs[at]}), at))
        for other, run in enumerate(runs):
            if other != at:
                runs[at][0].warnings.append(_said(run, runs[at], later=other > at))
        for dump in (dump for run in runs if run is not runs[at] for dump in run):
            _leave_out(dump)
    return dumps


def one_process(one: Evidence, other: Evidence) -> bool:
    """Whether two dumps share calls, made at the same nanosecond, and contradict each other in none."""
    first, second = (
        {call.order: (call.created, call.operation) for call in dump.calls} for dump in (one, other)
    )
    both = [order for order in first if order in second and order is not None]
    alike = [first[order] == second[order] and first[order][0] is not None for order in both]
    return bool(both) and all(alike)


def _rank(dump: Evidence) -> int | None:
    return dump.sources[0].rank


def _files(dumps: list[Evidence]) -> str:
    names = [dump.sources[0].path for dump in dumps]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return listed(names[:_NAMED] + more, "and")


def _leave_out(dump: Evidence) -> None:
    dump.calls, dump.waits, dump.groups = [], [], []
    dump.calls_recorded = dump.states_recorded = False
    dump.sources = [replace(source, kind="nothing", rank=None) for source in dump.sources]


def _leave_out_copies(dumps: list[Evidence]) -> None:
    """Empties all but one of the dumps that have the same records under different ranks.

    The clocks of two processes never agree to the nanosecond in every call. Where they do in dumps that are
    otherwise different, or in all of three and more, no clock made these times.
    """
    same: dict[tuple, list[Evidence]] = {}
    for dump in dumps:
        if any(_of_a_clock(call.created) for call in dump.calls):
            same.setdefault(_records(dump), []).append(dump)
    copied = [alike for alike in same.values() if len({_rank(dump) for dump in alike}) > 1]
    if not copied:
        return
    if len(dumps) > 2 and (len(same) == 1 or _times_shared(same)):
        copied[0][0].warnings.append(
            f"{_files(copied[0])} have the same times to the nanosecond, as dumps of different processes "
            "never have: taken as dumps of different ranks whose times no clock made, not as copies"
        )
        return
    for alike in copied:
        alike.sort(key=lambda dump: (_rank(dump) is None, _rank(dump)))
        first = _rank(alike[0])
        alike[0].warnings.append(
            f"{_files(alike)} have the same records to the nanosecond, so they are copies of one process's "
            f"dump: it is taken once, as that of rank {first}, and nothing is known of the others"
        )
        for dump in alike:
            if _rank(dump) != first:
                _leave_out(dump)


def _of_a_clock(created: int | None) -> bool:
    """Whether a time may be of a clock that counts nanoseconds; a round one, or one of 1970, is made up."""
    return created is not None and created > _A_CLOCK and created % 1000 != 0


def _records(dump: Evidence) -> tuple:
    return tuple(
        (call.order, call.created, call.operation, call.sequence, call.state, call.peer)
        for call in dump.calls
    )


def _times_shared(same: dict[tuple, list[Evidence]]) -> bool:
    """Whether a call of one rank was made at the same nanosecond as that of another with other records."""
    made: dict[tuple, int | None] = {}
    for alike in same.values():
        rank = _rank(alike[0])
        for call in alike[0].calls:
            if made.setdefault((call.order, call.created), rank) != rank:
                return True
    return False


def _span(dump: Evidence) -> tuple[int, int] | None:
    """The first and last time of a call, in nanoseconds."""
    times = [call.created for call in dump.calls if call.created]
    return (min(times), max(times)) if times else None


def _runs(dumps: list[Evidence]) -> list[list[Evidence]]:
    """The dumps in runs, the oldest first; one run where they are not clearly apart."""
    dumps = sorted(dumps, key=_span)
    spans = [_span(dump) for dump in dumps]
    gaps, latest = [], 0
    for at, (first, last) in enumerate(spans):
        if at and first > latest:
            gaps.append((first - latest, at))
        latest = max(latest, last)
    limits = [call.limit for dump in dumps for call in dump.calls[-1:] if call.limit]
    wide = [at for gap, at in gaps if gap > 1e9 * _APART * max(limits, default=_LIMIT)]
    narrow = [at for _, at in sorted(gaps, reverse=True) if at not in wide]
    for used in range(len(narrow) + 1):
        runs = _cut(dumps, [*wide, *narrow[:used]])
        if not any(map(_mixed, runs)):
            return runs
    return _cut(dumps, wide)


def _cut(dumps: list[Evidence], places: list[int]) -> list[list[Evidence]]:
    ends = [0, *sorted(places), len(dumps)]
    return [dumps[first:last] for first, last in pairwise(ends) if first < last]


def _mixed(run: list[Evidence]) -> bool:
    """Whether a rank has dumps of two processes."""
    first: dict[int, Evidence] = {}
    for dump in run:
        known = first.setdefault(_rank(dump), dump)
        if _rank(dump) is not None and known is not dump and not one_process(known, dump):
            return True
    return False


def _said(run: list[Evidence], kept: list[Evidence], later: bool) -> str:
    (start, end), (first, last) = (
        (min(_span(dump)[0] for dump in one), max(_span(dump)[1] for dump in one)) for one in (run, kept)
    )
    apart = ((start - last) if later else (first - end)) / 1e9
    seconds = f"{apart:,.0f}" if apart >= 10 else f"{apart:.2g}"
    are, them = ("are", "them") if len(run) > 1 else ("is", "it")
    return (
        f"{_files(run)} {are} of another run, or of another moment of this one: all calls in {them} were "
        f"made {seconds} s and more {'after' if later else 'before'} those in {_files(kept)}, which "
        f"{'are' if len(kept) > 1 else 'is'} judged alone; give the files of one run"
    )
