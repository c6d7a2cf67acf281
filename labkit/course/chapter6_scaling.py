"""Section 6.2 as tables; the made-up and recorded jobs that its triage and the step times of 6.3 use."""

from functools import cache

import numpy as np

from labkit.collectives import algbw, busbw_factor
from labkit.course.chapter3_data import GUIDE_PARAMETERS
from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.evidence.mapping import Mapping
from labkit.evidence.measured import Measured
from labkit.evidence.triage import Distribution, Exchange, ScalingEvidence, distribution, scaling_triage
from labkit.evidence.triage.scaling import BUSY, COSTS, ORDER
from labkit.evidence.triage.scaling_job import recorded_steps
from labkit.practice.data_loading import (
    REMEDIES,
    Host,
    host_demand,
    loader_wait,
    remedy,
    storage_demand,
    workers_needed,
)
from labkit.spec import Plan, StepTime
from labkit.spec.rule import counted
from labkit.units import digits, format_rate, format_share, format_time

# ---- the four steps (6.2-a, 6.2-f)

_STEPS = {
    "data loading": (
        f"数据加载; GPU 利用率 under {format_share(BUSY)}, uneven",
        "waiting for input, and the share of computing, on every rank",
        "workers, then preprocessing on the card, then encoded data",
    ),
    "mapping": (
        "并行度切法和拓扑; rank 到物理机的映射",
        "which tp, cp, ep groups leave their host; what it costs",
        "block order; a degree that fits a host",
    ),
    "coverage": (
        "通信覆盖率; 桶大小, 重叠开关",
        "exposed share and coverage; late ranks taken out",
        "overlap on, buckets",
    ),
    "volume": (
        "通信量; 理论耗时 and profile",
        "measured / expected duration; shortest rank",
        "late ranks; contention; else another plan",
    ),
}


def steps_table() -> Table:
    """Claims 6.2-a and 6.2-f: the guide's four steps in the order that their costs give."""
    rows = [(str(at), name, *_STEPS[name], str(COSTS[name])) for at, name in enumerate(ORDER, 1)]
    return table(("", "step", "the guide looks at", "judged here by", "on a hit", "costs about"), rows)


# ---- jobs

HOSTS = Mapping(("a",) * 8 + ("b",) * 8)
PLAN = Plan(tp=8, dp=2)
_GRADIENTS = dict(operation="all_reduce", size=2.0 * GUIDE_PARAMETERS, ranks=16, busbw=97.5e9)


def _job(step: StepTime, seconds=None, **more) -> ScalingEvidence:
    """A job of 16 ranks that has one cause or none."""
    calls = () if seconds is None else (Exchange(**_GRADIENTS, seconds=seconds),)
    given = {"mapping": HOSTS, "plan": PLAN, "exchanges": calls} | more
    return ScalingEvidence(Measured(step, known=("data",)), **given)


@cache
def triage_cases() -> dict[str, ScalingEvidence]:
    """Jobs with one cause each: recorded where a real one of four processes stands in ``data/recorded``."""
    exposed = StepTime(compute=0.4, dp=0.5, communication=0.9)
    return {
        "recorded: one worker": recorded_steps("one worker").evidence(),
        "ranks dealt round the hosts": _job(exposed, mapping=Mapping(("a", "b") * 8)),
        "overlap off": _job(StepTime(compute=0.9, dp=0.5, communication=0.5), 0.5),
        "recorded: a straggler": recorded_steps("straggler").evidence(),
        "recorded: neighbours on the network": recorded_steps("contention").evidence(),
        "gradients larger than the step": _job(exposed, 0.55),
        "nothing of these": _job(StepTime(compute=0.95, dp=0.05, communication=0.5), 0.5),
    }


def triage_table() -> Table:
    """Claim 6.2-a: where the triage stops, and on what evidence."""
    rows = []
    for name, evidence in triage_cases().items():
        found = scaling_triage(evidence)
        step = found.cause
        if step is None:
            rows.append((name, "-", "-", "none of the four", "the kernels, and the base (5.4)"))
            continue
        stopped = f"{len(found.steps)} {step.name}"
        rows.append((name, stopped, step.kind.replace("_", " "), step.evidence, step.next_step.split(";")[0]))
    return table(("job", "stops at", "cause", "evidence", "first"), rows)


