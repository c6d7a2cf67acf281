"""The jobs by name: what each does wrong, on how many ranks, and whether collectives are checked."""

from collections.abc import Callable
from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.evidence.hang_jobs import scripts
from labkit.spec.checks import shown

MOST_RANKS = 4
LONGEST = 60  # seconds of one rank, from its start on
PATIENCE = 3 * scripts.LIMIT  # seconds for which a rank waits for the dumps of the others


@dataclass(frozen=True, slots=True)
class Job:
    """``run(rank, ranks)`` is what a rank does; ``ranks``: of the recording.

    ``checked``: with TORCH_DISTRIBUTED_DEBUG=DETAIL, which compares collectives before they run; without it
    gloo ends a process whose neighbour sends another size, and nothing can be dumped.
    """

    run: Callable[[int, int], None]
    ranks: int = 4
    least: int = 2
    checked: bool = False

    @property
    def mistake(self) -> str:
        """The mistake in one sentence."""
        return self.run.__doc__


JOBS = {
    "branch": Job(scripts.branch),
    "shape": Job(scripts.shape, checked=True),
    "order": Job(scripts.order),
    "extra_batch": Job(scripts.extra_batch),
    "dtype": Job(scripts.dtype),
    "root": Job(scripts.root),
    "group": Job(scripts.group, ranks=3),
    "missing": Job(scripts.missing),
    "loading": Job(scripts.loading),
    "circular": Job(scripts.circular, ranks=2),
    "walk_on": Job(scripts.walk_on, ranks=3),
    "silent": Job(scripts.silent, ranks=3),
    "abort": Job(scripts.abort, ranks=3),
    "half_filled": Job(scripts.half_filled, ranks=3),
    "skipped": Job(scripts.skipped),
    "ahead": Job(scripts.ahead),
}


def job_named(name: str) -> Job:
    """The job of that name, or a refusal with those there are."""
    if not isinstance(name, str) or name not in JOBS:
        raise InputRefused(f"no hanging job {shown(name)}; use one of {', '.join(JOBS)}")
    return JOBS[name]
