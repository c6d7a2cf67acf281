"""Section 5.4's claims: the figures of a running job, their limits, and what these ask of each other."""

from labkit.course import chapter5_health as tables
from labkit.course import chapter5_jobs as jobs
from labkit.course.chapter3_data import GUIDE_PARAMETERS
from labkit.course.claims import claim
from labkit.evidence.health import health
from labkit.evidence.limits import GUIDE, PUBLISHED_PEAK, PUBLISHED_RATES, efficiency_needed, left_over
from labkit.evidence.measured import Measured
from labkit.evidence.slow_rank_job import recorded_job, spread
from labkit.planner.states import state_bytes
from labkit.presets import cluster
from labkit.strategies.pipeline import bubble_share
from labkit.units import digits, format_bytes, format_share, format_time, words


@claim(
    "5.4-a",
    "Four figures with limits 扩展效率、通信占比、计算利用率、负载均衡",
    guide="efficiency 0.85 at 8, 0.6 at 64 cards; share 10 % data, 30 % tensor; MFU 40 to 55 %; spread 5 %",
)
def figures():
    card = health(jobs.made_job())
    rows = [f"{words(f.metric)} {format_share(f.value)} ({f.limit}) {f.verdict}" for f in card[:5]]
    return (
        f"64 cards, TP 30 %, p = 4, m = 16, DP 10 %: {'; '.join(rows)}; at 8 cards {GUIDE.efficiency_at(8)}"
    )


@claim(
    "5.4-b",
    "Time of all collectives over the step; beyond the limit it was not hidden 说明通信没被藏住",
    guide="10 % data parallel, 30 % tensor parallel",
    verdict="corrected",
    why="that ratio counts hidden time: the limit belongs on the exposed share, with the total beside it; "
    "and time in collectives contains waiting for late ranks",
)
def shares():
    hidden = next(iter(jobs.hidden_cases().values()))
    found = health(Measured(step=hidden)).of("data_parallel_exposed")
    late = jobs.shares(0.45, dp=0.2).step
    waits = health(Measured(step=late, rank_work=[0.5] * 3 + [0.7])).of("data_parallel_exposed")
    return (
        f"collectives {format_share(hidden.communication / hidden.total)} of a step, "
        f"{format_share(hidden.coverage)} hidden: exposed {format_share(found.value)}, {found.verdict}; "
        f"{format_share(waits.value)} exposed with one late rank of four: look at {waits.look_at}"
    )


@claim(
    "5.4-c",
    "Throughput of N cards / throughput of one card / N 用 N 卡的吞吐除以单卡吞吐再除以 N",
    guide="against a single card",
    verdict="corrected",
    why="a model that does not fit one card has no such figure: the base is the smallest replica that runs, "
    "with the same plan per replica (weak scaling), and is named beside the figure",
)
def base():
    memory, states = cluster("a100").gpu.memory, state_bytes(GUIDE_PARAMETERS, 1, 0)
    reports = [health(measured)[0] for _, measured in jobs.report_cards()]
    cards = [f"{measured.base.gpus} -> {measured.rate.gpus}" for _, measured in jobs.report_cards()]
    values = "; ".join(f"{c} cards {format_share(f.value)}" for c, f in zip(cards, reports, strict=True))
    fixed = tables.base_table().rows[-1]
    return (
        f"13B: {format_bytes(states)} of states, a card has {format_bytes(memory)}; reported jobs against "
        f"the smallest that ran: {values}; 4 replicas of p = 4: with the global batch of one, {fixed[3]} for "
        "the bubble alone"
    )


@claim(
    "5.4-d",
    "Print the step time of all cards, look if they differ by more than 5 % 把所有卡的步时间打出来",
    guide="step times, 5 %",
    verdict="corrected",
    why="a synchronous step is equally long on all ranks by construction; the spread is taken over time "
    "outside of collectives, or over arrivals",
)
def ranks():
    job = recorded_job()
    steps, work = job.means
    alone = health(Measured(rank_steps=steps)).of("rank_spread")
    return (
        f"recorded, {len(job.units)} processes, one with {job.units[-1]}x the work: steps "
        f"{format_time(steps.min())} to {format_time(steps.max())} ({format_share(spread(steps))} apart: "
        f"{alone.verdict}), own work {format_time(work.min())} to {format_time(work.max())} "
        f"({format_share(spread(work))} apart, {digits(work[-1] / work[:-1].mean())}x)"
    )


@claim(
    "5.4-e",
    "Low utilisation without much communication: loading or operators 瓶颈在数据加载或者算子效率上",
    guide="loading or kernels",
    verdict="corrected",
    why="the pipeline bubble is neither, nor are late ranks and recompute: they are subtracted first, and if "
    "nobody measured them nobody is blamed",
)
def blame():
    said = []
    for name, measured in jobs.blame_cases().items():
        found = health(measured).of("mfu")
        said.append(f"{name}, MFU {format_share(found.value)}: {found.look_at.split(':')[0].split(';')[0]}")
    return "; ".join(said)


@claim(
    "5.4-f",
    "(not in the guide) the limits taken together 阈值之间",
    guide="each named alone",
    verdict="corrected",
    why="they exclude each other: what the MFU's limit takes is an efficiency far above its own, and three "
    "shares within their limits leave less than the efficiency's; shares of one step even add up",
)
def conflicts():
    single, low, least = jobs.SINGLE, GUIDE.mfu[0], GUIDE.efficiency_at(64)
    bubble = bubble_share(4, 16)
    factors = (1 - bubble, 1 - GUIDE.tensor, 1 - GUIDE.data)
    left = left_over(bubble, GUIDE.tensor, GUIDE.data)
    return (
        f"efficiency {least:g} x {format_share(single)} = MFU {format_share(least * single)}, under "
        f"{format_share(low)}, which takes {digits(efficiency_needed(low, single))}; "
        f"{' x '.join(digits(one) for one in factors)} = {digits(left, 2)} < {least:g}; as shares of one "
        f"step {digits(1 - bubble - GUIDE.tensor - GUIDE.data, 2)}"
    )


@claim(
    "5.4-g",
    "FLOPs reached / peak of the hardware 实际达到的浮点运算量 / 硬件峰值",
    guide="40 to 55 %",
    verdict="approximately",
    why="once defined: model FLOPs, 6 per parameter and token and attention's, causal or in full; nothing "
    "that is computed again; the dense peak of the precision used; very large runs are at its lower end",
)
def utilisation():
    shape, row = jobs.published_step()
    counts = ", ".join(f"{name} {format_share(value)}" for name, value in tables.mfu_counts().items())
    runs = ", ".join(
        f"{format_share(rate / PUBLISHED_PEAK)} on {cards}" for cards, rate in PUBLISHED_RATES.items()
    )
    return f"{shape.name} on {row['gpus']} A100: {counts}; 405B on H100: {runs}"


@claim(
    "5.4-h",
    "What to look at beyond each limit 切法和拓扑、没被藏住、数据加载或者算子、阶段分配、长样本、专家负载",
    guide="one cause for each figure",
)
def rules():
    return "; ".join(f"{row[0]}: {row[3].split(':')[0]}" for row in tables.rules_table().rows)
