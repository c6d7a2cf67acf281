"""Section 6.3 on changing the plan: what is cut anew, who reads from whom, and what must be carried over."""

import numpy as np

from labkit.course.table import Table, table
from labkit.practice.resharding import (
    FORMATS,
    Reshard,
    assemble,
    changes,
    cuts,
    overlaps,
    reads,
    reshard,
    survives,
)
from labkit.practice.resharding.formats import CHANGES
from labkit.practice.resuming import WAYS, repeats, resumed
from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.spec.plan_words import said
from labkit.units import GB, digits

# 32 cards of a plan that fits A100 nodes, and what somebody may want on 64.
SOURCE = Plan(tp=8, dp=4, zero=1, global_batch=512)
TARGETS = {
    "twice the replicas": Plan(tp=8, dp=8, zero=1, global_batch=512),
    "a pipeline of two": Plan(tp=8, pp=2, dp=4, zero=1, global_batch=512),
    "tensor parallel over two nodes": Plan(tp=16, dp=4, zero=1, global_batch=512),
}
MODELS = ("guide-13b", "gpt3-13b")
NODES = 8


def change(target: Plan, id: str = "gpt3-13b", form: str | None = None) -> Reshard:
    """``reshard`` from the 32 cards of this section to a target on A100 nodes."""
    return reshard(model(id), cluster("a100", NODES), SOURCE, target, form)


def slices_table(length=13, source=3, target=4) -> Table:
    """Claim 6.3-m on arrays: each target slice, what it reads, and whether the arrays come out right."""
    old, new = cuts(length, source), cuts(length, target)
    whole = np.arange(length)
    made = assemble(np.split(whole, old[1:-1]), target)
    read = overlaps(old, new)
    rows = []
    for rank, wanted in enumerate(np.split(whole, new[1:-1])):
        mine = read.target == rank
        sources = " + ".join(
            f"{n} from rank {s}" for n, s in zip(read.length[mine], read.source[mine], strict=True)
        )
        span = f"{new[rank]} to {new[rank + 1] - 1}"
        rows.append((rank, span, sources, "exact" if np.array_equal(made[rank], wanted) else "wrong"))
    return table(("target rank", "elements", "reads", "assembled"), rows)


def tensors_table(id="gpt3-13b") -> Table:
    """Claim 6.3-d: what becomes of each tensor for each of the targets."""
    answers = [change(target, id).tensors for target in TARGETS.values()]
    rows = [
        (one.name, *(row.change + ("" if row.fits else " ✗") for row in (one, *others)))
        for one, *others in zip(*answers, strict=True)
    ]
    return table(("tensor", *(f"{name}, {_cut(target)}" for name, target in TARGETS.items())), rows)


def reads_table() -> Table:
    """Claim 6.3-d: bytes that each target rank reads, and from how many, for the targets that work."""
    rows = []
    for id in MODELS:
        for name, target in TARGETS.items():
            if not change(target, id).possible:
                continue
            read = reads(model(id), SOURCE, target)
            total = read.total.sum(axis=1)
            sources = _range(read.sources.min(), read.sources.max())
            kinds = (read.weights.sum(axis=1), read.optimizer.sum(axis=1), total)
            sizes = (f"{_range(*(digits(f(kind) / GB) for f in (np.min, np.max)))} GB" for kind in kinds)
            rows.append((id, f"{name}, {_cut(target)}", *sizes, sources))
    heads = ("model", "target", "weights a rank", "optimizer a rank", "both", "from source ranks")
    return table(heads, rows)


def who_table(id="gpt3-13b", target="twice the replicas", ranks=(0, 8, 16, 56)) -> Table:
    """Who reads from whom: some target ranks, with the bytes from each source rank."""
    read = reads(model(id), SOURCE, TARGETS[target])
    rows = []
    for rank in ranks:
        asked = np.flatnonzero(read.total[rank])
        parts = (f"{digits(read.total[rank, source] / GB)} GB from {source}" for source in asked)
        rows.append((rank, " + ".join(parts)))
    return table(("target rank", "reads"), rows)


def forms_table() -> Table:
    """Cases G1 and G3: what the optimizer of each form survives, and the weights."""
    rows = [
        (name, *("yes" if one in form.optimizer else "no" for one in CHANGES), _weights(form))
        for name, form in FORMATS.items()
    ]
    return table(("form", *CHANGES, "weights, whatever changes"), rows)


def _weights(form) -> str:
    missing = [name for name in CHANGES if name not in form.weights]
    return "yes" if not missing else f"not {', '.join(missing)}"


def reports_table() -> Table:
    """Reported changes of plan, and what the form of their checkpoint lets through."""
    many = dict(zero=3)
    cases = (
        ("8 -> 16 cards", "deepspeed", Plan(dp=8, **many), Plan(dp=16, **many)),
        ("4 -> 6 cards, elastic", "deepspeed-elastic", Plan(dp=4, zero=2), Plan(dp=6, zero=2)),
        ("32 -> 128 cards, converted", "deepspeed-universal", Plan(dp=32, **many), Plan(dp=128, **many)),
        ("pp 4 -> ep 4", "dp_reshardable", Plan(pp=4, zero=1), Plan(dp=4, ep=4, zero=1)),
        ("pp 4 -> ep 4", "fully_reshardable", Plan(pp=4, zero=1), Plan(dp=4, ep=4, zero=1)),
    )
    rows = []
    for name, form, source, target in cases:
        lost = survives(form, source, target)
        changed = ", ".join(changes(source, target))
        caution = "yes, with care" if any("caution" in line for line in lost.says) else "yes"
        rows.append(
            (name, form, changed, "yes" if lost.weights else "no", caution if lost.optimizer else "no")
        )
    return table(("reported", "form", "changes", "weights", "optimizer"), rows)


def resumed_table(ranks=(4, 6), steps=(300, 50)) -> Table:
    """Claim 6.3-n: a small run saved on 4 ranks and resumed on 6, with all of its state or without some."""
    rows = []
    for way in WAYS:
        unbroken, broken = resumed(way, ranks, steps)
        after = slice(steps[0], steps[0] + 10)
        apart = np.abs(broken - unbroken)[steps[0] :].max()
        rows.append((way, f"{broken[after].mean():.3f}", f"{unbroken[after].mean():.3f}", rounded(apart)))
    heads = ("carried over", "loss, mean of the next 10 steps", "of the unbroken run", "most apart in a step")
    return table(heads, rows)


def rounded(apart: float) -> str:
    """A difference of losses, where it is more than the rounding of sums in another order."""
    return "rounding only" if apart < 1e-12 else f"{apart:.2f}"


def position_table(total=1_000_000, read=600_000) -> Table:
    """What a pass sees where the data position is lost after some of it, and where it is carried over."""
    left = total - read
    lost = repeats(total, read, left)
    rows = [
        ("carried over", 0, f"{total:,}", 0),
        ("lost", *(f"{lost[key]:,}" for key in ("twice", "once", "never"))),
    ]
    return table(("position", "seen twice", "once", "never"), rows)


def _cut(plan: Plan) -> str:
    return said(plan).split(",")[0]


def _range(low, high) -> str:
    return str(low) if low == high else f"{low} to {high}"
