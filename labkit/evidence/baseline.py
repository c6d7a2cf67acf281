"""A measured collective against a baseline: is the implementation slow, or is the volume too large?

The order is the guide's (2.3): first a baseline of the same collective, size and layout, then the time this
job's own messages should take, then the time they did take, and only then a verdict.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.spec import Link
from labkit.units import digits, format_bytes, format_share, format_time


def _above_0(value) -> bool:
    """Whether it is a finite number above 0."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < value < math.inf


@dataclass(frozen=True, slots=True)
class Run:
    """One collective as it ran; ``size`` is one message, the bucket or the activation, not all gradients.

    ``layout`` names the host of every rank, in rank order; only who sits with whom counts, not the names.
    ``seconds`` is the time of one such collective.
    """

    collective: str
    size: float
    n_ranks: int
    layout: tuple
    seconds: float

    def __post_init__(self):
        if len(self.layout) != self.n_ranks:
            raise InputRefused(
                f"{len(self.layout)} hosts in the layout of {self.n_ranks} ranks; name one per rank"
            )
        if not (_above_0(self.size) and _above_0(self.seconds)):
            raise InputRefused(
                f"size {self.size!r} and seconds {self.seconds!r} of a run must be finite and above 0; give "
                "those of one message"
            )

    @property
    def hosts(self) -> tuple[int, ...]:
        """The layout with hosts numbered in order of first appearance.

        >>> Run("all_reduce", 25e6, 4, ("b", "b", "a", "a"), 1e-3).hosts
        (0, 0, 1, 1)
        """
        seen: dict = {}
        return tuple(seen.setdefault(host, len(seen)) for host in self.layout)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When to speak: how far sizes may lie apart, how slow is slow, how large a share of the step is large.

    ``share`` is the guide's 10 % for data parallel (5.4); tensor parallel is given 30 % there.
    """

    size: float = 0.05
    slow: float = 1.5
    share: float = 0.10


USUAL = Thresholds()


def differences(run: Run, baseline: Run, thresholds: Thresholds = USUAL) -> list[str]:
    """Everything that forbids comparing the two, one clause each; empty when comparable (claim 2.3-i)."""
    found = []
    if run.collective != baseline.collective:
        found.append(f"the collective is {run.collective}, the baseline's {baseline.collective}")
    if run.n_ranks != baseline.n_ranks:
        found.append(f"the group has {run.n_ranks} ranks, the baseline's {baseline.n_ranks}")
    elif run.hosts != baseline.hosts:
        rank = next(
            i for i, pair in enumerate(zip(run.hosts, baseline.hosts, strict=True)) if pair[0] != pair[1]
        )
        found.append(
            f"the rank layout differs from rank {rank} on ({_spread(run)}, the baseline {_spread(baseline)})"
        )
    if abs(run.size - baseline.size) > thresholds.size * baseline.size:
        found.append(
            f"the message has {format_bytes(run.size)}, the baseline's {format_bytes(baseline.size)}"
        )
    return found


def _spread(run: Run) -> str:
    """Host numbers in rank order, cut after 16 ranks."""
    shown = " ".join(str(host) for host in run.hosts[:16])
    return f"hosts {shown}{' ...' if run.n_ranks > 16 else ''}"


def compare(run: Run, baseline: Run, thresholds: Thresholds = USUAL) -> float:
    """How many times the baseline's seconds the run took. Raises InputRefused naming every difference.

    >>> here = ("a",) * 8
    >>> compare(Run("all_reduce", 25e6, 8, here, 3e-3), Run("all_reduce", 25e6, 8, here, 2e-3))
    1.5
    """
    found = differences(run, baseline, thresholds)
    if found:
        raise InputRefused(f"not comparable: {'; '.join(found)}; measure a baseline like the run")
    return run.seconds / baseline.seconds


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Numbers of the procedure in its order, and the verdict: ``implementation``, ``volume`` or ``fine``."""

    expected: float
    measured: float
    ratio: float
    expected_share: float
    measured_share: float
    verdict: str
    reason: str


