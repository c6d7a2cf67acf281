"""Section 5.4's jobs: what is measured of them, their causes known, and what others reported of theirs."""

from functools import cache

import numpy as np

from labkit.evidence.limits import GUIDE
from labkit.evidence.measured import Measured, Throughput
from labkit.evidence.pairs import PairReport, slow_pairs
from labkit.evidence.slow_rank_job import recorded_job
from labkit.presets import cluster, model
from labkit.presets.published import published
from labkit.spec import StepTime, Transformer
from labkit.strategies.pipeline import bubble_share
from labkit.units import GB, format_share

RECOMPUTE = ("none", "selective", "full")
SINGLE = GUIDE.mfu[1]  # the MFU of one card that the guide's range ends with


def peak() -> float:
    """FLOP/s of the card of these jobs, dense, in bf16."""
    return cluster("a100").gpu.peak["bf16"]


@cache
def repeated(recompute) -> float:
    """FLOPs that recompute adds, over those of the model: the guide's layers at 2,048 tokens."""
    shape = model("guide-13b")
    return shape.hardware_flops(recompute=recompute) / shape.model_flops() - 1


def made_job(
    gpus=64, p=4, m=16, tensor=GUIDE.tensor, data=GUIDE.data, coverage=0.0, recompute="none", single=SINGLE,
    late=0.0,
) -> Measured:  # fmt: skip
    """What would be measured of a job whose causes are known: one card does its useful work in 1 s a step.

    ``single``: that card's MFU, alone. ``tensor``: share of a stage's own time in tensor-parallel
    collectives, nothing hidden. ``p``, ``m``: pipeline stages and micro-batches. ``data``: share of the step
    in which data-parallel collectives run, ``coverage`` of it hidden. ``late``: one rank has so much more
    work, and the others wait. A cause takes its share of what those before it leave.
    """
    compute = 1 + repeated(recompute)
    idle = late * compute
    stage = (compute + idle) / (1 - tensor)
    pipeline = stage / (1 - bubble_share(p, m))
    total = pipeline / (1 - (1 - coverage) * data)
    flops = single * peak() * gpus
    step = StepTime(
        compute=compute,
        tp=tensor * stage,
        dp=total - pipeline,
        bubble=pipeline - stage,
        idle=idle,
        communication=tensor * stage + data * total,
        tokens=float(gpus),
        gpus=gpus,
        model_flops=flops,
        hardware_flops=flops * compute,
        peak=peak(),
    )
    return Measured(
        step=step,
        known=("bubble", "idle", "data"),
        causal=False,
        base=Throughput(1.0, 1, "one card"),
        base_mfu=single,
        rank_work=compute * np.array([1.0] * 7 + [1 + late]),
    )


def shares(mfu, again=0.0, known=("bubble", "idle", "data"), **terms) -> Measured:
    """A measured step of 1 s with these shares, the rest computing, and this MFU on 32 cards."""
    flops = mfu * 32 * peak()
    step = StepTime(
        compute=1 - sum(terms.values()),
        **terms,
        communication=sum(terms.get(name, 0.0) for name in ("tp", "dp")),
        gpus=32,
        tokens=1e5,
        peak=peak(),
        model_flops=flops,
        hardware_flops=flops * (1 + again),
    )
    return Measured(step=step, known=known, causal=False)


def rule_cases() -> dict[str, Measured]:
    """Claim 5.4-h: for each rule of the guide a job that breaks it, with what tells the cause."""
    one = np.tile([1.0] * 7 + [1.3], (20, 1))
    stages = np.tile([1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2, 1.2], (20, 1))
    drawn = 1 + 0.2 * np.eye(8)
    return {
        "efficiency 50 % on 16 cards": Measured(throughput=Throughput(240, 16), base=Throughput(240, 8)),
        "data parallel 20 % exposed": shares(0.45, dp=0.2),
        "utilisation 30 %, nobody waits": shares(0.30, known=("bubble", "idle")),
        "half of the ranks have more": Measured(rank_work=stages, rank_stage=[0] * 4 + [1] * 4),
        "one rank, by its tokens": Measured(rank_work=one, rank_tokens=[1000] * 7 + [1400]),
        "one rank, by its experts": Measured(rank_work=one, rank_expert_tokens=[1000] * 7 + [3000]),
        "another rank each time": Measured(rank_work=drawn),
    }


