"""One verdict from everything that was read: the finding that explains the others, and what to do next."""

from collections import Counter
from dataclasses import replace

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.between import behind, circle, circle_said, root
from labkit.evidence.hang.compare import compare
from labkit.evidence.hang.findings import Finding, name_of
from labkit.evidence.hang.fingerprint_findings import fingerprint_findings
from labkit.evidence.hang.progress import Progress, progress_of
from labkit.evidence.hang.records import Evidence, Group, Note
from labkit.evidence.hang.signature import ranks_said
from labkit.evidence.hang.startup import never_formed, wrong_interface
from labkit.evidence.hang.suspects import minority
from labkit.evidence.hang.transfers import compare_transfers
from labkit.evidence.hang.waiting import open_calls
from labkit.spec.rule import counted, listed
from labkit.units import format_time

_GONE = ("out of memory", "exited", "exception")
_ONE_EACH = "one file for each rank of one run, its number in the name (rank_0.log, trace_rank_0)"
_LOGS = "a log with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL, or flight-recorder dumps"
_MOMENTS = (
    "no rank says that it gave up: should the job have run on while the dumps were taken, at different "
    "moments, take them once more"
)
# What alone decides nothing, and its two readings.
_HINTS = {
    "mismatch": "the library warns of mismatched collectives{named}: either the programs differ there, or a "
    "network error makes it look so; no call is on record that would tell",
    "completion error": "a network card reports failed work: either the network or its hardware, or a peer "
    "that ended first",
    "connection": "a connection was refused or closed: either a peer ended first, or the network does not "
    "deliver",
}


def judge(evidence: Evidence) -> tuple[Finding, list[Finding]]:
    """The finding that stands for the whole job, and one for each group or communicator (that one first)."""
    tables = progress_of(evidence)
    dumps = any(source.kind == "dump" for source in evidence.sources)
    ended = dumps or bool(evidence.waits)
    compared = [(table, compare(table, ended, evidence.states_recorded)) for table in tables]
    compared += [(table, compare_transfers(table, ended, evidence.states_recorded)) for table in tables]
    compared = [(table, one) for table, one in compared if one is not None]
    named = [(table, one) for table, one in compared if table.group.name or one.first is not None]
    compared = named or compared  # a message without group and number adds nothing to those with them
    compared = behind(compared)
    found = [*fingerprint_findings(evidence), *(one for _, one in compared)]
    interface = wrong_interface(evidence)
    found += [] if interface is None else [interface]
    found += never_formed(evidence)
    waiting = circle(compared)
    chosen = _chosen(compared, waiting if ended else [], found, evidence)
    if waiting and chosen.verdict == f.UNDECIDED:
        chosen = _crossing(waiting)
    others = [one for one in found if one is not chosen and one.group != chosen.group]
    if chosen.verdict == f.CIRCULAR:
        inside = {one.group for one in waiting}
        others = [
            replace(one, verdict=f.CIRCULAR, reason="waits in the same circle")
            if one.group in inside
            else one
            for one in others
        ]
    return chosen, [chosen, *others]


def _chosen(
    compared: list[tuple[Progress, Finding]],
    waiting: list[Finding],
    found: list[Finding],
    evidence: Evidence,
) -> Finding:
    """Programs that differ explain everything else; then waiting in a circle, a lost rank, the start."""
    by_verdict = {verdict: [one for one in found if one.verdict == verdict] for verdict in f.VERDICTS}
    for verdict in (f.MISMATCH, f.ORDER):
        if by_verdict[verdict]:
            return by_verdict[verdict][0]
    unfit = [note for note in evidence.notes if note.kind == "sizes"]
    if unfit:
        return _of_sizes(unfit)
    if waiting:
        groups = [one.group for one in waiting]
        ahead = tuple(sorted({rank for one in waiting for rank in one.ahead}))
        reason = (
            f"groups {listed([name_of(group) for group in groups], 'and')} wait for each other: "
            f"{circle_said(waiting)}; in no group do calls differ, so the order between the groups does, "
            "or one was left out"
        )
        return Finding(groups[0], f.CIRCULAR, reason, waiting[0].first, ahead=ahead)
    if by_verdict[f.CIRCULAR]:
        return by_verdict[f.CIRCULAR][0]
    lost = _lost(evidence)
    if by_verdict[f.MISSING]:
        first = root(by_verdict[f.MISSING])
        held = None if first.suspects else _waits_in(first, [one for _, one in compared])
        return _explained(held or first, evidence, lost)
    without = _without_dump(found, evidence)
    if without is not None:
        return _explained(without, evidence, lost)
    for verdict in (f.INTERFACE, f.NEVER):
        if by_verdict[verdict]:
            return by_verdict[verdict][0]
    if lost:
        return _of_lost(lost, found)
    for verdict in (f.TOO_SHORT, f.STALL, f.UNDECIDED):
        if by_verdict[verdict]:
            # A call that is known to be open says more than a group of which nothing differs so far.
            open_ = [one for one in by_verdict[verdict] if one.first is not None] or by_verdict[verdict]
            return _explained(open_[0], evidence, lost)
    return _nothing_stuck(by_verdict[f.HEALTHY], evidence)


