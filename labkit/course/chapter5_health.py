"""Section 5.4 as tables: running jobs held against the guide's limits, and limits against limits."""

from labkit.course import chapter5_jobs as jobs
from labkit.course.chapter5_jobs import SINGLE, peak
from labkit.course.table import Table, table
from labkit.evidence.health import HEALTHY, health
from labkit.evidence.limits import (
    GUIDE,
    PUBLISHED_PEAK,
    PUBLISHED_RATES,
    efficiency_needed,
    left_over,
    scaling_efficiency,
)
from labkit.evidence.measured import Measured
from labkit.evidence.slow_rank_job import recorded_job
from labkit.strategies.pipeline import bubble_share
from labkit.units import format_rate, format_share, format_time, words

# ---- the limits


def limits_table() -> Table:
    """Claims 5.4-a and 5.4-h: the guide's limits, what is measured for them, and what to look at beyond."""
    eight, many = (format_share(GUIDE.efficiency_at(n)) for n in (8, 64))
    data, tensor, low, high, apart = map(format_share, (GUIDE.data, GUIDE.tensor, *GUIDE.mfu, GUIDE.spread))
    rows = (
        (
            "scaling efficiency 扩展效率",
            f"at least {eight} at 8 cards, {many} at 64",
            "work per card over that of the base",
            "切法和拓扑, cut and topology",
        ),
        (
            "data parallel 通信占比",
            f"at most {data}",
            "exposed seconds / step",
            "没被藏住, what is not hidden",
        ),
        (
            "tensor parallel 通信占比",
            f"at most {tensor}",
            "exposed seconds / step",
            "没被藏住; is the group inside a node?",
        ),
        (
            "MFU 计算利用率",
            f"{low} to {high}",
            "model FLOPs / dense peak",
            "bubble and waiting, then 数据加载或者算子, loading or kernels",
        ),
        (
            "spread of ranks 负载均衡",
            f"at most {apart}",
            "own work outside of collectives",
            "阶段分配, 长样本, 专家负载: stages, samples, experts",
        ),
    )
    return table(("figure", "limit", "measured as", "beyond it, look at"), rows)


def rules_table() -> Table:
    """The same, through the scorecard."""
    rows = []
    for name, measured in jobs.rule_cases().items():
        first = next(finding for finding in health(measured) if finding.verdict == "unhealthy")
        rows.append((name, words(first.metric), format_share(first.value), first.look_at))
    return table(("measured", "figure", "value", "look at"), rows)


# ---- shares (5.4-b)


def hidden_table() -> Table:
    """Claim 5.4-b: the guide's ratio beside the exposed share."""
    rows = []
    for name, step in jobs.hidden_cases().items():
        ratio = step.communication / step.total
        found = health(Measured(step=step)).of("data_parallel_exposed")
        old = HEALTHY if ratio <= GUIDE.data else "unhealthy"
        rows.append((name, format_share(ratio), old, format_share(found.value), found.verdict))
    return table(("data-parallel collectives", "all", "by the guide's ratio", "exposed", "scorecard"), rows)


# ---- the base of the efficiency (5.4-c)


def efficiency_table() -> Table:
    """Claim 5.4-c and cases E1 and E3: reported throughput, held against the smallest that ran."""
    rows = []
    for name, measured in jobs.report_cards():
        job, base, found = measured.rate, measured.base, health(measured)[0]
        totals = f"{base.per_s:,.0f} -> {job.per_s:,.0f}"
        limit = format_share(found.threshold)
        rows.append(
            (name, f"{base.gpus} -> {job.gpus}", totals, format_share(found.value), limit, found.look_at)
        )
    heads = ("report", "cards", "done per second", "efficiency", "limit", "look at")
    return table(heads, rows)


