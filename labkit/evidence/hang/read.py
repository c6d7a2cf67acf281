"""``read_hang``: from files to one verdict, with the reason and the next command."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.evidence.hang.collector import nothing_collected
from labkit.evidence.hang.files import read_files
from labkit.evidence.hang.findings import Finding, First, name_of
from labkit.evidence.hang.joined import join
from labkit.evidence.hang.next_step import next_step
from labkit.evidence.hang.records import Evidence, Source
from labkit.evidence.hang.signature import ranks_said
from labkit.evidence.hang.verdict import judge
from labkit.units import wrapped


@dataclass(frozen=True, slots=True, repr=False)
class Hang:
    """What became of a job. ``verdict`` is one of ``mismatch missing_rank order stall timeout_too_short
    wrong_interface never_formed circular_wait healthy undecided``.

    ``first``: the first operation on which ranks differ or are stuck, None where none is known; ``absent``:
    ranks that did not call it; ``ahead``: ranks that did; ``suspects``: whose fault it likely is, empty where
    nothing tells; ``reason`` and ``next_step``: sentences; ``findings``: one for each group, that of the
    verdict first; ``sources``: the files; ``warnings``: what could not be read or had to be assumed.
    """

    verdict: str
    first: First | None
    absent: tuple[int, ...]
    ahead: tuple[int, ...]
    suspects: tuple[int, ...]
    reason: str
    next_step: str
    findings: tuple[Finding, ...]
    sources: tuple[Source, ...]
    warnings: tuple[str, ...]

    def __repr__(self):
        lines = [("verdict", self.verdict)]
        if self.first is not None:
            lines.append(("first", str(self.first)))
            lines += [("", f"{ranks_said(ranks)}: {words}") for words, ranks in self._by_words()]
        for name in ("absent", "ahead", "suspects"):
            ranks = getattr(self, name)
            if ranks:
                lines.append((name, ranks_said(ranks)))
        lines += [("reason", self.reason), ("next", self.next_step)]
        lines += [
            ("also", ": ".join([*_named(one), one.verdict, one.reason]))
            for one in self.findings[1:]
            if one.verdict not in ("healthy",)
        ]
        lines += [("warning", one) for one in self.warnings]
        return "\n".join(line for name, words in lines for line in wrapped(words, f"{name:<9} ", " " * 10))

    def _by_words(self) -> list[tuple[str, list[int]]]:
        grouped: dict[str, list[int]] = {}
        for rank, words in self.first.calls.items():
            grouped.setdefault(words, []).append(rank)
        return list(grouped.items())


def _named(one: Finding) -> list[str]:
    return [f"group {name_of(one.group)}"] if one.group.name else []


def read_hang(paths: str | os.PathLike | Iterable[str | os.PathLike]) -> Hang:
    """The verdict on a job from the files it left: dumps, debug logs, messages, of one or many ranks.

    ``paths``: a file, a folder, or several of either, mixed with anything else. Refused: paths of which none
    can be read. Nothing in the files is executed; dumps may hold plain values only.
    """
    with nothing_collected():
        return hang_of(read_files(paths))


def hang_of(evidence: Evidence) -> Hang:
    """The verdict on what was read."""
    join(evidence)
    chosen, findings = judge(evidence)
    return Hang(
        chosen.verdict,
        chosen.first,
        chosen.absent,
        chosen.ahead,
        chosen.suspects,
        chosen.reason,
        next_step(chosen),
        tuple(findings),
        tuple(evidence.sources),
        tuple(evidence.warnings),
    )
