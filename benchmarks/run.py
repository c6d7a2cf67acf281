"""The benchmark table: ``make bench``. Figures are of the machine it runs on; targets are for two cores."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks import bench_debug_log, bench_profile, bench_search, bench_slider
from labkit.collectives import ALGORITHMS, collective_cost, prove, run, trace
from labkit.course.chapter3_pipeline import CHOICES
from labkit.evidence.sweep import read_sweep
from labkit.presets import sample_sweeps
from labkit.show.engine import Picture
from labkit.show.labs import memory_breakdown, pipeline_schedule, plan_search
from labkit.spec import Link
from labkit.strategies.pipeline import SCHEDULES, interleaved, schedule, simulate, stage_times
from labkit.units import format_bytes, format_time

ROOT = Path(__file__).resolve().parent.parent


def median_seconds(action: Callable[[], object], times: int = 5) -> float:
    """The median over some calls, after one to warm up."""
    action()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def import_seconds() -> float:
    """``import labkit`` in a fresh Python, without Python's own start; median of five."""
    code = "import time; start = time.perf_counter(); import labkit; print(time.perf_counter() - start)"
    answers = [subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) for _ in range(5)]
    return statistics.median(float(answer) for answer in answers)


def trace_seconds() -> float:
    """A ring all_reduce over 256 ranks, traced and run on real data."""
    inputs = np.arange(256.0 * 256.0).reshape(256, 256)
    return median_seconds(lambda: run(trace("all_reduce", "ring", 256), inputs), times=3)


def proof_seconds() -> float:
    """The same, proved: contributor sets followed beside the real data."""
    return median_seconds(lambda: prove(trace("all_reduce", "ring", 256)), times=3)


def closed_form_seconds() -> tuple[float, str]:
    """The slowest all_reduce closed form on a flat link at a million sizes, and its name."""
    sizes, link = np.logspace(3, 10, 1_000_000), Link(5e-6, 50e9)
    names = [name for name in ALGORITHMS["all_reduce"] if name != "hierarchical"]  # that one needs a cluster
    seconds = {
        n: median_seconds(lambda n=n: collective_cost("all_reduce", n, sizes, 64, link), 3) for n in names
    }
    slowest = max(seconds, key=seconds.get)
    return seconds[slowest], slowest


def fit_seconds() -> float:
    """The slowest fit among the shipped sweeps."""
    sweeps = [sweep for path in sample_sweeps().values() for sweep in read_sweep(path)]
    return max(median_seconds(sweep.fit) for sweep in sweeps)


def pipeline_seconds() -> float:
    """Interleaved 1F1B on 64 ranks of 4 chunks, 512 micro-batches: order, simulation and bubble."""
    return median_seconds(lambda: simulate(interleaved(64, 512, 4), 1.0, 2.0, 0.1).bubble, times=3)


def pipeline_slider_seconds() -> tuple[float, str]:
    """The slowest schedule at p = 16, m = 64, v = 4, from the order to the bubble, and its name."""

    def draw(name: str) -> float:
        times = stage_times(16 * SCHEDULES[name].chunks(4), 1.0, 2.0, 0.1)
        return simulate(schedule(name, 16, 64, 4, times), *times).bubble

    seconds = {name: median_seconds(lambda name=name: draw(name)) for name in SCHEDULES}
    slowest = max(seconds, key=seconds.get)
    return seconds[slowest], slowest


def gantt_seconds() -> tuple[float, str]:
    """The slowest schedule of the gantt at p = 16, m = 64: one slider step in the kernel, and its name."""
    picture, seconds = Picture(pipeline_schedule), {}
    for name in CHOICES:
        for v in (1, 4) if name == "1F1B" else (1,):
            ratios = cycle((2.0, 2.25))  # each step draws something else

            def step(name=name, v=v, ratios=ratios):
                case = pipeline_schedule.compute(16, 64, v, name, next(ratios), transfer=0.1)
                picture.draw(case)
                pipeline_schedule.readout(case)

            seconds[f"{name}, v = {v}"] = median_seconds(step)
    slowest = max(seconds, key=seconds.get)
    return seconds[slowest], slowest


