"""Measured against expected duration of a collective, and what its measured time is made of (claim 6.2-e).

A rank that comes early waits inside the collective, and a profiler books that as communication. The rank that
comes last waits for nobody: the **shortest** duration over the ranks is the transfer, the rest is waiting.
"""

from dataclasses import dataclass

import numpy as np

from labkit.collectives import busbw_factor
from labkit.errors import InputRefused
from labkit.spec.checks import amount, floats, label, shown, whole


@dataclass(frozen=True, slots=True)
class Exchange:
    """One collective of a step, measured: ``count`` calls a step of ``operation`` on ``size`` bytes (S).

    ``ranks``: of the group; ``busbw``: what the same collective reaches on these nodes when nothing else
    runs, in bytes/s. Size and busbw may be None, not known. ``seconds``: how long a call takes, of one rank
    (a number), of each rank, shape (ranks,), or of several calls, shape (calls, ranks). ``members``: the
    numbers of these ranks in the job, 0 and up unless given. Refused: other shapes, and what is not above 0.

    >>> late = Exchange("all_reduce", 26e9, 8, 182e9, [0.9, 0.9, 0.9, 0.25, 0.9, 0.9, 0.9, 0.9])
    >>> [round(value, 2) for value in (late.expected, late.measured, late.transfer, late.waiting)], late.last
    ([0.25, 0.82, 0.25, 0.57], 3)
    """

    operation: str
    size: float | None
    ranks: int
    busbw: float | None
    seconds: np.ndarray
    count: int = 1
    members: tuple[int, ...] = ()

    def __post_init__(self):
        label(self.operation, "the operation of a collective")
        busbw_factor(self.operation, whole(self.ranks, "the ranks of a collective", least=2))
        for name, what in (("size", "the size of a collective, in bytes,"), ("busbw", "the bus bandwidth")):
            if getattr(self, name) is not None:
                amount(getattr(self, name), what, arrays=False)
        whole(self.count, "the calls of a collective in a step")
        members = self.members if isinstance(self.members, tuple | list) else (self.members,)
        members = tuple(whole(rank, "a rank of a collective", least=0) for rank in members)
        if members and len(members) != self.ranks:
            raise InputRefused(
                f"a collective of {self.ranks} ranks has {len(members)} members; name each of its ranks"
            )
        object.__setattr__(self, "members", members or tuple(range(self.ranks)))
        array = floats(self.seconds)
        good = array.ndim < 3 and np.all(array > 0) and np.all(np.isfinite(array))
        if not good or (array.ndim and array.shape[-1] not in (1, self.ranks)):
            raise InputRefused(
                f"the seconds of a collective of {self.ranks} ranks are {shown(self.seconds)}; give one "
                "number, one for each rank, or a row of them for each call, all above 0"
            )
        object.__setattr__(self, "seconds", np.atleast_2d(array))

    @property
    def expected(self) -> float | None:
        """Seconds of a call: the traffic of a rank, S x 2(N-1)/N and so on, over the measured busbw.

        None without size or busbw.
        """
        if self.size is None or self.busbw is None:
            return None
        return self.size * busbw_factor(self.operation, self.ranks) / self.busbw

    @property
    def every_rank(self) -> bool:
        """Whether each rank's duration is known."""
        return self.seconds.shape[1] == self.ranks

    @property
    def measured(self) -> float:
        """Seconds of a call, mean of the ranks and calls: what a profile shows."""
        return float(self.seconds.mean())

    @property
    def transfer(self) -> float | None:
        """Seconds of the call's shortest rank (mean of the calls); None where only one rank was measured."""
        return float(self.seconds.min(axis=1).mean()) if self.every_rank else None

    @property
    def waiting(self) -> float | None:
        """Seconds that a mean rank waits for the last one; None where only one rank was measured."""
        return self.measured - self.transfer if self.every_rank else None

    @property
    def last(self) -> int | None:
        """The rank that costs most waiting by coming last, so that its own call is the shortest."""
        if not self.every_rank:
            return None
        waits = self.seconds.mean(axis=1) - self.seconds.min(axis=1)
        return self.members[np.bincount(self.seconds.argmin(axis=1), waits).argmax()]