# ---- utilisation (6.2-b)


def counter_table() -> Table:
    """Claim 6.2-b: four recorded ranks, of which one waits for its input, by what a counter would say."""
    job = recorded_steps("one worker")
    rows = []
    for rank in range(job.step.shape[1]):
        step, load, inside = (float(times[:, rank].mean()) for times in (job.step, job.load, job.exchange))
        computing = step - load - inside
        rows.append(
            (
                rank,
                format_share(1 - load / step),
                format_share(computing / step),
                format_time(load),
                format_time(inside),
            )
        )
    heads = ("rank", "usual counter", "computing", "waits for input", "in the all_reduce")
    return table(heads, rows)


# ---- the loader (6.2-c)

RATE, SECONDS = 25.0, 0.06  # samples a second of a card; seconds of a core for one


def loader_table(cards=(1, 2, 4, 8)) -> Table:
    """Claim 6.2-c: supply and demand of one host whose cards take 8 samples every 0.32 s."""
    rows = []
    for count in cards:
        step, samples = 8 / RATE, 8 * count
        waits = [loader_wait(step, samples, workers, SECONDS) for workers in (1, 4, 16)]
        needed = workers_needed(count, RATE, SECONDS)
        rows.append((count, host_demand(count, RATE), needed, *(format_time(wait) for wait in waits)))
    heads = ("cards", "samples/s", "workers needed", "waits with 1", "with 4", "with 16")
    return table(heads, rows)


def storage_rates(hosts=(1, 8, 32), sample_bytes=1e6) -> dict[int, float]:
    """Bytes a second from storage that so many hosts of eight cards share."""
    return {count: storage_demand(count, 8, RATE, sample_bytes) for count in hosts}


def remedies_table(host: Host | None = None) -> Table:
    """Claim 6.2-c: each remedy alone, and its price."""
    host = host or Host(workers=2, seconds=SECONDS)
    rows = [("as it is", host.workers, format_time(host.seconds), format_time(host.step + host.wait), "-")]
    for name in REMEDIES:
        found = remedy(host, name)
        better = found.host
        rows.append((name, better.workers, format_time(better.seconds), format_time(found.step), found.price))
    return table(("remedy", "workers", "of a core a sample", "step", "price"), rows)


# ---- one observation, two verdicts (6.2-d)


def duration_table() -> Table:
    """Claim 6.2-d: communication that takes what is expected, hidden or not."""
    rows = []
    for name, exposed, compute in (("hidden", 0.0, 0.9), ("half hidden", 0.25, 0.9), ("exposed", 0.5, 0.9)):
        found = scaling_triage(_job(StepTime(compute=compute, dp=exposed, communication=0.5), 0.5))
        judged = {step.name: step for step in found.steps}
        cause = found.cause.kind if found.cause else "none"
        rows.append((name, "500 ms", "500 ms", format_time(exposed), judged["coverage"].answer, cause))
    heads = ("communication", "measured", "expected", "exposed", "step 3", "cause")
    return table(heads, rows)


# ---- expected time (6.2-e)


def expected_times(size=2.0 * GUIDE_PARAMETERS, ranks=16, busbw=97.5e9) -> dict[str, float]:
    """Seconds of one AllReduce of a 13B model's gradients by three readings of "volume over bandwidth"."""
    per_rank = size * busbw_factor("all_reduce", ranks)
    reached = algbw("all_reduce", ranks, busbw)
    return {
        "a rank's traffic / busbw": per_rank / busbw,
        "size / algbw": size / reached,
        "size / busbw": size / busbw,
        "all ranks' bytes / algbw": ranks * per_rank / reached,
    }


def duration_causes() -> Table:
    """Claim 6.2-e: one mean duration, three causes, told apart by the shortest rank."""
    step = StepTime(compute=0.1, dp=1.4, communication=1.5)
    rows = []
    for name, seconds in (
        ("all alike, as expected", [0.5] * 16),
        ("all alike, too long", [1.5] * 16),
        ("one rank comes late", [1.5625] * 15 + [0.5625]),
    ):
        one = Exchange(**_GRADIENTS, seconds=seconds)
        found = scaling_triage(_job(step, seconds)).cause
        figures = (format_time(value) for value in (one.measured, one.expected, one.transfer, one.waiting))
        rows.append((name, *figures, found.kind.replace("_", " ")))
    return table(("durations", "measured", "expected", "shortest rank", "waiting", "cause"), rows)


