"""Section 4.3 as tables: one definition of coverage, what each overlap hides and costs, what goes wrong."""

import numpy as np

from labkit.course.chapter3_buckets import blocks_of, overlapped, ring_on
from labkit.course.chapter3_data import SMALL, machine_of
from labkit.course.chapter3_tensor import block_times
from labkit.course.table import Table, table
from labkit.planner.sharding import sharded_layer
from labkit.presets import model
from labkit.spec import Cluster, Plan
from labkit.strategies.buckets import CAP, FIRST_CAP
from labkit.strategies.contention import SLOW_DOWN, break_even, overlap_gain
from labkit.strategies.overlap import step_timeline
from labkit.strategies.overlap_check import overlap_findings
from labkit.strategies.prefetch import prefetch_timeline
from labkit.strategies.stream_check import check
from labkit.strategies.streams import COMMUNICATION, COMPUTE, AllReduce, Kernel, Operation, Record, Wait, run
from labkit.strategies.tensor_overlap import beside_weight_gradients, half_batches, in_chunks, in_turn
from labkit.strategies.tensor_streams import WAYS, tensor_case
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline
from labkit.units import digits, format_share, format_time

CHUNKS = 4

# ---- one definition


def streams_of(computing, communicating) -> Timeline:
    """One rank's timeline from (start, stop) pairs in seconds, as a profile gives them."""
    rows = [(*pair, FORWARD) for pair in computing] + [(*pair, TRANSFER) for pair in communicating]
    start, stop, kind = zip(*rows, strict=True)
    return Timeline([0] * len(rows), start, stop, kind, range(len(rows)))


def misleading_table(compute=100e-3) -> Table:
    """Claim 4.3-e: the better coverage is the slower step. ``compute``: seconds, the same in both."""
    rows = []
    for communication, coverage in ((10e-3, 0.5), (100e-3, 0.9)):
        t = streams_of(
            [(0.0, compute)],
            [(compute - coverage * communication, compute + (1 - coverage) * communication)],
        )
        rows.append((format_time(t.communication[0]), *facts(t), format_time(t.span)))
    return table(("communication", "coverage", "exposed", "of the step", "step"), rows)


def facts(t: Timeline) -> tuple[str, str, str]:
    """Coverage, exposed time and its share of the step: never one of them alone."""
    exposed = t.exposed.max()
    return format_share(t.coverage), format_time(exposed), format_share(exposed / t.span)


# ---- the overlaps, each on and off


def gradient_buckets(machine: Cluster, n, sequences, bucket, slow_down) -> tuple[Timeline, Timeline]:
    """Off and on: one step of the 1.3 B model of section 3.1 on ``n`` ranks."""
    blocks = blocks_of(SMALL, machine.gpu, sequences)
    first = min(FIRST_CAP, bucket)
    return tuple(
        step_timeline(blocks, ring_on(machine, n), bucket, first, slow_down, overlap=on)
        for on in (False, True)
    )


def tensor_parallel(way: str, machine: Cluster, sequences, slow_down, blocks=4) -> tuple[Timeline, Timeline]:
    """Off and on: two layers of the guide's 13 B, tensor parallel inside a node.

    ``way``: in chunks or half batches, forward; beside weight gradients, backward, which computes twice as
    much. A block of ``chapter3_tensor.block_times`` is half a layer.
    """
    block, product, all_reduce = block_times(min(8, machine.domain), machine, sequences)
    rest = block - product
    if way == "in chunks":
        on = in_chunks(rest, product, all_reduce, CHUNKS, blocks, slow_down)
    elif way == "half batches":
        on = half_batches(block, all_reduce, blocks, slow_down)
    else:
        off = beside_weight_gradients(2 * block, 0.0, all_reduce, blocks)  # nothing is left to run beside
        return off, beside_weight_gradients(block + product, rest, all_reduce, blocks, slow_down)
    return in_turn(block, all_reduce, blocks), on


def stage_3(machine: Cluster, n, sequences, slow_down) -> tuple[Timeline, Timeline]:
    """Off and on: a micro-batch of gpt3-13b under stage 3, its layers gathered when needed or one ahead."""
    one = model("gpt3-13b")
    layer = sharded_layer(one, machine, Plan(dp=n, zero=3, micro_batch=sequences))
    times = (layer.forward, layer.backward, layer.gather, layer.scatter)
    return tuple(prefetch_timeline(one.layers, *times, depth, slow_down=slow_down) for depth in (0, 1))


