"""The hang triage (guide, 6.1; its table is lost and rebuilt): eight questions in order, asked of evidence.

Whether all are alive, and what is wrong with interfaces, limits and hardware, explains a hang. Counts, order
and sizes say what differs: a symptom. Why it differs stands in the program, and call stacks show two reasons:
a line that not all ranks reach, and a loop that one rank goes round once more.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.files import read_files
from labkit.evidence.hang.findings import Finding, name_of
from labkit.evidence.hang.progress import Progress, progress_of
from labkit.evidence.hang.read import Hang, hang_of
from labkit.evidence.hang.records import Evidence, Frame
from labkit.evidence.hang.signature import ranks_said
from labkit.evidence.hang.suspects import call_site, site_said
from labkit.evidence.triage.steps import CLEAR, DIFFERS, EXPLAINS, UNKNOWN, Step, Triage, walk
from labkit.spec.rule import counted, listed


@dataclass(frozen=True, slots=True)
class Question:
    """A row of the lost table: what is asked, how it is found out, and what to do on a hit."""

    asks: str
    how: str
    hit: str


QUESTIONS = {
    "alive": Question(
        "are all processes alive, and none outside of a collective?",
        "exit codes, the first error of each rank, progress bars; py-spy dump --pid PID",
        "mend that rank: the others only wait for it",
    ),
    "counts": Question(
        "how many calls has each rank made in each group?",
        "flight-recorder dumps, or a debug log with NCCL_DEBUG_SUBSYS=COLL",
        "a call left out by those behind, or one too many by those ahead",
    ),
    "order": Question(
        "is the operation of each number the same on all ranks?",
        "the same files, number by number",
        "a call left out, one too many, or two swapped",
    ),
    "sizes": Question(
        "are element count, data type and root the same?",
        "the same files; TORCH_DISTRIBUTED_DEBUG=DETAIL compares before each call",
        "uneven data, or a switch that differs between ranks",
    ),
    "rank condition": Question(
        "is the call made in a line that not all ranks reach?",
        "call stacks in the dumps, then the program",
        "take the call out of the branch (5.3)",
    ),
    "last batch": Question(
        "has a rank gone round the loop once more, or once less?",
        "call stacks in the dumps: one line, counted rank by rank",
        "give all ranks equally many batches (3.3), and let none pass over one",
    ),
    "interface, limit": Question(
        "do the hosts reach each other, and is the limit long enough?",
        "start-up lines of the debug log, messages of the watchdog",
        "name the interface; a long limit until all are there (5.3)",
    ),
    "hardware": Question(
        "have all ranks made the same call, and it does not end?",
        "states in the dumps; then nccl-tests, dmesg, ibstat",
        "measure pairs of nodes (5.4) and take the bad one out",
    ),
}


def hang_triage(paths: str | os.PathLike | Iterable[str | os.PathLike]) -> Triage:
    """The eight questions in order, asked of the files a job left, up to the first that explains the hang.

    Counts, order and sizes can only differ; then the two questions after them look for the reason, and the
    walk ends there, with a reason or without. Refused: what ``read_hang`` refuses.
    """
    return triage_of(read_files(paths))


def triage_of(evidence: Evidence) -> Triage:
    """The same of evidence that has been read."""
    return walk(_steps(evidence, hang_of(evidence)))


def _steps(evidence: Evidence, hang: Hang) -> Iterator[Step]:
    found = hang.findings[0]
    table = next((one for one in progress_of(evidence) if one.group == found.group), None)
    yield _alive(evidence, found)
    symptoms = [_counts(found, table), _order(found), _sizes(found)]
    yield from symptoms
    if any(step.answer == DIFFERS for step in symptoms) or _lines_apart(found, table):
        yield _rank_condition(found, table)
        yield _last_batch(found, table)
        return
    yield _step("rank condition", CLEAR, "no call differs")
    yield _step("last batch", CLEAR, "no call differs")
    yield _start(hang)
    yield _hardware(hang)


def _step(name: str, answer: str, evidence: str, next_step: str = "") -> Step:
    """A step with its question, and what a hit means where it is one."""
    question = QUESTIONS[name]
    hit = question.hit if answer in (EXPLAINS, DIFFERS) else ""
    return Step(name, question.asks, answer, evidence, next_step or hit)


def _start(hang: Hang) -> Step:
    if hang.verdict in (f.INTERFACE, f.NEVER, f.TOO_SHORT):
        return _step("interface, limit", EXPLAINS, hang.reason, hang.next_step)
    return _step("interface, limit", CLEAR, "nothing in these files says so")


def _hardware(hang: Hang) -> Step:
    """The last question, and the place for what cannot be decided."""
    if hang.verdict == f.STALL:
        return _step("hardware", EXPLAINS, hang.reason, hang.next_step)
    if hang.verdict == f.UNDECIDED:
        return _step("hardware", UNKNOWN, hang.reason, hang.next_step)
    return _step("hardware", CLEAR, "nothing in these files says so")


# ---- the first question


_OUTSIDE = ("out of memory", "exited", "exception", "loading")


def _alive(evidence: Evidence, found: Finding) -> Step:
    """A note of a rank that the others wait for; what the others say is what became of waiting."""
    blamed = set(found.absent) | set(found.suspects)
    notes = [note for note in evidence.notes if note.kind in _OUTSIDE and note.rank in blamed]
    if notes and found.verdict == f.MISSING:
        note = min(notes, key=lambda note: _OUTSIDE.index(note.kind))
        return _step("alive", EXPLAINS, f"rank {note.rank}, {note.kind}: {note.words} ({note.where})")
    if found.unknown:
        return _step("alive", UNKNOWN, f"no file speaks of {ranks_said(found.unknown)}")
    speak = sorted({source.rank for source in evidence.sources if source.rank is not None} | evidence.ranks)
    if not speak:
        return _step("alive", UNKNOWN, "no file says which ranks it is of")
    return _step("alive", CLEAR, f"{ranks_said(speak)} speak, and none says that it ended")


# ---- what differs


def _counts(found: Finding, table: Progress | None) -> Step:
    counts = {} if table is None else {rank: last for rank, last in sorted(table.enqueued.items())}
    if not counts and found.verdict == f.MISSING:
        return _step("counts", DIFFERS, found.reason)
    if len(counts) < 2:
        return _step("counts", UNKNOWN, "no file counts the calls of two ranks or more")
    by_last: dict[int, list[int]] = {}
    for rank, last in counts.items():
        by_last.setdefault(last, []).append(rank)
    each = "; ".join(
        f"{ranks_said(ranks)} {'no call' if last < 0 else f'up to call {last}'}"
        for last, ranks in sorted(by_last.items(), reverse=True)
    )
    each = f"group {name_of(found.group)}: {each}" if found.group.name else each
    if silent := [rank for rank in found.absent if rank not in counts]:
        each += f"; {ranks_said(silent)} not on record"
    if found.verdict == f.UNDECIDED and found.absent:
        return _step("counts", UNKNOWN, f"{each}, as far as these files go")
    return _step("counts", DIFFERS if found.verdict == f.MISSING else CLEAR, each)


def _order(found: Finding) -> Step:
    if found.verdict == f.CIRCULAR:
        return _step("order", EXPLAINS, found.reason, "give the calls of both groups one order on all ranks")
    if "operation" in found.differs:
        return _step("order", DIFFERS, _calls(found))
    return _compared("order", found)


def _sizes(found: Finding) -> Step:
    other = [aspect for aspect in found.differs if aspect != "operation"]
    if other:
        return _step("sizes", DIFFERS, f"{listed(other, 'and')}: {_calls(found)}")
    return _compared("sizes", found)


def _compared(name: str, found: Finding) -> Step:
    if found.verdict == f.HEALTHY:
        return _step(name, CLEAR, "the same in every call on record")
    if found.first is None or len(found.first.calls) < 2:
        return _step(name, UNKNOWN, "no number has calls of two ranks on record")
    return _step(name, CLEAR, f"the same at {found.first}")


def _calls(found: Finding) -> str:
    if found.first is None:
        return found.reason
    by_words: dict[str, list[int]] = {}
    for rank, words in found.first.calls.items():
        by_words.setdefault(words, []).append(rank)
    each = "; ".join(f"{ranks_said(ranks)} {words}" for words, ranks in by_words.items())
    return f"{found.first}: {each}"


# ---- why it differs


def _rank_condition(found: Finding, table: Progress | None) -> Step:
    """A line that only the suspects have ever called from, and none that only the others have.

    Where both sides have lines of their own, calls in another order look the same; where nobody is suspected,
    the other side may have left the line out.
    """
    name, (some, others) = "rank condition", _sides(found, table)
    if not (some and others):
        return _step(name, UNKNOWN, "no call stacks of both sides are on record", QUESTIONS[name].how)
    lines, theirs = _lines(table, some), _lines(table, others)
    own = [site for site in lines if site not in theirs]
    alone = [site for site in theirs if site not in lines]
    says = [f"{site_said(site)} is called by {ranks_said(some)} alone" for site in own[:1]]
    says += [f"{site_said(site)} by {ranks_said(others)} alone" for site in alone[:1]]
    if own and not alone and found.suspects:
        return _step(name, EXPLAINS, says[0])
    if own:
        return _step(name, DIFFERS, "; ".join([*says, "a branch, another order, or another root"]))
    return _step(name, CLEAR, f"{ranks_said(some)} called from no line that the others have not called from")


def _last_batch(found: Finding, table: Progress | None) -> Step:
    """One line that all have called from, and some of them once more than the others."""
    name, (some, others) = "last batch", _sides(found, table)
    if not (some and others):
        return _step(name, UNKNOWN, "no call stacks of both sides are on record", QUESTIONS[name].how)
    here, there = _lines(table, some[:1]), _lines(table, others[:1])
    for site in here:
        if found.verdict == f.MISSING and there[site] and abs(here[site] - there[site]) == 1:
            says = f"from {site_said(site)} {ranks_said(some)} called {counted(here[site], 'time')}"
            return _step(name, EXPLAINS, f"{says}, {ranks_said(others)} {counted(there[site], 'time')}")
    return _step(name, CLEAR, "no line has been called from once more by some")


def _sides(found: Finding, table: Progress | None) -> tuple[list[int], list[int]]:
    """The suspects, or who is ahead where nobody is suspected, and the others, if their stacks are known."""
    if table is None:
        return [], []
    first = found.suspects or (found.ahead if found.absent else _smallest(found))
    known = [rank for rank in sorted(table.covered) if _lines(table, [rank])]
    return [rank for rank in known if rank in first], [rank for rank in known if rank not in first]


def _lines_apart(found: Finding, table: Progress | None) -> bool:
    """Whether ranks wait in the same call, made from different lines: what is not on record may differ."""
    if table is None or found.absent or found.first is None or found.first.sequence is None:
        return False
    calls = table.calls(found.first.sequence).values()
    return len({call_site(one[0].frames) for one in calls} - {None}) > 1


def _smallest(found: Finding) -> list[int]:
    """The smallest class of ranks that call the same at the difference."""
    if found.first is None or not found.first.calls:
        return []
    words, _ = Counter(found.first.calls.values()).most_common()[-1]
    return [rank for rank, one in found.first.calls.items() if one == words]


def _lines(table: Progress, ranks: list[int]) -> Counter[Frame]:
    """The lines from which these ranks have called in this group, and how often."""
    calls = (calls[0] for rank in ranks for calls in table.at.get(rank, {}).values())
    sites = (call_site(call.frames) for call in calls)
    return Counter(site for site in sites if site is not None)