def diagnose(
    messages: Sequence[tuple[Run, Run, float]], step: float, thresholds: Thresholds = USUAL
) -> Diagnosis:
    """Claim 2.3-k: ``messages`` are (as run, its baseline, count per step), ``step`` is the step in seconds.

    ``implementation``: the job's own messages take more than ``thresholds.slow`` times what the baseline says
    (or their ranks wait for late ones: the run's time should be the minimum over ranks). ``volume``: they
    take what they should, and that is more than ``thresholds.share`` of the step, reckoned with nothing
    hidden. Otherwise ``fine``. Raises InputRefused when a message is not comparable with its baseline.

    >>> here = ("a",) * 8
    >>> run, baseline = Run("all_reduce", 25e6, 8, here, 1.1e-3), Run("all_reduce", 25e6, 8, here, 1e-3)
    >>> diagnose([(run, baseline, 560)], step=2.0).verdict
    'volume'
    """
    if not messages or not _above_0(step):
        raise InputRefused(
            f"nothing to diagnose in {len(messages)} messages and a step of {step!r} s; give at least one "
            "message and a finite step longer than 0 s"
        )
    for run, baseline, count in messages:
        if not _above_0(count):
            raise InputRefused(
                f"a count of {count!r} {run.collective} messages per step is not finite and above 0; leave "
                "out what the step does not send"
            )
        compare(run, baseline, thresholds)
    expected = sum(count * baseline.seconds for _, baseline, count in messages)
    measured = sum(count * run.seconds for run, _, count in messages)
    ratio, share = measured / expected, expected / step
    facts = (
        f"measured {format_time(measured)} is {digits(ratio)} times the expected {format_time(expected)}, "
        f"which is {format_share(share)} of the step"
    )
    if ratio > thresholds.slow:
        verdict, reason = "implementation", f"{facts}; the volume does not explain that"
    elif share > thresholds.share:
        verdict, reason = (
            "volume",
            f"{facts}, above {format_share(thresholds.share)}; shrink, hide or confine",
        )
    else:
        verdict, reason = "fine", facts
    return Diagnosis(expected, measured, ratio, share, measured / step, verdict, reason)


@dataclass(frozen=True, slots=True)
class Part:
    """One bar of the waterfall: what adds how many seconds, and the total after it."""

    what: str
    seconds: float
    total: float


def waterfall(
    size: float,
    n_ranks: int,
    link_rate: float,
    measured: float,
    share_at: Callable[[float], float],
    *,
    bucket: float = 25e6,
    gradient_factor: float = 1.0,
) -> list[Part]:
    """Claim 2.3-e: from what a ring should take to what was measured, as parts that add up.

    ``size`` bytes reduced over ``n_ranks`` at ``link_rate`` bytes/s of one direction. The first two parts are
    the reading of algbw as a link rate: size / link_rate, then what a ring sends beyond ``size``. Together
    they are the theoretical time, so the busbw factor cannot explain anything after them. ``gradient_factor``
    is 2 when the job reduces fp32 where ``size`` was reckoned in bf16; ``share_at(size)`` is the share of its
    plateau that a sweep reaches at a message size, from a fit. The last part is what remains: negative when
    the parts explain more than was measured.

    >>> [round(part.total, 2) for part in waterfall(14e9, 8, 50e9, 1.2, lambda size: 0.5)]
    [0.28, 0.49, 0.98, 1.2]
    """
    given = {
        "size": size, "link_rate": link_rate, "measured": measured, "bucket": bucket,
        "gradient_factor": gradient_factor,
    }  # fmt: skip
    for name, value in given.items():
        if not _above_0(value):
            raise InputRefused(f"{name} is {value!r}; give a finite number above 0")
    share = float(share_at(bucket))
    if not 0 < share <= 1:
        raise InputRefused(
            f"a plateau share of {digits(share)} at {format_bytes(bucket)} is not in (0, 1]; check the fit"
        )
    naive = size / link_rate
    ring = collective_cost("all_reduce", "ring", size, n_ranks, Link(0.0, link_rate)).seconds
    wide = ring * gradient_factor
    totals = [
        ("algbw read as the link rate: bytes / rate", naive),
        ("a ring sends 2(N-1)/N of the bytes", ring),
        (f"messages of {format_bytes(bucket)} reach {format_share(share)} of the plateau", wide / share),
        ("left to explain", measured),
    ]
    if gradient_factor != 1:
        totals.insert(2, (f"gradients {digits(gradient_factor)} times as wide", wide))
    before, parts = 0.0, []
    for what, total in totals:
        parts.append(Part(what, total - before, total))
        before = total
    return parts


def plateau_share(fit, size: float) -> float:
    """Share of its bandwidth limit that a fitted sweep reaches at a size: a ``share_at`` for ``waterfall``.

    ``fit`` has ``predict(size)`` in seconds and ``bandwidth``, the algbw limit. Never above 1, even where a
    fit passes its own limit; NaN where the fit tells no time or no limit.
    """
    share = size / float(fit.predict(size)) / fit.bandwidth
    return 1.0 if share > 1 else share