def base_table(p=4, m=16, replicas=(1, 2, 4)) -> Table:
    """Claim 5.4-c: one plan per replica, or one batch for all: the efficiency that the bubble leaves."""
    rows = []
    for dp in replicas:
        bubble = bubble_share(p, m // dp)
        fixed = scaling_efficiency(dp * (1 - bubble), 16 * dp, 1 - bubble_share(p, m), 16)
        rows.append(
            (16 * dp, dp, f"m = {m}: 100 %", f"m = {m // dp}: {format_share(fixed)}", format_share(bubble))
        )
    heads = ("cards", "replicas", "same plan per replica", "same global batch", "its bubble")
    return table(heads, rows)


# ---- waiting (5.4-d)


def waiting_table() -> Table:
    """Claim 5.4-d: the recorded job; its steps, and what each rank did in them."""
    job = recorded_job()
    rows = []
    for rank, (units, step, work) in enumerate(zip(job.units, *job.means, strict=True)):
        rows.append((rank, f"{units}x", format_time(step), format_time(work), format_time(step - work)))
    return table(("rank", "work", "step", "own work", "the rest of the step"), rows)


# ---- who is to blame (5.4-e)


def blame_table() -> Table:
    """Claim 5.4-e: the guide blames loading or kernels in each of these; the scorecard subtracts first."""
    rows = []
    for name, measured in jobs.blame_cases().items():
        found = health(measured).of("mfu")
        rows.append((name, format_share(found.value), found.look_at))
    return table(("measured", "MFU", "look at"), rows)


# ---- limits against limits (5.4-f)


def conflict_table(bubble=(4, 16)) -> Table:
    """Claim 5.4-f: what limits imply that were each named alone."""
    rows = []
    needed = format_share(efficiency_needed(GUIDE.mfu[0], SINGLE))
    limit = f"at least {format_share(GUIDE.mfu[0])}: takes {needed}"
    for n in (8, 64):
        least = GUIDE.efficiency_at(n)
        says = f"efficiency {format_share(least)} at {n} cards, one card at {format_share(SINGLE)}"
        rows.append((says, f"MFU {format_share(least * SINGLE)}", limit))
    idle = bubble_share(*bubble)
    says = (
        f"bubble {format_share(idle)}, tensor {format_share(GUIDE.tensor)}, data {format_share(GUIDE.data)}"
    )
    for how, left in (
        ("each of what the others leave", left_over(idle, GUIDE.tensor, GUIDE.data)),
        ("all of the same step", 1 - idle - GUIDE.tensor - GUIDE.data),
    ):
        limit = f"at least {format_share(GUIDE.efficiency_at(64))} at 64 cards"
        rows.append((f"{says}, {how}", f"efficiency {format_share(left)}", limit))
    return table(("each within its limit", "implies", "the limit there"), rows)


# ---- utilisation (5.4-g)


def mfu_counts() -> dict[str, float]:
    """One published step by every way to count its utilisation."""
    shape, row = jobs.published_step()
    at = dict(step_seconds=row["seconds"], batch=row["global_batch"], gpus=row["gpus"])
    plain = (
        6 * shape.parameters * row["global_batch"] * row["sequence"] / (row["seconds"] * row["gpus"] * peak())
    )
    return {
        "6 per parameter and token": plain,
        "and attention, causal": shape.utilisation(**at, peak=peak(), causal=True),
        "and attention, in full: MFU": shape.utilisation(**at, peak=peak()),
        "and what is computed again: HFU": shape.utilisation(**at, peak=peak(), recompute=row["recompute"]),
        "MFU against the sparse peak": shape.utilisation(**at, peak=2 * peak()),
    }


def mfu_table() -> Table:
    """Claim 5.4-g: what is counted, and against which peak."""
    shape, row = jobs.published_step()
    what = f"{shape.name}, {row['gpus']} A100, {row['seconds']} s a step"
    rows = [(what, count, format_share(value)) for count, value in mfu_counts().items()]
    for cards, rate in PUBLISHED_RATES.items():
        count = f"{rate / 1e12:.0f} of {PUBLISHED_PEAK / 1e12:.0f} TFLOP/s"
        rows.append((f"405B, H100, {cards}", count, format_share(rate / PUBLISHED_PEAK)))
    return table(("published run", "counted", "utilisation"), rows)


# ---- pairs (case E13)


def pairs_table(slow=("n5",)) -> Table:
    """Case E13: round by round, what is measured, what is slow, and who is convicted."""
    rows = []
    for number, (new, report) in enumerate(jobs.pair_hunt(slow), start=1):
        said = ", ".join(f"{a}-{b} {format_rate(rate)}" for (a, b), rate in new.items())
        names = ", ".join(report.slow_nodes) or "nobody yet"
        rows.append((number, said, ", ".join(report.suspects) or "none", names))
    return table(("round", "measured at once", "suspect", "slow node"), rows)
