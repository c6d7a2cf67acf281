"""Section 6.2's claims: why adding cards does not help, in four steps from cheap to dear."""

from labkit.course import chapter6_scaling as scaling
from labkit.course.claims import claim
from labkit.evidence.triage import scaling_triage
from labkit.evidence.triage.scaling import BUSY, COSTS, ORDER
from labkit.evidence.triage.scaling_job import recorded_steps
from labkit.practice.data_loading import Host, loader_wait
from labkit.units import digits, format_share, format_time


@claim(
    "6.2-a",
    "Four steps in a fixed order 数据加载、切法和拓扑、通信覆盖率、通信量",
    guide="data loading, mapping, coverage, volume",
)
def four_steps():
    said = []
    for name, evidence in scaling.triage_cases().items():
        found = scaling_triage(evidence)
        said.append(f"{name}: " + (f"{found.cause.name}, {found.cause.kind}" if found.cause else "none"))
    return f"{', '.join(ORDER)}; " + "; ".join(said)


@claim(
    "6.2-b",
    "GPU 利用率 under 60 % and uneven: look at the data pipeline 先查数据管道",
    guide="60 %",
    verdict="approximately",
    why="the threshold is kept, for the share in which a card computes; the usual counter counts kernels "
    "that wait for a starved peer as busy, so step 1 asks how long each rank waits for its input",
)
def utilisation():
    job = recorded_steps("one worker")
    load, inside, step = (times.mean(axis=0) for times in (job.load, job.exchange, job.step))
    busy, computing = 1 - load / step, (step - load - inside) / step
    worst = int(load.argmax())
    others = [rank for rank in range(len(load)) if rank != worst]
    return (
        f"limit {format_share(BUSY)}; recorded, rank {worst} waits {format_share(load[worst] / step[worst])} "
        f"of its step for input: the others' counter reads {format_share(busy[others].min())}, and "
        f"computing is {format_share(computing.min())} to {format_share(computing.max())} on every rank"
    )


@claim(
    "6.2-c",
    "Pressure on loading grows linearly 线性增长; more workers, preprocessing on the card, encoded data "
    "增加加载进程数、预处理放到卡上、编码成定长格式; 加载的进程数设成了 1",
    guide="linear in the cards; three remedies; one worker",
    verdict="approximately",
    why="linear in the cards of a host; in hosts only for what they share, such as storage; each remedy has "
    "its own price",
)
def loading():
    table, remedies = scaling.loader_table(), scaling.remedies_table()
    needed = ", ".join(f"{row[0]} cards {row[2]}" for row in table.rows)
    one = loader_wait(8 / scaling.RATE, 64, 1, scaling.SECONDS)
    ways = ", ".join(f"{row[0]} {row[3]}" for row in remedies.rows)
    single = scaling_triage(scaling.triage_cases()["recorded: one worker"]).cause.evidence.split("; ")[-1]
    return (
        f"workers needed: {needed}; 8 cards with 1 worker wait {format_time(one)} in each step of "
        f"{format_time(Host().step)}; a step, {ways}; shared storage {scaling.storage_said()}; "
        f"a finding: {single}"
    )


@claim(
    "6.2-d",
    "Communication takes what theory says, no overlap: buckets or switch 桶大小设置不合理或者重叠开关没打开; "
    "and again 基本吻合: the volume is too large 通信量本身就太大了",
    guide="one observation, verdict of step 3 and of step 4",
    verdict="corrected",
    why="how long communication takes says nothing of overlap: step 3 judges coverage and exposed time, "
    "step 4 measured over expected duration",
)
def one_observation():
    return "; ".join(
        f"{row[0]}: measured {row[1]}, expected {row[2]}, exposed {row[3]}, cause {row[5]}"
        for row in scaling.duration_table().rows
    )


@claim(
    "6.2-e",
    "Measured far above theory: contention or congestion 说明有争抢或者拥塞",
    guide="total bytes / measured bandwidth; contention or congestion",
    verdict="approximately",
    why="there is a third cause, waiting for late ranks: the shortest rank's duration is the transfer; and "
    "what is divided is a rank's traffic, by busbw, never the bytes of all ranks by algbw",
)
def too_long():
    causes = "; ".join(
        f"{row[0]}: measured {row[1]}, shortest {row[3]}, {row[5]}" for row in scaling.duration_causes().rows
    )
    times = "; ".join(f"{name} {format_time(s)}" for name, s in scaling.expected_times().items())
    return f"{causes}; 26 GB over 16 ranks: {times}"


@claim(
    "6.2-f",
    "From cheap to dear 从便宜到贵",
    guide="the fixed order is the order of cost",
)
def cost():
    return "; ".join(f"{digits(at)} {name}: {COSTS[name]}" for at, name in enumerate(ORDER, 1))
