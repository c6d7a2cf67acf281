"""``health``: the scorecard of a running job (guide, 5.4): figures, their limits, and what to look at next.

Five figures are the guide's: scaling efficiency, exposed communication of data and of tensor parallelism,
MFU, spread of the ranks. Steps that differ from each other, and limits that contradict each other, are added
where they show. A figure that rests on something unmeasured is not guessed: the finding says what to measure.
"""

from dataclasses import dataclass

import numpy as np

from labkit.evidence import blame
from labkit.evidence.limits import GUIDE, Limits, efficiency_needed, scaling_efficiency
from labkit.evidence.measured import Measured
from labkit.spec.checks import noun
from labkit.units import format_share, format_time, words

HEALTHY, UNHEALTHY, UNKNOWN, CONFLICT = "healthy", "unhealthy", "cannot be told", "conflict"
ROUNDED = 1 + 1e-9  # a figure on its limit is within it, whatever its last digit
# The limits of the other metrics are upper ones.
AT_LEAST = ("scaling_efficiency", "mfu", "implied_mfu", "implied_efficiency")


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure of a running job, as a share, held against its limit.

    Metrics: ``scaling_efficiency data_parallel_exposed tensor_parallel_exposed mfu rank_spread``, also
    ``step_scatter``, and ``implied_mfu implied_efficiency`` for limits that contradict each other. ``value``
    is None where it cannot be told. Verdicts: ``healthy``, ``unhealthy``, ``cannot be told``, ``conflict``.
    ``look_at`` says what to look at, or measure, next; ``evidence`` what the verdict rests on.
    """

    metric: str
    value: float | None
    threshold: float
    verdict: str
    look_at: str
    evidence: str = ""

    @property
    def limit(self) -> str:
        """The threshold in words.

        >>> Finding("mfu", 0.36, 0.40, "unhealthy", "").limit
        'at least 40 %'
        """
        return f"at {'least' if self.metric in AT_LEAST else 'most'} {format_share(self.threshold)}"


class Scorecard(list):
    """The findings of one job: a list that prints as a readable report."""

    def __repr__(self):
        rows = []
        for one in self:
            value = "-" if one.value is None else format_share(one.value)
            rows.append((words(one.metric), value, one.limit, one.verdict))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row, finding in zip(rows, self, strict=True):
            padded = zip(row, widths, strict=True)
            lines.append("  ".join(text.ljust(width) for text, width in padded).rstrip())
            for name, text in (("evidence", finding.evidence), ("look at", finding.look_at)):
                lines += [f"    {name}: {text}"] if text else []
        return "\n".join(lines)

    def of(self, metric: str) -> Finding | None:
        """The finding of one metric, None where there is none."""
        return next((finding for finding in self if finding.metric == metric), None)


def health(measured: Measured, limits: Limits = GUIDE) -> Scorecard:
    """The scorecard of a job: a list of findings, the guide's five first (claims 5.4-a to 5.4-h).

    Shares of a step are exposed seconds over the seconds of the step; what all collectives take together,
    hidden or not, stands in the evidence. Refused: what is not ``Measured``.

    >>> from labkit.evidence.measured import Throughput
    >>> slower = Measured(throughput=Throughput(160, 16), base=Throughput(240, 8, "one node"))
    >>> first = health(slower)[0]
    >>> first.metric, round(first.value, 2), first.verdict
    ('scaling_efficiency', 0.33, 'unhealthy')
    """
    noun(measured, Measured, "what was measured")
    noun(limits, Limits, "the limits")
    found = Scorecard([_efficiency(measured, limits)])
    found.append(_exposed(measured, "data", limits.data, blame.data_parallel))
    found.append(_exposed(measured, "tensor", limits.tensor, blame.tensor_parallel))
    too_much = [finding.metric for finding in found[1:] if finding.verdict == UNHEALTHY]
    found.append(_mfu(measured, limits, too_much))
    found.append(_spread(measured, limits))
    if measured.steps is not None and measured.steps.size > 1:
        found.append(_scatter(measured, limits))
    found += _conflicts(measured, limits, found)
    return found


def _efficiency(measured: Measured, limits: Limits) -> Finding:
    job, base = measured.rate, measured.base
    metric, least = "scaling_efficiency", limits.efficiency[-1][1]
    if job is not None:
        least = limits.efficiency_at(job.gpus)
    if job is None or base is None:
        says = "throughput of the job, and of its smallest replica that runs with the same plan and batch"
        return Finding(metric, None, least, UNKNOWN, f"measure the {says}")
    if job.gpus % base.gpus:
        says = f"{job.gpus} GPUs are no whole number of replicas of {base.gpus}: their plans differ"
        return Finding(metric, None, least, UNKNOWN, "measure a base that the job is a multiple of", says)
    value = scaling_efficiency(job.per_s, job.gpus, base.per_s, base.gpus)
    least = limits.efficiency_at(job.gpus, base.gpus)
    evidence = (
        f"{job.per_s:,.6g}/s on {job.gpus} GPUs; base: {base.what}, {base.per_s:,.6g}/s on {base.gpus}, "
        "taken to have the same plan and batch in each replica"
    )
    if value * ROUNDED >= least:
        return Finding(metric, value, least, HEALTHY, "", evidence)
    return Finding(metric, value, least, UNHEALTHY, blame.efficiency(job, base), evidence)


def _exposed(measured: Measured, kind: str, most: float, reason) -> Finding:
    metric, term, step = f"{kind}_parallel_exposed", kind[0] + "p", measured.step
    if not measured.knows(term):
        says = f"profile a step: seconds of the {kind}-parallel collectives beside which nothing is computed"
        return Finding(metric, None, most, UNKNOWN, says)
    exposed = getattr(step, term)
    evidence = f"{format_time(exposed)} of {format_time(step.total)} exposed"
    if step.communication is None:
        evidence += "; how long all collectives run, hidden or not, is not known"
    else:
        total = format_share(step.communication / step.total)
        evidence += (
            f"; all collectives run {format_time(step.communication)}, {total} of the step, "
            f"{format_share(step.coverage)} hidden"
        )
    if measured.late:
        evidence += f", and may hold {format_time(measured.late)} of waiting for the last rank"
    value = exposed / step.total
    if value <= most * ROUNDED:
        return Finding(metric, value, most, HEALTHY, "", evidence)
    return Finding(metric, value, most, UNHEALTHY, reason(measured, most), evidence)


def _mfu(measured: Measured, limits: Limits, too_much: list[str]) -> Finding:
    metric, least, step = "mfu", limits.mfu[0], measured.step
    if step is None or step.mfu is None:
        says = (
            "seconds, tokens and GPUs of a step; model FLOPs are 6 per parameter and token, and attention's; "
            "the peak is the dense one of the precision used"
        )
        return Finding(metric, None, least, UNKNOWN, f"measure {says}")
    counted = {None: "it is not said whether in full or causal", True: "causal", False: "in full"}
    evidence = (
        "model FLOPs, nothing computed again, over the dense peak; attention counted: "
        f"{counted[measured.causal]}; the guide's range ends at {format_share(limits.mfu[1])}"
    )
    if step.mfu > 1:
        look_at = "the count: FLOPs of all GPUs, tokens of a whole step, and the dense peak of the precision"
        return Finding(metric, step.mfu, least, UNHEALTHY, look_at, f"more than the peak; {evidence}")
    if step.mfu * ROUNDED >= least:
        return Finding(metric, step.mfu, least, HEALTHY, "", evidence)
    look_at, loses = blame.utilisation(measured, limits, too_much)
    return Finding(metric, step.mfu, least, UNHEALTHY, look_at, f"{evidence}; {loses}")


def _spread(measured: Measured, limits: Limits) -> Finding:
    metric, most = "rank_spread", limits.spread
    work, arrivals, step = measured.work, measured.rank_arrivals, measured.step
    if work is not None:
        longest = work.max(-1)
        value = float(np.median((longest - work.min(-1)) / np.where(longest > 0, longest, 1.0)))
        evidence = f"own work outside of collectives, {work.shape[1]} ranks: {_range(np.median(work, 0))}"
    elif arrivals is not None and step is not None:
        arrivals = np.atleast_2d(arrivals)
        value = float(np.median(np.ptp(arrivals, axis=-1))) / step.total
        evidence = f"from the first rank to the last at a collective, in shares of {format_time(step.total)}"
    else:
        evidence = ""
        if measured.rank_steps is not None:
            evidence = (
                f"steps of {measured.rank_steps.size} ranks, {_range(measured.rank_steps)}, say nothing: a "
                "synchronous step ends for all at once"
            )
        says = "measure on every rank its own work outside of collectives, or when it comes to a collective"
        return Finding(metric, None, most, UNKNOWN, says, evidence)
    if value <= most * ROUNDED:
        return Finding(metric, value, most, HEALTHY, "", evidence)
    look_at, why = blame.spread(measured, limits)
    return Finding(metric, value, most, UNHEALTHY, look_at, f"{evidence}; {why}")


def _scatter(measured: Measured, limits: Limits) -> Finding:
    low, middle, high = np.quantile(measured.steps, (0, 0.5, 0.9))
    value, most = float((high - middle) / middle), limits.spread
    evidence = (
        f"{measured.steps.size} steps: fastest {format_time(low)}, median {format_time(middle)}, one in ten "
        f"above {format_time(high)}; not the guide's, it takes the limit of the ranks"
    )
    if value <= most * ROUNDED:
        return Finding("step_scatter", value, most, HEALTHY, "", evidence)
    look_at = "what runs in some steps only: loading, saving checkpoints, evaluation, others on the network"
    return Finding("step_scatter", value, most, UNHEALTHY, look_at, evidence)


def _conflicts(measured: Measured, limits: Limits, found: Scorecard) -> list[Finding]:
    """Limits that pass where another, which follows from them, fails (claim 5.4-f)."""
    conflicts, step = [], measured.step
    efficiency, mfu = found.of("scaling_efficiency"), found.of("mfu")
    if efficiency.verdict == HEALTHY and mfu.verdict == UNHEALTHY and mfu.value < 1:
        single = measured.base_mfu or min(mfu.value / efficiency.value, 1.0)
        implied, needed = efficiency.threshold * single, efficiency_needed(mfu.threshold, single)
        evidence = (
            f"an efficiency that just passes, {format_share(efficiency.threshold)} of a base with "
            f"{format_share(single)}, implies this MFU"
        )
        look_at = f"the MFU: its limit takes an efficiency of {format_share(needed)}"
        if implied < mfu.threshold:
            conflicts.append(Finding("implied_mfu", implied, mfu.threshold, CONFLICT, look_at, evidence))
    shares = [finding for finding in found[1:3] if finding.value is not None]
    of_one_gpu = measured.base is None or measured.base.gpus == 1
    if step is not None and step.gpus and of_one_gpu and all(one.verdict == HEALTHY for one in shares):
        implied, least = 1 - blame.lost(measured) / step.total, limits.efficiency_at(step.gpus)
        if shares and implied < least:
            parts = [f"{format_share(one.value)} {words(one.metric)}" for one in shares]
            parts += [f"{format_share(step.bubble / step.total)} bubble"] if step.bubble else []
            evidence = f"{', '.join(parts)}: no share is beyond its limit, but they add up"
            look_at = "the sum: the limits of the single shares do not keep that of the efficiency"
            conflicts.append(Finding("implied_efficiency", implied, least, CONFLICT, look_at, evidence))
    return conflicts


def _range(seconds) -> str:
    return f"{format_time(np.min(seconds))} to {format_time(np.max(seconds))}"
