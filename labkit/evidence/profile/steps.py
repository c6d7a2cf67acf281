"""Where the seconds of each step went on one rank, by intersections and differences of what ran when.

A step is a ``ProfilerStep#N`` of the host. Its work on the GPU may run after the host is done with it, so it
lasts until the work that was launched within it ends; the next begins there, or when the host begins it.
"""

import re
from dataclasses import dataclass

import numpy as np

from labkit.evidence.profile.calls import Call, gpu_calls, host_calls, launch_times, runs_on_host
from labkit.evidence.profile.kinds import COMPUTE, COPY
from labkit.evidence.profile.trace import ON_GPU, Annotation, Trace
from labkit.intervals import intersection, intervals, length, subtract, union
from labkit.spec import StepTime
from labkit.spec.step_time import COMMUNICATION

_STEP = re.compile(r"ProfilerStep#(\d{1,12})")


@dataclass(frozen=True, slots=True)
class RankProfile:
    """One rank's trace. Seconds over the whole of it: ``communication`` and ``compute`` as unions,
    ``overlap`` of both, ``copies``; ``parts``: the sets of intervals that steps are cut from.

    ``steps``: of each step, under its number in ``numbers``, from and to the seconds in ``windows``.
    ``host_time``: whether all is seconds of the host, for want of rows of a GPU. ``communication`` is None
    where the trace does not show it. ``calls``: each collective, and its step (a place in ``steps``).
    """

    trace: Trace
    host_time: bool
    calls: list[tuple[Call, int | None]]
    parts: dict[str, np.ndarray]
    numbers: tuple[int | None, ...]
    windows: tuple[tuple[float, float], ...]
    steps: list[StepTime]
    communication: float | None
    compute: float
    overlap: float
    copies: float

    @property
    def rank(self) -> int:
        """Its number in the job."""
        return self.trace.rank

    @property
    def exposed(self) -> float | None:
        """Seconds of communication during which nothing computes."""
        return None if self.communication is None else self.communication - self.overlap

    @property
    def coverage(self) -> float | None:
        """Overlap over communication; None where there is none, or the trace does not show it."""
        return self.overlap / self.communication if self.communication else None

    def exposed_within(self, start: float, stop: float) -> float:
        """Seconds of a stretch during which nothing computes."""
        return (stop - start) - length(clipped(self.parts["computing"], (start, stop)))


def rank_profile(trace: Trace) -> RankProfile:
    """What one trace tells: on the GPU, or on the host where there is no row of a GPU."""
    on_gpu = trace.work["start"].size > 0
    if not on_gpu and not runs_on_host(trace):
        nothing = np.empty((0, 2))
        return RankProfile(trace, True, [], {"computing": nothing}, (), (), [], None, 0.0, 0.0, 0.0)
    calls = gpu_calls(trace) if on_gpu else host_calls(trace)
    sets = _gpu_sets(trace) if on_gpu else _host_sets(trace)
    marks = _marks(trace)
    windows, places = _windows(trace, marks, calls, on_gpu)
    parts = _parts(sets, calls, windows)
    both = intersection(parts["communication"], sets["compute"])
    return RankProfile(
        trace=trace,
        host_time=not on_gpu,
        calls=list(zip(calls, places, strict=True)),
        parts=parts,
        numbers=tuple(number for number, _ in marks) if marks else (None,) * len(windows),
        windows=tuple(windows),
        steps=[_step(parts, window) for window in windows],
        communication=length(parts["communication"]),
        compute=length(sets["compute"]),
        overlap=length(both),
        copies=length(sets["copies"]),
    )


def _marks(trace: Trace) -> list[tuple[int, Annotation]]:
    """The steps of the host by their numbers, in order; those on the GPU's rows where there are no others."""
    for annotations in (trace.annotations, trace.gpu_annotations):
        found = {}
        for one in sorted(annotations, key=lambda one: one.start):
            told = _STEP.fullmatch(one.name)
            if told:
                found.setdefault(int(told[1]), one)
        if found:
            return sorted(found.items(), key=lambda item: item[1].start)
    return []


def _gpu_sets(trace: Trace) -> dict[str, np.ndarray]:
    """What ran on the GPU, and when the host was busy: ``compute`` holds ``optimizer`` as well."""
    work, launched = trace.work, launch_times(trace)[0]
    stop = work["start"] + work["seconds"]

    def ran(chosen: np.ndarray) -> np.ndarray:
        return intervals(work["start"][chosen], stop[chosen])

    computes = work["kind"] == ON_GPU.index(COMPUTE)
    by_host, by_gpu = (_named("Optimizer.step#", one) for one in (trace.annotations, trace.gpu_annotations))
    updates = computes & np.where(
        np.isnan(launched), _inside(work["start"], by_gpu), _inside(launched, by_host)
    )
    host = trace.operators
    return {
        "compute": ran(computes),
        "optimizer": subtract(ran(updates), ran(computes & ~updates)),
        "copies": ran(work["kind"] == ON_GPU.index(COPY)),
        "data": _named("enumerate(DataLoader)", trace.annotations),
        "launch": intervals(host["start"], host["start"] + host["seconds"]),
    }