def breakdown_seconds() -> float:
    """A step of the memory breakdown in the kernel, 16 stages of 12 parts."""
    picture, sequences = Picture(memory_breakdown), cycle((4096, 8192))

    def step():
        case = memory_breakdown.compute("llama2-70b", n=1024, tp=8, pp=16, sequence=next(sequences))
        picture.draw(case)
        memory_breakdown.readout(case)

    return median_seconds(step)


def plan_cloud_seconds() -> float:
    """A step of the cloud of plans in the kernel: a search of a part of 13B's plans on 32 GPUs."""
    picture, networks = Picture(plan_search), iter(np.linspace(0.5, 1.0, 10).tolist())

    def step():
        case = plan_search.compute(network=next(networks))  # each a search of its own: found ones are kept
        picture.draw(case)
        plan_search.readout(case)

    return median_seconds(step)


def debug_log_row() -> tuple[str, float, float]:
    """One pass over a debug log of NCCL with training output: name with the rate, seconds and target."""
    seconds = bench_debug_log.seconds()
    return (
        f"NCCL debug logs, 60 MB ({bench_debug_log.SIZE / seconds / 1e6:.0f} MB/s)",
        seconds,
        bench_debug_log.TARGET,
    )


def search_rows() -> list[tuple[str, float, float]]:
    """Name, seconds and target of both searches; endless seconds where one takes too much memory."""
    rows = []
    for case in bench_search.CASES:
        found = bench_search.measure(case)
        name = f"search, {case.what}: {found.plans:,} plans, {format_bytes(found.memory)}"
        rows.append(
            (name, found.seconds if found.memory <= bench_search.MOST_MEMORY else np.inf, case.target)
        )
    return rows


def profile_row() -> tuple[str, float, float]:
    """Name, seconds and target of reading a trace; endless seconds where it takes too much memory."""
    found = bench_profile.measure(bench_profile.SIZE)
    name = f"profile of {format_bytes(found.size)} of JSON, gzipped: {format_bytes(found.memory)}"
    return name, found.seconds if found.memory <= bench_profile.MOST_MEMORY else np.inf, bench_profile.TARGET


def slider_rows() -> list[tuple[str, float, float | None]]:
    """Name, p95 and target of each lab of the slider benchmark; none without a Chromium."""
    if bench_slider.labbrowser.chromium() is None:
        return []
    return [
        (
            f"slider, {way}: p95 (median {format_time(statistics.median(times))})",
            bench_slider.p95(times),
            target,
        )
        for (way, times), target in zip(
            bench_slider.measure().items(), bench_slider.TARGETS.values(), strict=True
        )
    ]


def show(name: str, seconds: float, target: float | None) -> bool:
    """Prints one row; whether its target is missed."""
    missed = target is not None and seconds > target
    aim = "none" if target is None else format_time(target)
    print(f"{name:48} {format_time(seconds):>9} {aim:>9}{'  missed' if missed else ''}", flush=True)
    return missed


def main() -> int:
    """Prints the table; 1 when any figure misses its target."""
    print(f"{'what':48} {'figure':>9} {'target':>9}")
    closed_form, slowest = closed_form_seconds()
    gantt, schedule = gantt_seconds()
    pipeline, slowest_schedule = pipeline_slider_seconds()
    rows = [
        ("import labkit", import_seconds(), 0.3),
        ("ring all_reduce, N = 256, traced with data", trace_seconds(), 1.0),
        ("ring all_reduce, N = 256, traced and proved", proof_seconds(), None),
        (f"closed form at 10^6 points ({slowest})", closed_form, 0.5),
        ("one fit of a shipped sweep", fit_seconds(), 0.05),
        (f"gantt, p = 16, m = 64 ({schedule})", gantt, 0.06),
        ("memory breakdown, 16 stages", breakdown_seconds(), 0.06),
        ("interleaved 1F1B, p = 64, m = 512, v = 4", pipeline_seconds(), 1.0),
        (f"schedule, p = 16, m = 64 ({slowest_schedule})", pipeline, 0.06),
        ("cloud of plans, a new search", plan_cloud_seconds(), None),
        debug_log_row(),
        *search_rows(),
        profile_row(),
    ]
    missed = [show(*row) for row in rows]
    slider = slider_rows()
    if not slider:
        print("slider: left out, no Chromium here")
    missed += [show(*row) for row in slider]
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
