"""One pass over the text of a log: each line goes to the readers that may know it."""

import re

from labkit.evidence.hang.desync import DesyncReader
from labkit.evidence.hang.fingerprint import FingerprintReader
from labkit.evidence.hang.lines import CUT, rank_of_file, unpacked_lines
from labkit.evidence.hang.nccl_log import NcclReader
from labkit.evidence.hang.records import Evidence, Source
from labkit.evidence.hang.signs import SignReader
from labkit.evidence.hang.watchdog import WatchdogReader

_LABEL = re.compile(r"\[rank(\d{1,7})\]")


def _telling(line: str) -> bool:
    """Whether any reader may know a line: a few words stand for all that they look for.

    It is false of nearly every line of training output, so it decides how fast a log is read.
    """
    return (
        "CCL" in line
        or "PG " in line
        or "atchdog" in line
        or "workMeta" in line
        or "ollective" in line
        or "expected size" in line
        or "Barrier" in line
        or "lagging" in line
        or " ranks:" in line
        or "] started " in line
        or "] finished " in line
        or "rror" in line
        or "imed out" in line
        or "emory" in line
        or "oom" in line
        or "onnect" in line
        or "rank  " in line
        or "exit" in line
        or "joined" in line
        or "fault" in line
        or "raceback" in line
        or "nable to" in line
        or "CANCELLED" in line
        or "Test " in line
    )


def read_text(text: str, path: str) -> Evidence:
    """What the text of one log says of a hang; ``path`` names it in ``where`` and may name its rank.

    Reads NCCL and RCCL debug lines, PyTorch's watchdog and gloo, fingerprints, exits, errors and progress
    bars, with whatever launchers put before a line, and training output between them. Nothing is refused: a
    text without evidence gives a source of kind ``nothing``. Calls and communicators of several files belong
    together only after ``join``.
    """
    lines = unpacked_lines((text if text.endswith("\n") else text + CUT).split("\n"))
    del text  # as large as the lines
    rank = rank_of_file(path)
    evidence = Evidence()
    nccl, prints, desync = NcclReader(path), FingerprintReader(path), DesyncReader(path)
    watchdog, signs = WatchdogReader(path, rank), SignReader(path, rank)
    ranks = set()
    _take(lines, nccl, watchdog, (prints, desync), signs, ranks)
    for reader in (nccl, watchdog, prints, desync, signs):
        reader.finish(evidence)
    evidence.ranks = {int(one) for one in ranks} | ({rank} if rank is not None else set())
    said = (evidence.calls, evidence.waits, evidence.pairs, evidence.notes, evidence.communicators)
    kind = "log" if any(said) or evidence.interfaces or evidence.warnings else "nothing"
    evidence.sources.append(Source(path, kind, rank))
    return evidence


def _take(lines, nccl, watchdog, reports, signs, ranks) -> None:
    """Each line to the readers that may know it; ``ranks``: set of the labels seen."""
    for at, line in enumerate(lines):
        if "NCCL INFO " in line or "NCCL WARN " in line or "opCount " in line or "] INFO " in line:
            whole = nccl.take(lines, at)
            if whole or not ("atchdog" in line or "FingerPrint" in line):  # a message printed into this one
                continue
        if line.startswith("NCCL version "):
            nccl.levels.add("WARN")  # it has no head, and is printed from this level on
            continue
        if not line:
            continue
        if "[rank" in line:
            ranks.update(_LABEL.findall(line))
        elif not (_telling(line) or signs.tracing or watchdog.framed):
            if "ing" in line or "%|" in line or signs.busy.notes:
                signs.busy.take(line, at)
            continue
        known = False
        if watchdog.marked(line):
            watchdog.take(lines, at)
            signs.busy.stop()
            known = True
        for reader in reports:
            if reader.marked(line):
                reader.take(lines, at)
                known = True
        if signs.marked(line):
            signs.take(lines, at)
        if not known:
            signs.busy.take(line, at)
