"""Section 4.3 as tables: one definition of coverage, what each overlap hides and costs, what goes wrong."""

import numpy as np

from labkit.course.chapter3_buckets import blocks_of, overlapped, ring_on
from labkit.course.chapter3_data import SMALL, machine_of
from labkit.course.chapter4_off_and_on import ALL, OVERLAPS, TIMED, gradient_buckets, off_and_on
from labkit.course.table import Table, table
from labkit.spec.rule import counted
from labkit.strategies.buckets import CAP, FIRST_CAP
from labkit.strategies.contention import SLOW_DOWN, break_even, overlap_gain
from labkit.strategies.overlap import step_timeline
from labkit.strategies.overlap_check import overlap_findings
from labkit.strategies.stream_check import check
from labkit.strategies.streams import COMMUNICATION, COMPUTE, AllReduce, Kernel, Operation, Record, Wait, run
from labkit.strategies.tensor_streams import WAYS, tensor_case
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline
from labkit.units import digits, format_share, format_time

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


def overlaps_table(name="a100", n=64, sequences=2, slow_down=1.0) -> Table:
    """Claim 4.3-f: every overlap off and on, with coverage, exposed time and its share; all layers."""
    rows, machine = [], machine_of(name, n)
    for overlap in OVERLAPS:
        pair = off_and_on(overlap, machine, n, sequences, slow_down=slow_down, layers=ALL)
        for t, how in zip(pair, ("off", "on"), strict=True):
            rows.append((overlap, how, *facts(t), format_time(t.span), TIMED[overlap]))
    return table(("overlap", "", "coverage", "exposed", "of the time", "time", "of what"), rows)


def tensor_overlaps(name: str, sequences=2) -> dict[str, Timeline]:
    """Tensor parallel over all layers, by way of overlap; and both passes, in chunks forward."""
    machine = machine_of(name, 8)
    on = {
        way: off_and_on(way, machine, 8, sequences, layers=ALL)[1]
        for way in OVERLAPS
        if way.startswith("tensor")
    }
    forward, backward = on["tensor parallel, in chunks"], on["tensor parallel, beside weight gradients"]
    return {**on, "tensor parallel, chunks and weight gradients": after(forward, backward)}


def after(first: Timeline, second: Timeline) -> Timeline:
    """One timeline that goes on with the other."""
    fields = ("start", "stop", "kind", "item")
    both = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in fields}
    moved = np.repeat([0.0, first.span], [len(first.start), len(second.start)])
    start, stop = both["start"] + moved, both["stop"] + moved
    return Timeline(np.zeros(len(start), dtype=int), start, stop, both["kind"], both["item"])


def coverage_table(names=("a100", "h100", "b200"), sequences=2) -> Table:
    """Claim 4.3-b: what data and tensor parallel reach, by preset: coverage, exposed time and its share."""
    found, heads = [], ["overlap"]
    for name in names:
        data = {f"DP, {counted(each, 'sequence')}": overlapped(each, 64, name) for each in (1, 2, 8)}
        split = tensor_overlaps(name, sequences)
        found.append(data | {way.replace("tensor parallel", "TP"): t for way, t in split.items()})
        heads += [f"{name}: coverage", "exposed", "of the time"]
    rows = ((way, *(fact for each in found for fact in facts(each[way]))) for way in found[0])
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
                *facts(on),
                format_time(hidden),
                format_time(slowed),
                format_time(off.span - on.span),
            )
        )
    return table(
        ("slow-down", "coverage", "exposed", "of the step", "hidden", "cost in compute", "saved"), rows
    )


def break_even_table(shares=(1.0, 0.5, 0.25, 0.15, 0.05), slow_downs=(1.1, SLOW_DOWN, 1.3)) -> Table:
    """Where overlap stops paying, by hidden communication over the computing that is slowed for it."""
    rows = []
    for share in shares:
        pays = ["yes" if overlap_gain(share, 1.0, slow_down) > 0 else "no" for slow_down in slow_downs]
        rows.append((format_share(share), break_even(share, 1.0), *pays))
    return table(
        (
            "hidden / slowed computing",
            "break-even slow-down",
            *(f"pays at {slow_down:g}" for slow_down in slow_downs),
        ),
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
        ("break-even slow-down", *(f"at {counted(each, 'sequence')}" for each in sequences)),
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