def _waits_in(missing: Finding, found: list[Finding]) -> Finding | None:
    """What holds the absent ranks up, where all of them wait in one call of another group."""
    held = (f.STALL, f.TOO_SHORT, f.UNDECIDED)
    return next(
        (
            one
            for one in found
            if one.verdict in held
            and one.first is not None
            and one.group != missing.group
            and set(missing.absent) <= set(one.ahead)
        ),
        None,
    )


def _without_dump(found: list[Finding], evidence: Evidence) -> Finding | None:
    """The stuck call, where ranks that left a log left no dump: they did not come to give up.

    A rank that waits in a collective gives up like the others and dumps. One that does not has ended, or
    stands somewhere else.
    """
    dumped = {source.rank for source in evidence.sources if source.kind == "dump"}
    gone = {source.rank for source in evidence.sources if source.kind != "dump"} - dumped - {None}
    for one in found:
        everyone = one.group.ranks is None or gone <= set(one.group.ranks)
        if dumped and gone and everyone and one.verdict == f.UNDECIDED and set(one.ahead) == dumped:
            absent = tuple(sorted(gone))
            suspects = tuple(minority([list(one.ahead), list(absent)], one.group.members))
            what = next(iter(one.first.calls.values()), "it")
            reason = (
                f"{ranks_said(one.ahead)} gave up in {one.first}, {what}, and dumped; {ranks_said(absent)} "
                "left a log and no dump: ended, or outside of any collective"
            )
            return replace(
                one, verdict=f.MISSING, reason=reason, absent=absent, unknown=(), suspects=suspects, decide=""
            )
    return None


def _of_sizes(notes: list[Note]) -> Finding:
    """Two calls met that do not fit, and the process that noticed ended: before there was any dump."""
    note = notes[0]
    who = f"rank {note.rank}" if note.rank is not None else "a rank"
    reason = (
        f"{who}: {note.words} ({note.where}): another rank made another call there; the message names "
        "neither the call nor that rank"
    )
    return Finding(
        Group(""), f.MISMATCH, reason, differs=("number of elements",), decide="the messages of all ranks"
    )


def _crossing(waiting: list[Finding]) -> Finding:
    """Logs that end where groups seem to wait for each other: those of a job that runs may end so too."""
    reason = (
        f"either the groups wait for each other ({circle_said(waiting)}), or the logs end there, some lines "
        "apart: a line is written when a call is queued, and none when it is done"
    )
    ranks = sorted({rank for one in waiting for rank in (*one.ahead, *one.absent)})
    decide = f"a dump or a watchdog's message of {ranks_said(ranks)}, or logs taken later"
    return Finding(waiting[0].group, f.UNDECIDED, reason, waiting[0].first, decide=decide)


def _lost(evidence: Evidence) -> list[Note]:
    """What ended ranks before the others noticed: no memory, a signal, an exception of their own."""
    notes = [note for note in evidence.notes if note.kind in _GONE and note.rank is not None]
    kinds = [note.kind for note in notes]
    # A program error that every rank has is no lost rank; out of memory on one says more than an exit.
    ranks = {note.rank for note in notes}
    if "out of memory" not in kinds and len(ranks) > 1 and ranks == (evidence.ranks or ranks):
        return []
    return sorted(notes, key=lambda note: _GONE.index(note.kind))


def _of_lost(lost: list[Note], found: list[Finding]) -> Finding:
    """A process that is gone explains every wait for it."""
    kind = lost[0].kind
    gone = tuple(sorted({note.rank for note in lost if note.kind == kind}))
    waits = next((one for one in found if one.first is not None), None)
    group, first = (waits.group, waits.first) if waits else (Group(""), None)
    ahead = tuple(rank for rank in (waits.ahead if waits else ()) if rank not in gone)
    reason = f"{ranks_said(gone)}: {lost[0].words} ({lost[0].where}); what the others report comes after that"
    return Finding(group, f.MISSING, reason, first, absent=gone, ahead=ahead, suspects=gone, gone=True)


