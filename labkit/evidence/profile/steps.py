"""Where the seconds of each step went on one rank, by intersections and differences of what ran when.

A step is a ``ProfilerStep#N`` of the host. Its work on the GPU may run after the host is done with it, so it
lasts until the work that was launched within it ends; the next begins there, or when the host begins it.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from labkit.evidence.profile.calls import Call, gpu_calls, host_calls, launch_times, runs_on_host
from labkit.evidence.profile.kinds import COMPUTE, COPY
from labkit.evidence.profile.trace import ON_GPU, Annotation, Trace
from labkit.intervals import intersection, intervals, length, subtract, union
from labkit.spec import StepTime
from labkit.spec.rule import counted
from labkit.spec.step_time import COMMUNICATION

_STEP = re.compile(r"ProfilerStep#(\d{1,12})")
MOST_STEPS = 10_000  # that are told one by one; nobody profiles so many


@dataclass(frozen=True, slots=True)
class RankProfile:
    """One rank's trace. Seconds over the whole of it: ``communication`` and ``compute`` as unions,
    ``overlap`` of both, ``copies``; ``parts``: the sets of intervals that steps are cut from.

    ``steps``: of each step, under its number in ``numbers``, from and to the seconds in ``windows``.
    ``host_time``: whether all is seconds of the host, for want of rows of a GPU. ``communication`` is None
    where the trace does not show it. ``calls``: each collective, and its step (a place in ``steps``);
    ``exposures``: seconds of each call while nothing computes; ``notes``: what is odd about its steps.
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
    exposures: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

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


def rank_profile(trace: Trace) -> RankProfile:
    """What one trace tells: on the GPU, or on the host where there is no row of a GPU."""
    on_gpu = trace.work["start"].size > 0
    if trace.nothing_kept or (not on_gpu and not runs_on_host(trace)):
        nothing = np.empty((0, 2))
        return RankProfile(trace, True, [], {"compute": nothing}, (), (), [], None, 0.0, 0.0, 0.0)
    calls = gpu_calls(trace) if on_gpu else host_calls(trace)
    sets = _gpu_sets(trace) if on_gpu else _host_sets(trace)
    marks, notes = _marks(trace)
    windows, places = _windows(trace, marks, calls, on_gpu)
    parts = _parts(sets, calls, windows)
    both = intersection(parts["communication"], sets["compute"])
    start, stop = np.array([(call.start, call.stop) for call in calls]).reshape(-1, 2).T
    return RankProfile(
        trace=trace,
        host_time=not on_gpu,
        calls=list(zip(calls, places, strict=True)),
        parts=parts,
        numbers=tuple(number for number, _ in marks) if marks else (None,) * len(windows),
        windows=tuple(windows),
        steps=_steps(parts, windows),
        communication=length(parts["communication"]),
        compute=length(sets["compute"]),
        overlap=length(both),
        copies=length(sets["copies"]),
        exposures=tuple((stop - start - seconds_within(sets["compute"], start, stop)).tolist()),
        notes=tuple(notes),
    )


def _marks(trace: Trace) -> tuple[list[tuple[int, Annotation]], list[str]]:
    """The steps of the host with their numbers, in order; those on the GPU's rows where there are no others.

    Also, in sentences, what is odd about them: steps within steps are left out, and a number that occurs
    again is a step of its own.
    """
    for annotations in (trace.annotations, trace.gpu_annotations):
        found, within, last = [], 0, -np.inf
        for one in sorted(annotations, key=lambda one: one.start):
            told = _STEP.fullmatch(one.name)
            if not told:
                continue
            number = int(told[1])
            if one.start < last and (one.stop <= last or number == found[-1][0]):
                within += 1
                continue
            found.append((number, one))
            last = max(last, one.stop)
        if found:
            return found[:MOST_STEPS], _notes(found, within)
    return [], []


def _notes(found: list, within: int) -> list[str]:
    notes, again = [], [number for number, n in Counter(number for number, _ in found).items() if n > 1]
    if again:
        several = f" and {counted(len(again) - 1, 'other number')}" if len(again) > 1 else ""
        notes.append(f"ProfilerStep#{again[0]}{several} occurs more than once; each is a step of its own")
    if within:
        notes.append(f"{counted(within, 'ProfilerStep')} inside of another left out")
    if len(found) > MOST_STEPS:
        notes.append(
            f"only the first {MOST_STEPS:,} of {len(found):,} ProfilerSteps are told; profile fewer steps"
        )
    return notes


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
    last = np.append(ends, -np.inf)  # when each step ends; the place -1 is of the work before the first
    told = steps < begins.size
    np.maximum.at(last, steps[told], stop[told])
    until = np.maximum.accumulate(np.concatenate([last[-1:], np.maximum(begins, last[:-1])]))
    windows = list(zip(np.maximum(begins, until[:-1]).tolist(), until[1:].tolist(), strict=True))
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
    order = np.lexsort((work["start"], work["thread"]))
    for rows in np.split(order, np.flatnonzero(np.diff(work["thread"][order])) + 1):
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
    # What is left is idle, copies that nothing hides included.
    parts["idle"] = subtract(subtract(whole, taken), union(parts["data"], parts["launch"]))
    return parts


def _steps(parts: dict[str, np.ndarray], windows: list[tuple[float, float]]) -> list[StepTime]:
    """Each step from the parts within it."""
    start, stop = np.array(windows).reshape(-1, 2).T
    within = [seconds_within(part, start, stop).tolist() for part in parts.values()]
    return [StepTime(**dict(zip(parts, one, strict=True))) for one in zip(*within, strict=True)]


def seconds_within(part: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Seconds of a set of intervals within each stretch from ``start`` to ``stop``.

    >>> part = intervals([0, 3, 6], [2, 4, 9])
    >>> seconds_within(part, np.array([1.0, 4.0]), np.array([7.0, 6.0]))
    array([3., 0.])
    """
    if not part.size:
        return np.zeros(start.size)
    first = np.searchsorted(part[:, 1], start, "right")
    last = np.searchsorted(part[:, 0], stop, "left") - 1
    before = np.append(0.0, np.cumsum(part[:, 1] - part[:, 0]))  # the seconds of all intervals before each
    head = part[np.minimum(first, len(part) - 1)]
    tail = part[np.maximum(last, 0)]
    several = np.minimum(stop, tail[:, 1]) - tail[:, 0] + before[np.maximum(last, 0)]
    several += head[:, 1] - np.maximum(start, head[:, 0]) - before[np.minimum(first + 1, len(part))]
    single = np.minimum(stop, head[:, 1]) - np.maximum(start, head[:, 0])
    return np.where(last < first, 0.0, np.where(last == first, single, several))