def hidden_cases() -> dict[str, StepTime]:
    """A step of 1 s with data-parallel collectives that run, and that are exposed, for so long."""
    cases = ((0.40, 0.0), (0.40, 0.20), (0.12, 0.06), (0.09, 0.09))
    return {
        f"{format_share(runs)} of the step, {format_share(1 - exposed / runs)} hidden": StepTime(
            compute=1 - exposed, dp=exposed, communication=runs
        )
        for runs, exposed in cases
    }


# Samples or words a second on so many cards, after what the base did: mlfoundations/open_clip issue 466 (30,
# 10 and 5 samples/s of a card on 1, 2 and 3 nodes), facebookresearch/fairseq issue 789.
REPORTS = {
    "CLIP, nodes of 8 V100": ((240, 8), (160, 16), (120, 24)),
    "translation, machines of 4 Titan X": ((38_000, 4), (10_000, 8)),
}


def report_cards() -> list[tuple[str, Measured]]:
    """The reports of cases E1 and E3 as measured jobs."""
    found = []
    for name, (base, *jobs) in REPORTS.items():
        at = Throughput(*base, f"{base[1]} cards")
        found += [(name, Measured(throughput=Throughput(*job), base=at)) for job in jobs]
    return found


def blame_cases() -> dict[str, Measured]:
    """Jobs of low MFU whose communication is within its limits; the first is the guide's own round 1."""
    return {
        "bubble of 4 stages, m = 16": shares(0.36, bubble=bubble_share(4, 16)),
        "the same, bubble not measured": shares(0.36, known=("data",)),
        "full recompute": shares(0.33, again=repeated("full")),
        "one rank in eight is late": shares(0.35, idle=0.15),
        "waits for its input": shares(0.32, data=0.25),
        "none of these": shares(0.32),
    }


def published_step() -> tuple[Transformer, dict]:
    """175B, selective recompute, sequence parallel, 64 A100: a step whose seconds are published."""
    row = next(
        r
        for r in published("korthikanti_2022_steps")
        if (r["model"], r["recompute"]) == ("175B", "selective")
    )
    names = ("layers", "hidden", "heads", "vocabulary", "sequence")
    return Transformer(row["model"], **{name: row[name] for name in names}), row


def pair_hunt(slow=("n5",), nodes=8, fast=80 * GB, half=40 * GB) -> list[tuple[dict, PairReport]]:
    """Rounds of pairwise measurements of made-up nodes, the ``slow`` ones at half the bandwidth."""
    names, measured, rounds = [f"n{i}" for i in range(nodes)], {}, []
    report = slow_pairs(names, measured)
    while report.next_pairs:
        new = {pair: half if set(pair) & set(slow) else fast for pair in report.next_pairs}
        measured |= new
        report = slow_pairs(names, measured)
        rounds.append((new, report))
    return rounds


# Own work and collective of four ranks in ms, as reported in horovod issue 2026 and others of its kind.
REPORTED = ((100, 40), (100, 40), (100, 40), (130, 10))


CASES = ("made up", "recorded here", "reported")


def rank_seconds(case="made up", n=8, slow=2.0, transfer=0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds of own work, waiting and exchange on each rank of one step.

    ``made up``: the usual work is 100 ms, the last of ``n`` ranks has ``slow`` times that, and the exchange
    takes ``transfer`` times it. ``recorded here`` (means of the steps; there the exchange is in the waiting)
    and ``reported`` have their own.
    """
    if case == "recorded here":
        step, work = recorded_job().means
        return work, step - work, 0 * work
    if case == "reported":
        work, collective = np.array(REPORTED).T / 1e3
        exchange = np.full(work.shape, collective.min())
        return work, collective - exchange, exchange
    work = 0.1 * np.array([1.0] * (n - 1) + [slow])
    return work, work.max() - work, np.full(n, 0.1 * transfer)