def _explained(finding: Finding, evidence: Evidence, lost: list[Note]) -> Finding:
    """The finding with what notes add to it: why a rank is absent, and how long it would have taken."""
    loading = [note for note in evidence.notes if note.kind == "loading"]
    concerned = set(finding.absent) | set(finding.unknown) or {None}
    for note in lost:
        if note.rank in finding.absent:
            reason = f"{finding.reason}; rank {note.rank}: {note.words} ({note.where})"
            return replace(finding, reason=reason, suspects=(note.rank,), gone=True)
    for note in loading:
        if finding.verdict == f.MISSING and note.rank not in concerned:
            continue
        if note.seconds and _passed(evidence, note):
            who = f"rank {note.rank}" if note.rank is not None else "a rank"
            reason = (
                f"{finding.reason}; {who} was still loading or saving ({note.words}), with "
                f"{format_time(note.seconds)} to go when the limit passed"
            )
            return replace(finding, verdict=f.TOO_SHORT, reason=reason, decide="")
        if note.rank in finding.absent:
            return replace(
                finding, reason=f"{finding.reason}; rank {note.rank} says: {note.words} ({note.where})"
            )
    if finding.verdict in (f.MISSING, f.STALL) and _asked_for(evidence):
        finding = replace(finding, reason=f"{finding.reason}; {_MOMENTS}")
    idle = _idle(evidence) if finding.verdict == f.UNDECIDED else []
    if idle:
        who = ranks_said(idle)
        reason = f"{finding.reason}; {who} called nothing after a call that the others have left behind"
        return replace(finding, reason=reason, decide=f"a stack (py-spy dump --pid PID) of {who}")
    for note in evidence.notes:
        if note.kind == "completion error":
            reason = f"{finding.reason}; a network card reports an error: {note.words} ({note.where})"
            verdict = f.STALL if finding.verdict == f.UNDECIDED else finding.verdict
            return replace(finding, verdict=verdict, reason=reason)
    return finding


def _asked_for(evidence: Evidence) -> bool:
    """Whether nothing says that any rank gave up: the dumps may be of a job that still runs."""
    dumped = any(source.kind == "dump" for source in evidence.sources)
    return dumped and not evidence.notes and not any(wait.limit or wait.waited for wait in evidence.waits)


def _idle(evidence: Evidence) -> list[int]:
    """Ranks whose dump shows that they wait in no call, while others do: where states are not recorded."""
    dumped = {source.rank for source in evidence.sources if source.kind == "dump"} - {None}
    if evidence.states_recorded or not dumped:
        return []
    waits = open_calls(evidence)
    return sorted(dumped - waits.keys()) if dumped & waits.keys() else []


def _passed(evidence: Evidence, note: Note) -> bool:
    """Whether what is loaded takes longer than a limit that a rank gave up after."""
    limits = [wait.limit for wait in evidence.waits if wait.limit]
    return bool(limits) and (note.elapsed or 0) + note.seconds > min(limits)


def _nothing_stuck(healthy: list[Finding], evidence: Evidence) -> Finding:
    """No group has a finding beyond that its ranks agree: in order, or not enough to say so."""
    hints = [note for note in evidence.notes if note.kind in ("mismatch", "completion error", "connection")]
    group = healthy[0].group if healthy else Group("")
    if hints:
        kinds = Counter(note.kind for note in hints)
        ranks = sorted({rank for note in hints for rank in note.ranks})
        named = f", it names {ranks_said(ranks)}" if ranks else ""
        reason = _HINTS[kinds.most_common(1)[0][0]].format(named=named)
        reason += f" ({hints[0].words}, {hints[0].where})"
        return Finding(group, f.UNDECIDED, reason, decide="dumps or call logs of all ranks")
    if healthy:
        return healthy[0]
    nobodys = sum(call.rank is None for call in evidence.calls)
    if nobodys:
        reason = (
            f"{counted(nobodys, 'call')} on record, and nothing tells of which rank: either all is well, or "
            "the ranks differ"
        )
        return Finding(group, f.UNDECIDED, reason, decide=_ONE_EACH)
    started = [one for one in evidence.communicators if one.completed]
    if started and all(one.destroyed for one in started):
        return Finding(started[0].group, f.HEALTHY, "every communicator came up, and was taken down in order")
    if not started and not evidence.interfaces and not evidence.communicators:
        reason = "nothing in these files says what any rank called: either all is well, or the ranks differ"
        return Finding(group, f.UNDECIDED, reason, decide=_LOGS)
    reason = "the communicators came up; " if started else "the log shows a start; "
    if not evidence.calls_recorded:
        reason += (
            "no calls are in it, for its filter does not name them: either all is well, or the ranks differ "
            "later"
        )
    else:
        reason += "either no call was made yet, or the log ends before the first"
    return Finding(group, f.UNDECIDED, reason, decide=_LOGS)
