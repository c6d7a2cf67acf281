"""What programs say that compare their own calls: fingerprints and monitored barriers.

Spellings were read in torch/csrc/distributed/c10d/{ProcessGroupWrapper,ProcessGroupGloo}.cpp. A fingerprint
prints the shape of the first tensor only. One without a shape, of an operation that has tensors, is a record
that did not survive its transfer (DeepSpeed issue 7568 shows such a GATHER): no finding.
"""

import re
from dataclasses import replace
from itertools import pairwise

from labkit.evidence.hang.lines import following, operation, rank_of
from labkit.evidence.hang.records import Call, Evidence, Group, Note

_PRINT = re.compile(
    r"Rank\s*(\d{1,7})\s*is\s*running\s*(inconsistent\s*)?collective:?\s*CollectiveFingerPrint\(\s*"
    r"(?:SequenceNumber\s*=\s*(\d{1,18}),?\s*)?OpType\s*=\s*([A-Z_]{1,60})"
    r"(?:,\s*TensorShape\s*=\s*\[([\d,\s]{0,400})\])?(?:,\s*TensorDtypes\s*=\s*([A-Za-z0-9_, ]{1,200}?)"
    r"(?=,\s*Tensor|\)))?"
)
_BARRIER = re.compile(
    r"Ranks?\s*(\d{1,7}(?:,\s*\d{1,7}){0,5000})\s*failed\s*to\s*pass\s*monitoredBarrier\s*in\s*(\d{1,12})\s*ms"
)
_MOST = 20_000  # pairs and notes


class FingerprintReader:
    """Takes the lines of one log, in order; ``finish`` gives what they say."""

    def __init__(self, path: str):
        self.path = path
        self.pairs: dict[tuple, tuple[Call, Call]] = {}
        self.notes: dict[tuple, Note] = {}
        self.unread: dict[str, str] = {}

    def marked(self, line: str) -> bool:
        """Whether a line may be of interest here."""
        return "CollectiveFingerPrint" in line or "monitoredBarrier" in line

    def take(self, lines: list[str], at: int) -> None:
        """Sort one marked line; what it continues on lines after it belongs to it."""
        text = following(lines, at)
        where = f"{self.path}:{at + 1}"
        prints = list(_PRINT.finditer(text))
        for one, other in pairwise(prints):
            if one[1] != other[1] and len(self.pairs) < _MOST:
                self._pair(one, other, where, rank_of(text[: one.start()]))
        if len(prints) == 1 and (prints[0][2] or " but " not in text):
            words = "this rank's call differs from that of another rank, which is not named"
            self._note("mismatch", f"{_said(prints[0])}: {words}", where, (int(prints[0][1]),))
        for found in _BARRIER.finditer(text):
            words = f"did not reach the monitored barrier within {int(found[2]) / 1e3:g} s"
            self._note("no rendezvous", words, where, _ranks(found[1]))

    def _pair(self, one: re.Match, other: re.Match, where: str, speaker: int | None) -> None:
        for torn, whole in ((one, other), (other, one)):
            if torn[5] is None and torn[4] not in ("BARRIER", "MONITORED_BARRIER"):
                self.unread.setdefault(
                    torn[0],
                    f"{where}: the record of {_said(torn)} has no shape and cannot be read, so "
                    f"{_said(whole)} is compared with nothing",
                )
                return
        calls = sorted((_call(one, where), _call(other, where)), key=lambda call: call.rank)
        if speaker is not None and speaker != int(one[1]):
            # It counts within its group: who the other rank is in the job is not said.
            calls = [replace(_call(one, where), rank=speaker), replace(_call(other, where), rank=None)]
        key = tuple((call.rank, call.sequence, call.operation, call.sizes_in, call.dtype) for call in calls)
        self.pairs.setdefault(key, (calls[0], calls[1]))

    def _note(self, kind: str, words: str, where: str, ranks: tuple[int, ...]) -> None:
        if len(self.notes) < _MOST:
            self.notes.setdefault((kind, words, ranks), Note(kind, words[:300], where, ranks=ranks))

    def finish(self, evidence: Evidence) -> None:
        """Add the pairs of unequal calls, the ranks that are named as missing, and what cannot be read."""
        evidence.pairs += self.pairs.values()
        evidence.notes += self.notes.values()
        evidence.warnings += self.unread.values()


def _call(found: re.Match, where: str) -> Call:
    rank, _, sequence, name, shape, dtypes = found.groups()
    sizes = None if shape is None else (tuple(int(size) for size in re.findall(r"\d{1,18}", shape)),)
    dtype = (dtypes or "").split(",")[0].strip().lower()
    number = None if sequence is None else int(sequence)
    return Call(int(rank), Group(""), number, operation(name), where, sizes_in=sizes, dtype=dtype)


def _said(found: re.Match) -> str:
    number = "" if found[3] is None else f" {found[3]}"
    return f"rank {found[1]}'s {operation(found[4])}{number}"


def _ranks(listed: str) -> tuple[int, ...]:
    return tuple(int(rank) for rank in re.findall(r"\d{1,7}", listed))