def _host_sets(trace: Trace) -> dict[str, np.ndarray]:
    """The same where the host computes: its operators, without those of the loader."""
    host, loads = trace.operators, _named("enumerate(DataLoader)", trace.annotations)
    compute = subtract(intervals(host["start"], host["start"] + host["seconds"]), loads)
    updates = _named("Optimizer.step#", trace.annotations)
    return {
        "compute": compute,
        "optimizer": intersection(compute, updates),
        "copies": np.empty((0, 2)),
        "data": loads,
        "launch": np.empty((0, 2)),
    }


def _named(name: str, annotations: list[Annotation]) -> np.ndarray:
    found = [(one.start, one.stop) for one in annotations if one.name.startswith(name)]
    return intervals(*zip(*found, strict=True)) if found else np.empty((0, 2))


def _inside(times: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Whether each time lies in a set of intervals."""
    place = np.searchsorted(of[:, 0], times, "right") - 1
    if not of.size:
        return np.zeros(times.size, bool)
    return (place >= 0) & (times < of[place, 1])


def _windows(trace: Trace, marks, calls: list[Call], on_gpu: bool) -> tuple[list, list]:
    """From and to which second each step lasts, and the step of each call."""
    if on_gpu:
        start, stop = trace.work["start"], trace.work["start"] + trace.work["seconds"]
    else:
        start, stop = trace.operators["start"], trace.operators["start"] + trace.operators["seconds"]
    if not marks:
        ends = [*(call.stop for call in calls), *stop[stop.size and stop.argmax() :][:1]]
        starts = [*(call.start for call in calls), *start[start.size and start.argmin() :][:1]]
        return ([(min(starts), max(ends))] if ends else []), [0] * len(calls)
    begins, ends = (np.array([getattr(one, name) for _, one in marks]) for name in ("start", "stop"))
    steps = _steps_of_work(trace, begins, ends) if on_gpu else np.zeros(0, int)
    stop = stop if on_gpu else np.zeros(0)
    until = stop[steps < 0].max(initial=-np.inf)  # work of the step before the first
    windows = []
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        begin = max(begin, until)
        until = max(begin, end, stop[steps == number].max(initial=-np.inf))
        windows.append((float(begin), float(until)))
    called = np.array([call.start if np.isnan(call.launch) else call.launch for call in calls])
    places = np.searchsorted(begins, called, "right") - 1
    return windows, [
        int(p) if p >= 0 and t <= ends[-1] else None for p, t in zip(places, called, strict=True)
    ]


def _steps_of_work(trace: Trace, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The step of each row of work, by its launch: -1 before the first, their number after the last.

    Rows of a stream run in the order of their launches, so one without a launch is of the step of the row
    before it; a stream without any launch goes by the time it runs.
    """
    work, launched = trace.work, launch_times(trace)[0]
    steps = np.empty(launched.size, int)
    for thread in np.unique(work["thread"]):
        rows = np.flatnonzero(work["thread"] == thread)
        rows = rows[np.argsort(work["start"][rows], kind="stable")]
        times = launched[rows]
        known = ~np.isnan(times)
        if known.any():
            last = np.maximum.accumulate(np.where(known, np.arange(rows.size), -1))
            times = np.where(last >= 0, times[np.maximum(last, 0)], -np.inf)
        else:
            times = work["start"][rows]
        found = np.searchsorted(begins, times, "right") - 1
        found[times > ends[-1]] = ends.size
        steps[rows] = found
    return steps


def _parts(sets: dict[str, np.ndarray], calls: list[Call], windows: list) -> dict[str, np.ndarray]:
    """Disjoint sets, one for each term of a step, and ``communication``, which is not.

    Where collectives of several causes overlap, the exposed time is that of the first in the order of a
    step's terms: tensor parallel before data parallel, which waits for it.
    """
    parts = {
        "compute": subtract(sets["compute"], sets["optimizer"]),
        "optimizer": sets["optimizer"],
        "computing": sets["compute"],
        "communication": intervals([call.start for call in calls], [call.stop for call in calls]),
    }
    taken = sets["compute"]
    for cause in COMMUNICATION:
        ran = [call for call in calls if call.cause == cause]
        if ran:
            mine = intervals([call.start for call in ran], [call.stop for call in ran])
            parts[cause] = subtract(mine, taken)
            taken = union(taken, mine)
    whole = intervals(*zip(*windows, strict=True)) if windows else np.empty((0, 2))
    gaps = subtract(whole, union(taken, sets["copies"]))
    parts["data"] = intersection(gaps, sets["data"])
    parts["launch"] = intersection(subtract(gaps, sets["data"]), sets["launch"])
    return parts


def _step(parts: dict[str, np.ndarray], window: tuple[float, float]) -> StepTime:
    """One step from the parts within it; what is left is idle, copies that nothing hides included."""
    within = {name: clipped(part, window) for name, part in parts.items()}
    communication = length(within.pop("communication"))
    del within["computing"]
    left = intervals([window[0]], [window[1]])
    for part in within.values():
        left = subtract(left, part)
    seconds = {name: length(part) for name, part in within.items()}
    return StepTime(**seconds, idle=length(left), communication=communication)


def clipped(part: np.ndarray, window: tuple[float, float]) -> np.ndarray:
    """What of a set of intervals lies in a window; quicker than an intersection."""
    first, last = (
        np.searchsorted(part[:, 1], window[0], "right"),
        np.searchsorted(part[:, 0], window[1], "left"),
    )
    return np.clip(part[first : max(first, last)], *window)
