"""What profiles tell, in sentences: what stands out, what was assumed, and what cannot be told."""

from labkit.evidence.limits import Limits
from labkit.evidence.profile.calls import METADATA, NAMED, RESOLUTION
from labkit.evidence.profile.kinds import COMPUTE
from labkit.evidence.profile.steps import RankProfile
from labkit.evidence.profile.trace import ON_GPU
from labkit.spec.rule import counted
from labkit.units import format_share, format_time

NO_COMMUNICATION = "No communication found"


def findings(ranks: dict[int, RankProfile], limits: Limits) -> list[str]:
    """What stands out: no communication, nothing hidden, and the rank with the largest exposed share."""
    said: dict[str, list[int]] = {}
    for rank, profile in ranks.items():
        if profile.calls and not profile.communication:
            sentence = (
                f"{counted(len(profile.calls), 'collective')} found, of no duration: the trace does not tell "
                "how long communication took, so nothing is known to be hidden or exposed"
            )
        elif profile.communication == 0:
            sentence = (
                f"{NO_COMMUNICATION}: no row of the trace is a collective, so nothing is hidden or exposed"
            )
        elif profile.communication and not profile.overlap:
            sentence = _zero_overlap(profile)
        else:
            continue
        said.setdefault(sentence, []).append(rank)
    says = [f"{_who(found, ranks)}: {sentence}" for sentence, found in said.items()]
    overlapping = [rank for rank, profile in ranks.items() if profile.overlap and _span(profile)]
    if overlapping:
        most = max(overlapping, key=lambda rank: _share(ranks[rank]))
        which = f"rank {most}" + (", which exposes most" if len(overlapping) > 1 else "")
        says += [f"{which}: {sentence}" for sentence in _exposed(ranks[most], limits)]
    return says


def warnings_of(ranks: dict[int, RankProfile]) -> list[str]:
    """What was assumed for a rank, and what its trace cannot tell."""
    said: dict[str, list[int]] = {}
    for rank, profile in ranks.items():
        for sentence in _assumed(profile):
            said.setdefault(sentence, []).append(rank)
    return [f"{_who(found, ranks)}: {sentence}" for sentence, found in said.items()]


def _who(some: list[int], ranks: dict) -> str:
    if len(some) == len(ranks) > 1:
        return "all ranks"
    return (
        f"rank {some[0]}"
        if len(some) == 1
        else f"ranks {', '.join(map(str, some[:6]))}" + " ..." * (len(some) > 6)
    )


def _share(profile: RankProfile) -> float:
    """Exposed communication over all steps."""
    return sum(step.exposed for step in profile.steps) / _span(profile)


def _span(profile: RankProfile) -> float:
    """Seconds of all steps; 0 where there is none, or none lasts any time."""
    return sum(step.total for step in profile.steps)


def _exposed(profile: RankProfile, limits: Limits) -> list[str]:
    """How much of its communication a rank hides, and which of it takes more than the guide's limits."""
    total = _span(profile)
    exposed = sum(step.exposed for step in profile.steps)
    hidden = f"{format_share(profile.coverage)} of its communication is hidden"
    says = [f"{hidden}; {format_time(exposed)} are exposed, {format_share(_share(profile))} of the steps"]
    for cause, limit, what in (
        ("dp", limits.data, "data-parallel"),
        ("tp", limits.tensor, "tensor-parallel"),
    ):
        seconds = sum(getattr(step, cause) for step in profile.steps)
        if seconds > limit * total:
            says.append(
                f"exposed {what} communication takes {format_share(seconds / total)} of the steps, beyond "
                f"the guide's {format_share(limit)}"
                + (
                    "; the host shows this time inside backward() or where it waits for it"
                    if cause == "dp"
                    else ""
                )
            )
    return says