OVERLAPS = (
    "gradient buckets",
    "tensor parallel, in chunks",
    "tensor parallel, half batches",
    "tensor parallel, beside weight gradients",
    "stage-3 prefetch",
)


def off_and_on(
    overlap: str, machine: Cluster, n=64, sequences=2, bucket=CAP, slow_down=1.0
) -> tuple[Timeline, Timeline]:
    """One of ``OVERLAPS``, off and on: ``n`` ranks, ``sequences`` of 2,048 tokens on each."""
    if overlap == "gradient buckets":
        return gradient_buckets(machine, n, sequences, bucket, slow_down)
    if overlap == "stage-3 prefetch":
        return stage_3(machine, n, sequences, slow_down)
    return tensor_parallel(overlap.split(", ")[1], machine, sequences, slow_down)


def overlaps_table(name="a100", n=64, sequences=2, slow_down=1.0) -> Table:
    """Claim 4.3-f: every overlap off and on, with coverage, exposed time and its share."""
    rows, machine = [], machine_of(name, n)
    for overlap in OVERLAPS:
        for t, how in zip(
            off_and_on(overlap, machine, n, sequences, slow_down=slow_down), ("off", "on"), strict=True
        ):
            rows.append((overlap, how, *facts(t), format_time(t.span)))
    return table(("overlap", "", "coverage", "exposed", "of the step", "step"), rows)


def tensor_coverage(name: str, sequences=2) -> dict[str, float]:
    """Coverage of tensor parallel's all_reduces by way; and of both passes, chunks forward."""
    on = {
        way: off_and_on(way, machine_of(name, 8), 8, sequences)[1]
        for way in OVERLAPS
        if way.startswith("tensor")
    }
    passes = [on["tensor parallel, in chunks"], on["tensor parallel, beside weight gradients"]]
    both = sum(t.hidden[0] for t in passes) / sum(t.communication[0] for t in passes)
    return {**{way: t.coverage for way, t in on.items()}, "chunks and weight gradients": both}


def coverage_table(names=("a100", "h100", "b200"), sequences=2) -> Table:
    """Claim 4.3-b: the coverage that data and tensor parallel reach, by preset."""
    rows = []
    for name in names:
        data = [format_share(overlapped(each, 64, name).coverage) for each in (1, 2, 8)]
        rows.append((name, *data, *map(format_share, tensor_coverage(name, sequences).values())))
    heads = ("cluster", "DP, 1 seq/rank", "2", "8", "TP, chunks", "halves", "backward", "chunks + backward")
    return table(heads, rows)


# ---- what overlap costs


def slow_down_table(n=64, sequences=2, slow_downs=(1.0, 1.1, SLOW_DOWN, 1.4)) -> Table:
    """Claim 4.3-d: gradient buckets with computing beside an all_reduce so many times as long."""
    rows = []
    for slow_down in slow_downs:
        off, on = gradient_buckets(machine_of("a100", n), n, sequences, CAP, slow_down)
        hidden, slowed = on.hidden[0], on.busy[0] - off.busy[0]
        rows.append(
            (
                slow_down,
                *facts(on)[:2],
                format_time(hidden),
                format_time(slowed),
                format_time(off.span - on.span),
            )
        )
    return table(("slow-down", "coverage", "exposed", "hidden", "cost in compute", "saved"), rows)


def break_even_table(shares=(1.0, 0.5, 0.25, 0.15, 0.05), slow_downs=(1.1, SLOW_DOWN, 1.3)) -> Table:
    """Where overlap stops paying, by hidden communication over the computing that is slowed for it."""
    rows = []
    for share in shares:
        pays = ["yes" if overlap_gain(share, 1.0, slow_down) > 0 else "no" for slow_down in slow_downs]
        rows.append((format_share(share), break_even(share, 1.0), *pays))
    return table(
        ("hidden / slowed computing", "break-even", *(f"pays at {slow_down:g}" for slow_down in slow_downs)),
        rows,
    )


def whole_backward(sequences, n=64, name="a100") -> float:
    """The slow-down at which gradient buckets win nothing if all of the backward pass is slowed for them."""
    _, on = gradient_buckets(machine_of(name, n), n, sequences, CAP, 1.0)
    backward = (on.stop - on.start)[on.kind == BACKWARD].sum()
    return break_even(on.hidden[0], backward)


