"""Evidence of made-up jobs, as readers would hand it over."""

from labkit.evidence.hang.records import COMPLETED, SCHEDULED, Call, Evidence, Frame, Group, Source, Wait

ROW = (("all_reduce", 4), ("all_gather", 8), ("all_reduce", 16))


def group(size, name="0", description="default_pg"):
    return Group(name, tuple(range(size)), description=description)


def call(rank, of, sequence, operation="all_reduce", numel=4, state=COMPLETED, line=10, **more):
    frame = (Frame("train", "train.py", line),) if line else ()
    more.setdefault("dtype", "float")
    return Call(
        rank,
        of,
        sequence,
        operation,
        f"rank{rank}:{sequence}",
        sizes_in=((numel,),),
        state=state,
        frames=frame,
        **more,
    )


def dumps(size, by_rank, of=None, states=True, missing=()):
    """Dumps of a group: ``by_rank[rank]`` is a list of (operation, elements, state or None for completed)."""
    of = of or group(size)
    evidence = Evidence(groups=[of], calls_recorded=True, states_recorded=states)
    for rank in range(size):
        if rank in missing:
            continue
        evidence.sources.append(Source(f"dump_{rank}", "dump", rank))
        evidence.ranks.add(rank)
        for number, entry in enumerate(by_rank[rank]):
            operation, numel, *rest = entry
            state = (rest[0] if rest else COMPLETED) if states else SCHEDULED
            line = rest[1] if len(rest) > 1 else 10 + number
            evidence.calls.append(
                call(rank, of, number + 1, operation, numel, state, line=line, order=number)
            )
    return evidence


def watchdog(of, waits):
    """Messages: (rank, failing sequence, operation, elements, enqueued, completed)."""
    evidence = Evidence(calls_recorded=False)
    for rank, sequence, operation, numel, enqueued, completed in waits:
        one = call(rank, of, sequence, operation, numel, state="", line=0)
        evidence.waits.append(
            Wait(rank, of, f"log:{rank}", one, 600.0, 600.0, enqueued=enqueued, completed=completed)
        )
        evidence.sources.append(Source(f"log_{rank}", "log", rank))
        evidence.ranks.add(rank)
    return evidence