def _zero_overlap(profile: RankProfile) -> str:
    """Why nothing is hidden: that is what the trace has, not a failure to read it."""
    calls = [call for call, _ in profile.calls]
    work = profile.trace.work
    streams = {call.thread for call in calls}
    computing = set(work["thread"][work["kind"] == ON_GPU.index(COMPUTE)].tolist()) if len(work) else set()
    why = "each collective runs while nothing computes: work waits for its result, or its calls block"
    if not profile.compute:
        why = "the trace has nothing that computes"
    elif not profile.host_time and streams <= computing:
        why = "collectives run on the stream that computes, in turn with it; give them one of their own"
    elif all(call.start >= _last_compute(profile, place) - RESOLUTION for call, place in profile.calls):
        why = "all collectives start after the last computing: overlap is off, or one bucket holds all"
    exposed = format_time(profile.exposed)
    return f"compute and communication never overlap, all {exposed} of communication are exposed; {why}"


def _last_compute(profile: RankProfile, place: int | None) -> float:
    """When computing (not the update of the weights) ends in a step."""
    part = profile.parts["compute"]
    if place is None or not part.size:
        return float("inf")
    start, stop = profile.windows[place]
    last = int(part[:, 1].searchsorted(stop, "right")) - 1
    return float(part[last, 1]) if last >= 0 and part[last, 0] >= start else float("inf")


def _assumed(profile: RankProfile) -> list[str]:
    trace, says = profile.trace, []
    if trace.left_out:
        says.append(f"{counted(trace.left_out, 'row')} without a usable name, time or duration left out")
    if trace.unpaired:
        says.append(
            f"{counted(trace.unpaired, 'row')} not read, which mark the begin or the end of a stretch alone "
            "(ph B, E), as other tracers do; export complete ones (ph X), as torch.profiler does"
        )
    if trace.strangers:
        says.append(
            f"{counted(sum(trace.strangers.values()), 'row')} left out, of processes which are not named "
            f"after a rank: {', '.join(list(trace.strangers)[:6])}{' ...' * (len(trace.strangers) > 6)}"
        )
    if not trace.rows:
        none = "no other row" if says else "the trace has no row"
        return [*says, f"{none} with a duration (metadata only); it tells nothing"]
    if trace.nothing_kept:
        return [*says, "no usable row of the trace is one that torch.profiler writes (kernel, cpu_op ...)"]
    says += profile.notes
    if profile.communication is None:
        what = "calls only put kernels into a queue" if trace.host_collectives else "its rows are of the host"
        return [
            *says,
            "the trace has no rows of a GPU; annotations such as nccl:all_reduce are host time and say "
            f"nothing of the communication ({what}); record with ProfilerActivity.CUDA",
        ]
    if profile.host_time:
        says.append("the trace has no rows of a GPU: all is host time, waiting for a core included")
    if profile.numbers and profile.numbers[0] is None:
        says.append("the trace has no ProfilerStep: all of it is taken as one step; call profiler.step()")
    calls = [call for call, _ in profile.calls]
    if not calls:
        return says
    untrue = sum(call.untrue for call in calls)
    if untrue:
        says.append(
            f"{counted(untrue, 'collective')} whose list of the group's ranks cannot be one (a rank that "
            "occurs twice, is negative or too large); it is left out"
        )
    bare = sum(call.told_by != METADATA for call in calls)
    named = sum(call.told_by == NAMED for call in calls)
    if bare and bare < len(calls):
        says.append(
            f"{bare} of {len(calls)} collectives have no metadata (as coalesced calls): no group, no size"
        )
    elif bare:
        says.append(
            f"{counted(len(calls), 'collective')} without any metadata: no groups, no sizes, no busbw"
        )
    if named:
        says.append(
            f"{counted(named, 'operation')} told by kernel names alone, which have send_recv for all_to_all"
        )
    if not all(call.surely for call in calls):
        says.append(
            "the names of its groups do not tell their parallelism: all_to_all is taken as expert, send and "
            "receive as pipeline, all else as data parallel"
        )
    return says
