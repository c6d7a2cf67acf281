"""Who is to blame for a figure beyond its limit: one rule for each, in words (claims 5.4-e and 5.4-h).

The order matters. Waiting is subtracted before loading or kernels are blamed, and late ranks before the
network: a profiler books the time for which a rank waits inside a collective as communication.
"""

from collections import Counter

import numpy as np

from labkit.evidence.limits import Limits
from labkit.evidence.measured import Measured, Throughput
from labkit.units import digits, format_share

BANDWIDTH_BOUND = 0.9  # share of the bandwidth from which larger messages gain next to nothing
MOSTLY = 0.5  # share from which one cause stands for the whole


def efficiency(job: Throughput, base: Throughput) -> str:
    """A low scaling efficiency: the guide's rule, and before it the one for a job that got slower."""
    if job.per_s < base.per_s:
        return (
            f"the network, before anything else: {job.gpus} GPUs get less done together than {base.gpus}; "
            "measure its bandwidth between pairs of nodes"
        )
    return "how the cut lies on the topology: do tensor-parallel groups leave the node, is the network shared"


def lost(measured: Measured) -> float:
    """Seconds of a step that are neither computing nor updating weights: exposed, waiting, loading."""
    step = measured.step
    return step.exposed + step.bubble + step.data + max(step.idle, measured.late or 0.0)


def data_parallel(measured: Measured, most: float) -> str:
    """Too much exposed data-parallel communication: late ranks, latency, or bandwidth."""
    share = measured.bucket_share
    if _within_without_waiting(measured, "dp", most):
        return "the late ranks, not the network: without the waiting for them the share is within its limit"
    if share is None:
        return (
            "what is not hidden: does the reduction start during the backward pass; then the size of the "
            "buckets, then accumulating more micro-batches before it"
        )
    gain = f"larger ones can make it at most {digits(1 / share)} times as fast"
    if share >= BANDWIDTH_BOUND:
        return (
            f"bytes and bandwidth, not the buckets: they reach {format_share(share)} of the link, {gain}; "
            "send less often (accumulate), send less, or use a faster network"
        )
    return f"the size of the buckets: they reach {format_share(share)} of the link, {gain}"


def tensor_parallel(measured: Measured, most: float) -> str:
    """Too much exposed tensor-parallel communication."""
    if _within_without_waiting(measured, "tp", most):
        return "the late ranks, not the links: without the waiting for them the share is within its limit"
    return "whether the tensor-parallel group stays in a node; then a smaller degree, or a larger micro-batch"


def _within_without_waiting(measured: Measured, term: str, most: float) -> bool:
    """Whether the collectives would be within their limit if nobody came late."""
    late, step = measured.late, measured.step
    return bool(late) and (getattr(step, term) - late) / step.total <= most


def utilisation(measured: Measured, limits: Limits, too_much: list[str]) -> tuple[str, str]:
    """A low MFU: what to look at, and the shares that it rests on.

    Exposed communication beyond its limit, as the guide has it, or whichever of bubble, waiting and recompute
    takes more; loading and kernels only when all these are known and do not explain it.
    """
    step, least = measured.step, limits.mfu[0]
    takes = {
        "the pipeline bubble": step.bubble,
        "waiting for other ranks": max(step.idle, measured.late or 0.0),
        "recompute": _recomputed(measured),
    }
    shares = [f"{what} {format_share(seconds / step.total)}" for what, seconds in takes.items() if seconds]
    working = step.total - sum(takes.values())
    without = step.mfu * step.total / working if working > 0 else 1.0
    says = f"{', '.join(shares)} of the step; without them {format_share(without)}" if shares else ""
    unmeasured = [] if measured.knows("bubble") else ["the pipeline bubble"]
    if not (measured.knows("idle") or measured.late is not None):
        unmeasured.append("waiting for other ranks")
    if unmeasured:
        says += ("; " if says else "") + f"not measured: {' and '.join(unmeasured)}"
    says = says or "neither bubble nor waiting nor recompute takes any of it"
    largest = max(takes, key=takes.get)
    if too_much and step.exposed >= takes[largest]:
        return "the exposed communication first, which is beyond its limit", says
    if too_much:
        return f"{largest} first, then the exposed communication, which is beyond its limit", says
    if without >= least and shares:
        return f"{largest}: not loading, not the kernels, not the network", says
    if unmeasured:
        return f"measure {' and '.join(unmeasured)} first; what is left can be loading or kernels", says
    return _sending_loading_or_kernels(measured, least, working), says


def _sending_loading_or_kernels(measured: Measured, least: float, working: float) -> str:
    """What is left when nobody waits: communication of no single share too large, input, or the work."""
    step = measured.step
    working = max(working - step.exposed, 1e-3 * working)
    if step.mfu * step.total / working >= least:
        of_it = format_share(step.exposed / step.total)
        return f"the exposed communication: {of_it} of the step in all, though no share is beyond its limit"
    if not measured.knows("data"):
        return "data loading or kernels: measure how long a step waits for its input"
    loads = step.data / step.total
    if step.mfu * step.total / max(working - step.data, 1e-3 * working) >= least:
        return f"data loading: a step waits for its input {format_share(loads)} of its time"
    return (
        f"the kernels: shapes, precision, fusion, launches; loading takes {format_share(loads)} of the step "
        "and does not explain it"
    )


def _recomputed(measured: Measured) -> float:
    """Seconds in which is computed again what recompute had dropped, at the speed of the rest."""
    step = measured.step
    if not step.hardware_flops:
        return 0.0
    return step.compute * max(0.0, 1 - step.model_flops / step.hardware_flops)


def spread(measured: Measured, limits: Limits) -> tuple[str, str]:
    """Ranks that lie apart: where the work is uneven, and what says so.

    Stages of a pipeline, experts and long samples are told apart by what is known of the ranks, and by
    whether it is the same rank step after step.
    """
    times = np.atleast_2d(measured.rank_work if measured.rank_work is not None else measured.rank_arrivals)
    slowest = Counter(times.argmax(-1).tolist()).most_common(1)[0]
    rank, share = slowest[0], slowest[1] / len(times)
    steady = share >= MOSTLY
    who = f"rank {rank} is the last"
    if len(times) > 1:
        who += f" in {format_share(share)} of {len(times)} steps"
    typical = np.median(times, axis=0)
    stage = _stages_apart(typical, measured.rank_stage)
    if steady and stage is not None:
        return f"how the layers are divided: stage {stage:g} has more work than the others", who
    for tokens, what in (
        (measured.rank_expert_tokens, "the experts: those of rank {} were given {} times the mean"),
        (measured.rank_tokens, "the samples: rank {} had {} times the mean of tokens; pack them by length"),
    ):
        if steady and tokens is not None and tokens[rank] > (1 + limits.spread) * tokens.mean():
            return what.format(rank, digits(tokens[rank] / tokens.mean())), who
    if not steady:
        return "the samples: another rank is the last each time, as with sequences of different length", who
    if len(times) == 1:
        return "is it the same rank each step? Then its stage, experts or node, else its samples", who
    return f"rank {rank} itself: its stage, its experts, then its node (clock, PCIe, other jobs)", who


def _stages_apart(typical: np.ndarray, stage) -> float | None:
    """The stage with the most work, where the stages explain most of the spread."""
    if stage is None or np.unique(stage).size < 2:
        return None
    names = np.unique(stage)
    means = np.array([typical[stage == name].mean() for name in names])
    return float(names[means.argmax()]) if np.ptp(means) >= MOSTLY * np.ptp(typical) > 0 else None