def whole_backward_table(sequences=(1, 2, 4, 8, 16), names=("a100", "h100")) -> Table:
    """``whole_backward`` by cluster and sequences per rank."""
    return table(
        ("cluster", *(f"{each} seq/rank" for each in sequences)),
        ((name, *(whole_backward(each, name=name) for each in sequences)) for name in names),
    )


# ---- two streams, and what goes wrong on them


def way_table(t=2) -> Table:
    """Claim 4.3-c: tensor parallel's overlaps run on real numbers, and what the checker says of each."""
    rows = []
    for way in WAYS:
        case = tensor_case(way, t)
        outcome = run(case.programs, case.buffers)
        off_by = wrong_by(outcome.buffers, case.expected)
        findings = ", ".join(finding.kind for finding in check(case.programs)) or "legal"
        rows.append(
            (way, findings, "right" if off_by < 1e-12 else f"off by {digits(off_by)}", outcome.timeline.span)
        )
    return table(("all_reduce of block 1 ...", "checker", "result", "units of time"), rows)


def wrong_by(buffers: list[dict[str, np.ndarray]], expected: dict[str, np.ndarray]) -> float:
    """Largest difference of any rank's buffer from what it must hold."""
    return max(
        float(np.abs(held[name] - right).max()) for held in buffers for name, right in expected.items()
    )


def missing_wait(wait: bool) -> list[list[Operation]]:
    """Two ranks double their x, sum it and add one; the addition waits for the sum, or was forgotten to."""
    first = [Kernel("double", ("x",), "y", lambda x: 2 * x), Record("doubled"), Wait("doubled")]
    then = [AllReduce("y"), Record("summed", COMMUNICATION), *([Wait("summed", COMPUTE)] if wait else [])]
    return [[*first, *then, Kernel("add one", ("y",), "z", lambda y: y + 1)]] * 2


def two_communicators(same_order: bool) -> list[list[Operation]]:
    """Two ranks that reduce gradients and activations; rank 1 in the other order, or in the same."""
    start = Kernel("start", (), "gradients", lambda: np.ones(1)), Record("started"), Wait("started")
    both = [AllReduce("gradients", communicator="data"), AllReduce("activations", communicator="tensor")]
    return [[*start, *both], [*start, *(both if same_order else both[::-1])]]


def mistakes_table() -> Table:
    """Claim 4.3-g: a forgotten wait and two orders, run and checked; the remedy beside them."""
    buffers = [{"x": np.full(1, rank + 1.0), "activations": np.ones(1)} for rank in range(2)]
    rows = []
    for name, programs in (
        ("no wait for the sum", missing_wait(False)),
        ("with the wait", missing_wait(True)),
        ("two orders", two_communicators(False)),
        ("one order", two_communicators(True)),
    ):
        outcome = run(programs, buffers)
        result = outcome.buffers[0].get("z", outcome.buffers[0]["activations"]).item()
        ends = f"finished, rank 0 has {result:g}" if outcome.finished else "hangs"
        rows.append((name, ends, "; ".join(finding.kind for finding in check(programs)) or "nothing"))
    return table(("program", "run", "checker finds"), rows)


# ---- read off a trace

CAPS = {"overlap off": CAP, "one bucket": float("inf"), "a bucket a gradient": 1.0, "25 MiB": CAP}


def traces(n=16, sequences=8, name="a100") -> dict[str, Timeline]:
    """Four steps of the 1.3 B model as a profile would show them."""
    machine = machine_of(name, n)
    blocks = blocks_of(SMALL, machine.gpu, sequences)
    return {
        what: step_timeline(
            blocks,
            ring_on(machine, n),
            cap,
            min(FIRST_CAP, cap) if what == "25 MiB" else cap,
            overlap=what != "overlap off",
        )
        for what, cap in CAPS.items()
    }


def trace_findings(n=16, sequences=8, name="a100") -> dict[str, list[str]]:
    """Claim 4.3-h: what ``overlap_findings`` says of each of ``traces``."""
    latency = float(ring_on(machine_of(name, n), n)(np.zeros(1))[0])
    return {
        what: [finding.says for finding in overlap_findings(t, latency)]
        for what, t in traces(n, sequences, name).items()
    }


def trace_table(n=16, sequences=8, name="a100") -> Table:
    """The findings beside coverage and exposed time."""
    says = trace_findings(n, sequences, name)
    return table(
        ("trace", "coverage", "exposed", "of the step", "finding"),
        (
            (what, *facts(t), "; ".join(says[what]) or "nothing to mend")
            for what, t in traces(n, sequences, name).items()
        ),
    )
