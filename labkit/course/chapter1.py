"""Chapter 1's worked example: a job in the ten-billion class on a measured cluster, and its tables.

Nothing is chosen to make the guide's story true. The cluster is a published profile; the job has 10 B
parameters and bf16 gradients; its batch is the smallest that 64 ranks can share as one sequence of 512 tokens
each. Every one of them is a slider.
"""

from dataclasses import replace

from labkit.collectives.scaling import Scaling, Setting, knee, scaling, what_it_takes
from labkit.course.table import Table, table
from labkit.planner.compute import compute_time
from labkit.planner.levers import levers
from labkit.planner.states import smallest_ranks, state_bytes
from labkit.planner.traffic import Workload, bill, sharded
from labkit.presets import cluster
from labkit.spec import Cluster
from labkit.units import GB, format_bytes, format_share, format_time

PARAMETERS = 10e9
CLUSTER = "a100-galvatron"
BATCH = 64 * 512  # tokens per step
RANKS = (8, 16, 32, 64)
MODEL = Workload(parameters=13e9, layers=40, hidden=5120, sequence=2048, micro_batch=1, micro_batches=16)


def setting(machine: Cluster, batch=BATCH, gradient=2 * PARAMETERS, **changes) -> Setting:
    """The job on 8 GPUs of ``machine``: ``batch`` tokens per step, ``gradient`` bytes reduced per rank."""
    compute = float(compute_time(6 * PARAMETERS * batch / 8, machine.gpu))
    return Setting(gradient=gradient, compute=compute, **changes)


def story(n=RANKS, batch=BATCH, **changes) -> Scaling:
    """The job's scaling rows on the chapter's cluster."""
    machine = cluster(CLUSTER)
    return scaling(list(n), machine, setting(machine, batch, **changes))


def largest_true_batch(n=32, gain=1.5) -> float:
    """The largest batch (tokens) where ``n`` ranks bring under ``gain`` x the throughput of 8; bisected."""
    low, high = 2.0**10, 2.0**30
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if story([n], middle).throughput[0] < gain else (low, middle)
    return low


def parts_table(rows: Scaling) -> Table:
    """One row per N: the step, its terms, the throughput, and which term grew."""
    grew = ["", *rows.grew()]
    return table(
        ("N", "step", "compute", "latency", "bandwidth", "contention", "throughput", "efficiency", "grew"),
        (
            (
                f"{n:,}",
                *(
                    format_time(t[i])
                    for t in (rows.step, rows.compute, rows.latency, rows.bandwidth, rows.contention)
                ),
                f"{rows.throughput[i]:.2f}",
                format_share(rows.efficiency[i]),
                grew[i],
            )
            for i, n in enumerate(rows.n)
        ),
    )


def modes_table(n=RANKS) -> Table:
    """Throughput relative to 8 ranks: strong scaling, weak, and what bends the weak curve."""
    columns = {
        "strong": story(n),
        "weak": story(n, mode="weak"),
        "weak, 30 % of the ports left beyond 32 ranks": story(n, mode="weak", taper=0.3),
        "weak, in 100 kB buckets": story(n, mode="weak", bucket=1e5),
    }
    rows = zip(map(str, n), *(column.throughput for column in columns.values()), strict=True)
    return table(("N", *columns), ((name, *(f"{value:.2f}" for value in values)) for name, *values in rows))


def knee_table() -> Table:
    """The N at which communication takes as long as computation, for three settings."""
    machine = cluster(CLUSTER)
    settings = {
        "strong, this batch": setting(machine),
        "strong, 32 x the batch": setting(machine, 32 * BATCH),
        "weak, this batch per rank": setting(machine, mode="weak"),
        "weak, 32 x the batch per rank": setting(machine, 32 * BATCH, mode="weak"),
    }
    return table(("scaling", "knee at N"), ((name, knee(machine, one)) for name, one in settings.items()))


def lever_table(n=32, target=0.8) -> Table:
    """Which single input brings ``n`` ranks to the target efficiency, and how far it must move."""
    machine = cluster(CLUSTER)
    factors = what_it_takes(machine, setting(machine), n, target)
    words = {
        "batch": "tokens behind each reduction, times",
        "bandwidth": "port bandwidth, times",
        "gradient": "gradient bytes, divided by",
        "overlap": "share of the backward pass that hides communication",
    }
    return table(
        ("input, alone", f"for {format_share(target)} at {n} ranks"),
        ((words[k], v) for k, v in factors.items()),
    )


def baseline_table() -> Table:
    """The fewest 80 GB cards that hold the model states of the job (activations come on top)."""
    names = ("plain data parallel", "stage 1", "stage 2", "stage 3")
    return table(
        ("model states", "per card on 8 cards", "fewest cards of 80 GB"),
        (
            (
                name,
                format_bytes(state_bytes(PARAMETERS, 8, stage)),
                _whole(smallest_ranks(PARAMETERS, 80 * GB, stage)),
            )
            for stage, name in enumerate(names)
        ),
    )


def _whole(count: float) -> str:
    return f"{count:.0f}" if count < float("inf") else "no number of cards"


def bill_table(n=8) -> Table:
    """What each way of cutting one model over ``n`` ranks sends in one step, stage 3 also for m = 1."""
    once = replace(MODEL, micro_batches=1)
    rows = [(row.strategy, row) for row in bill(MODEL, n)]
    rows += [("stage 3, one micro-batch", row) for row in sharded(once, n, 3)]
    return table(
        ("cut", "collective", "payload", "per step", "a rank sends per step", "link"),
        (
            (
                cut,
                row.collective,
                format_bytes(row.payload),
                f"{row.count:,.0f} x",
                format_bytes(row.bytes_per_rank),
                row.link,
            )
            for cut, row in rows
        ),
    )


def technique_table() -> Table:
    """Every technique of chapters 3 and 4, by the lever it pulls."""
    rows = levers(MODEL, cluster("a100", nodes=8))
    return table(
        ("lever", "technique", "section", "bytes", "coverage", "exposed", "link", "note"),
        (
            (
                row.kind,
                row.technique,
                row.section,
                _change(row.before.bytes_per_rank, row.after.bytes_per_rank, format_bytes),
                _change(row.before.coverage, row.after.coverage, format_share),
                _change(row.before.exposed, row.after.exposed, format_time),
                row.before.link
                if row.before.link == row.after.link
                else f"{row.before.link} → {row.after.link}",
                row.note,
            )
            for row in rows
        ),
    )


def _change(before, after, form) -> str:
    return form(after) if abs(after - before) <= 1e-9 * abs(before) else f"{form(before)} → {form(after)}"