# ---- step times (6.3-e, 6.3-p)

ONE, CHANGING, ALL, EXCHANGE, PERIODIC = CAUSES = (
    "one rank",
    "another rank each time",
    "all ranks",
    "the exchange",
    "rank 0, in a fixed rhythm",
)
STEPS, RANKS, FAST, TRANSFER, SCATTER = 200, 8, 0.8, 0.2, 0.02


def made_steps(share=0.5, ratio=2.0, cause=ONE) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of 200 steps, and the own work of 8 ranks in each: made up, so that the cause is known.

    A fast step takes 0.8 s, of which 0.2 s are the exchange, and scatters by 2 %. The ``share`` of slow ones
    takes ``ratio`` times as long, because of ``cause``; in a rhythm every 1 / share-th step is slow.
    """
    if cause not in CAUSES:
        raise InputRefused(f"there is no cause {cause!r}; choose one of {', '.join(CAUSES)}")
    if not (0 <= share <= 1 and 1 <= ratio <= 10):
        raise InputRefused("the share of slow steps is 0 to 1, their length 1 to 10 times; choose within")
    rng = np.random.default_rng(6)
    work = (FAST - TRANSFER) * (1 + SCATTER * rng.standard_normal((STEPS, RANKS)))
    slow = rng.random(STEPS) < share
    changing = rng.integers(0, RANKS, STEPS)
    more, at = (ratio - 1) * FAST, np.arange(STEPS)
    if cause == PERIODIC:
        every = max(1, round(1 / share)) if share else STEPS + 1
        slow = at % every == every - 1
    if cause == ALL:
        work[slow] += more
    elif cause != EXCHANGE:
        rank = {ONE: np.full(STEPS, 5), CHANGING: changing, PERIODIC: np.zeros(STEPS, int)}[cause]
        work[at[slow], rank[slow]] += more
    return work.max(axis=1) + TRANSFER + (more * slow if cause == EXCHANGE else 0.0), work


def guide_steps() -> Distribution:
    """Claim 6.3-e: the guide's own example, 0.8 s and 1.6 s half and half, one rank late."""
    steps, work = made_steps()
    return distribution(steps, work)


def distribution_table(share=0.5, ratio=2.0) -> Table:
    """Claims 6.3-e and 6.3-p: one mean, five causes."""
    rows = []
    for cause in CAUSES:
        steps, work = made_steps(share, ratio, cause)
        found = distribution(steps, work)
        facts = found.summary
        modes = ", ".join(f"{format_time(m.seconds)} ({format_share(m.share)})" for m in found.modes)
        every = f"every {found.period}" if found.period else "none"
        figures = (format_time(value) for value in (facts.mean, facts.p99, facts.longest))
        rows.append((cause, *figures, modes, every, found.cause or "-"))
    return table(("made with", "mean", "P99", "longest", "modes", "rhythm", "found"), rows)


def recorded_table() -> Table:
    """Claims 6.3-e and 6.3-p: the same of real jobs of four processes."""
    rows = []
    for case in ("straggler", "saving", "one worker"):
        job = recorded_steps(case)
        found = distribution(job.step, job.work)
        facts = found.summary
        figures = (format_time(value) for value in (facts.mean, facts.median, facts.p99))
        last = f"rank {found.last.rank} in {format_share(found.last.share)}"
        every = f"every {found.period}" if found.period else "none"
        rows.append((case, *figures, digits(len(found.modes)), every, last, found.cause or "-"))
    heads = ("recorded", "mean", "P50", "P99", "modes", "rhythm", "last to arrive", "slow steps")
    return table(heads, rows)


def storage_said() -> str:
    """What shared storage must deliver, in words."""
    return ", ".join(
        f"{format_rate(rate)} for {counted(hosts, 'host')}" for hosts, rate in storage_rates().items()
    )
