"""Why memory ran out: fragmentation, a leak, or a long batch. A restart makes all of them go, for a while.

All that is needed stands in the message of the failure and in two counters that PyTorch keeps
(``memory_allocated`` between steps, ``memory_reserved``).
"""

from dataclasses import dataclass

from labkit.practice.allocator.steps import History
from labkit.spec.checks import amount, noun
from labkit.units import format_bytes

VERDICTS = ("none", "fragmentation", "leak", "long batch")
_REMEDIES = {
    "none": "nothing",
    "fragmentation": "expandable segments first; then fewer shapes (packing, padding), or smaller ones",
    "leak": "find what keeps tensors alive: a memory snapshot",
    "long batch": "cut or bucket the longest sequences, recompute, a smaller micro-batch",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``verdict``, one of ``VERDICTS``, the ``reason`` with its numbers, and what to do: ``remedy``.

    Bytes: ``missing``, what all free memory of the device lacks for the request (below 0: it is enough);
    ``grown``, by how much more is held between micro-batches than after the first.
    """

    verdict: str
    reason: str
    remedy: str
    missing: int
    grown: int


def cause_of_failure(capacity, allocated, reserved, asked, grown) -> str:
    """The verdict on a request that failed, all in bytes: fragmentation, leak or long batch.

    ``capacity`` of the device, less what others hold; ``allocated`` and ``reserved`` as the message of the
    failure has them, ``asked`` what could not be had; ``grown``: what is held between steps now, less what
    was held after the first one (below 0: 0). Free memory is capacity less allocated, wherever it lies. If
    that is enough for the request, it was in pieces, unless more has leaked than lies in all the pieces. If
    it is not, the growth decides: without it the request would have been met, or not even then. Refused:
    negative numbers.

    >>> [cause_of_failure(80e9, 60e9, reserved, 5e9, grown) for reserved, grown in ((79e9, 0), (62e9, 30e9))]
    ['fragmentation', 'leak']
    >>> cause_of_failure(80e9, 76e9, 78e9, 5e9, 0)
    'long batch'
    """
    capacity, allocated = _bytes(capacity, "the capacity"), _bytes(allocated, "what is allocated")
    reserved, asked = _bytes(reserved, "what is reserved"), _bytes(asked, "what was asked for")
    grown = _bytes(grown, "what is held more than after the first step")
    missing, pieces = asked - (capacity - allocated), reserved - allocated
    if missing <= 0 and grown <= pieces:
        return "fragmentation"
    return "leak" if grown >= missing else "long batch"


def _bytes(value, what: str) -> float:
    return float(amount(value, f"{what}, in bytes,", zero=True, arrays=False))


def diagnose(history: History) -> Diagnosis:
    """The cause of an out-of-memory error of a run, with its reason; see ``cause_of_failure``."""
    noun(history, History, "the history")
    grown = int(history.held[-1] - history.held[0]) if len(history.held) else 0
    if history.failed is None:
        unused = format_bytes(max(int(history.unused[-1]), 0))
        reason = f"{unused} are reserved and not allocated even at the widest moment of the last one"
        return Diagnosis("none", reason, _REMEDIES["none"], 0, grown)
    allocated, reserved = history.at_failure
    verdict = cause_of_failure(history.capacity, allocated, reserved, history.asked, max(grown, 0))
    free = history.capacity - allocated
    why = {
        "fragmentation": f", of which {format_bytes(reserved - allocated)} lie between blocks in use",
        "leak": f"; {format_bytes(grown)} more are held between micro-batches than after the first",
        "long batch": ", and nothing that was held has grown enough to matter",
    }[verdict]
    reason = f"{format_bytes(history.asked)} asked for, {format_bytes(free)} not allocated{why}"
    return Diagnosis(verdict, reason, _REMEDIES[verdict], history.asked - free, grown)
