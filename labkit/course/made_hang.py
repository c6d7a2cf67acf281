"""A made-up job that hangs for a known reason, as the evidence that its ranks would leave (section 6.1).

One step of a sharded model: the parameters of each layer are gathered, the losses are summed, the gradients
of each layer are reduced. A library pairs calls by their order alone: the k-th call of one rank meets the
k-th of the others. Where a call is left out, calls of different layers may meet that look the same: they go
through with wrong data, and the hang shows later.
"""

from dataclasses import dataclass
from itertools import zip_longest

from labkit.evidence.hang.records import COMPLETED, SCHEDULED, STARTED, Call, Evidence, Group, Source, Wait
from labkit.spec.checks import one_of, whole

LAYERS = 4
SHAPES = {"all_gather": (1_000_000,), "reduce_scatter": (4_000_000,), "all_reduce": (1,)}
STEP = (
    *(("all_gather", layer) for layer in range(1, LAYERS + 1)),
    ("all_reduce", 0),
    *(("reduce_scatter", layer) for layer in range(LAYERS, 0, -1)),
)
STRAY = ("all_reduce", -1)  # a call that is none of the step's: some average for a log, say
OMITTED, MORE, SWAPPED, SHAPE, ABSENT, NETWORK = FAULTS = (
    "leaves a call out",
    "makes one more",
    "swaps two",
    "another shape",
    "does not come",
    "all come: network",
)
MOST_RANKS, MOST_AHEAD = 8, 3


@dataclass(frozen=True, slots=True)
class MadeHang:
    """What each rank called, in order, as (operation, layer), and what it left behind.

    ``stuck``: place of the call that does not end, from 0, None where all end; ``mixed``: places of calls
    that ended although different layers met in them.
    """

    calls: tuple[tuple[tuple[str, int], ...], ...]
    stuck: int | None
    mixed: tuple[int, ...]
    evidence: Evidence


def made_hang(n=4, fault=OMITTED, rank=1, at=3, ahead=2) -> MadeHang:
    """What ``n`` ranks leave behind where ``rank`` has a ``fault`` at call number ``at`` of the step.

    ``ahead``: how many calls a rank queues behind the one that does not end, as a host does that does not
    wait for its card. Refused: what is no number of ranks, fault, rank or call of the step.

    >>> job = made_hang(4, "leaves a call out", rank=1, at=2)
    >>> job.mixed, job.stuck, job.calls[0][3], job.calls[1][3]
    ((1, 2), 3, ('all_gather', 4), ('all_reduce', 0))
    """
    n = whole(n, "the number of ranks", least=2, most=MOST_RANKS)
    one_of(FAULTS, fault, "the fault", arrays=False)
    rank = whole(rank, "the rank with the fault", least=0, most=n - 1)
    place = whole(at, "the call with the fault", most=len(STEP)) - 1
    ahead = whole(ahead, "the calls queued ahead", least=0, most=MOST_AHEAD)
    planned = [_planned(fault, place) if one == rank else STEP for one in range(n)]
    odd = (rank, place) if fault == SHAPE else None
    stuck = place if fault == NETWORK else _first_unlike(planned, odd)
    end = None if stuck is None else stuck + 1 + ahead
    calls = tuple(tuple(one[:end]) for one in planned)
    mixed = tuple(k for k, met in enumerate(zip(*calls, strict=False)) if k != stuck and len(set(met)) > 1)
    mixed = tuple(k for k in mixed if stuck is None or k < stuck)
    return MadeHang(calls, stuck, mixed, _evidence(calls, stuck, odd))


def _planned(fault: str, place: int) -> tuple[tuple[str, int], ...]:
    """The calls of the rank with the fault, had none of them to wait."""
    before, (call, *after) = STEP[:place], STEP[place:]
    return {
        OMITTED: (*before, *after),
        MORE: (*before, STRAY, call, *after),
        SWAPPED: (*before, *after[:1], call, *after[1:]),
        ABSENT: before,
    }.get(fault, STEP)


def _shape(rank: int, k: int, call: tuple[str, int], odd: tuple[int, int] | None) -> tuple[int, ...]:
    elements, *_ = SHAPES[call[0]]
    return (elements + 1,) if (rank, k) == odd else (elements,)


def _first_unlike(planned, odd) -> int | None:
    """The first place at which a rank has no call, or the calls differ in operation or shape."""
    for k, met in enumerate(zip_longest(*planned)):
        if None in met or len({(c[0], _shape(rank, k, c, odd)) for rank, c in enumerate(met)}) > 1:
            return k
    return None


def _evidence(calls, stuck: int | None, odd) -> Evidence:
    """The calls as flight recorders hold them, a dump for each rank."""
    group = Group("0", tuple(range(len(calls))), description="default_pg")
    end = max(map(len, calls)) if stuck is None else stuck
    found = Evidence(groups=[group], calls_recorded=True, states_recorded=True)
    for rank, own in enumerate(calls):
        dump = f"rank_{rank}"
        found.sources.append(Source(dump, "dump", rank))
        for k, call in enumerate(own):
            shape = (_shape(rank, k, call, odd),)
            state = COMPLETED if k < end else STARTED if k == end else SCHEDULED
            found.calls.append(
                Call(rank, group, k + 1, call[0], f"{dump}, entry {k + 1}", shape, shape, dtype="float",
                     state=state, order=k)
            )  # fmt: skip
        done = min(len(own), end)
        found.waits.append(
            Wait(rank, group, dump, enqueued=len(own), started=min(len(own), end + 1), completed=done)
        )
    return found
