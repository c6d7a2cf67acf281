"""Section 3.4 as tables: rank orders, one plan's bill, the last factor 2, stages, noise, 64 = 8 x 4 x 2."""

from dataclasses import replace
from functools import cache

from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.planner.bill import step_bill
from labkit.planner.candidates import TIGHT
from labkit.planner.decide import decide
from labkit.planner.factors import Factor, factor_two
from labkit.planner.stage_times import stage_forward, stage_transfer
from labkit.planner.states import MIXED, largest_model
from labkit.planner.step import step_time
from labkit.presets import cluster, model
from labkit.spec import Cluster, Link, Plan, RankGrid, Transformer
from labkit.spec.plan import DIMENSIONS
from labkit.spec.rules_batch import ENOUGH_MICRO_BATCHES
from labkit.strategies.gradient_noise import gradient_noise
from labkit.strategies.pipeline import bubble_share
from labkit.units import GB, digits, format_bytes, format_share, format_time

ORDERS = {"tensor, data, pipeline": "tp-cp-dp-pp", "tensor, pipeline, data": "tp-cp-pp-dp"}
GUIDE_PLAN = Plan(tp=8, pp=4, dp=2, micro_batch=4, global_batch=512)
BATCHES = (64, 128, 256, 512, 1024)
# Layers, hidden and heads of the family in "Efficient Large-Scale Language Model Training on GPU Clusters"
# (2021), table 1, by its printed sizes; vocabulary 51,200, sequence 2048.
FAMILY = {
    "7.5 B": (36, 4096, 32),
    "18.4 B": (40, 6144, 48),
    "39.1 B": (48, 8192, 64),
    "76.1 B": (60, 10240, 80),
    "145.6 B": (80, 12288, 96),
}
MICRO_BATCHES = (1, 2, 4, 8)


def crossings(plan: Plan, per_node=8) -> dict[str, tuple[int, int]]:
    """Groups that leave their node, and groups in all, of every dimension cut more than once."""
    grid = RankGrid(plan, per_node)
    cut = [name for name in DIMENSIONS if plan.degree(name) > 1]
    return {name: (grid.crossing(name), len(grid.groups(name))) for name in cut}


def orders_table(per_node=8) -> Table:
    """Who crosses, by rank order, for 32 and for 64 cards."""
    rows = []
    for tp in (4, 8):
        for words, order in ORDERS.items():
            plan = Plan(tp=tp, pp=4, dp=2, order=order)
            found = [f"{a} of {b}" for a, b in crossings(plan, per_node).values()]
            rows.append((f"{plan.ranks} = {tp} x 4 x 2", words, *found))
    return table(
        ("cards = tp x pp x dp", "order, nearest first", "tp across nodes", "dp across", "pp across"), rows
    )


def bill_table(id="guide-13b", plan: Plan = GUIDE_PLAN, machine: Cluster | None = None) -> Table:
    """The bill of one step of the guide's plan, row by row; 64 A100 unless given."""
    machine = machine or cluster("a100", nodes=8)
    rows = [
        (
            row.strategy,
            f"{row.count:,.0f} x {row.collective}",
            format_bytes(row.payload),
            format_bytes(row.bytes_per_rank),
            str(row.group),
            row.link,
            format_time(row.seconds(machine)),
        )
        for row in step_bill(model(id), machine, plan)
    ]
    return table(("who", "per step", "bytes each", "a card sends", "ranks", "link", "nothing hidden"), rows)


@cache
def last_factor(id="guide-13b", global_batch=512) -> tuple[Factor, ...]:
    """What the last factor 2 of 64 A100 costs as TP, PP or DP, from the plan that the decision finds."""
    machine = cluster("a100", nodes=8)
    return tuple(factor_two(model(id), machine, decide(model(id), machine, global_batch).plan))


def factor_table(id="guide-13b", global_batch=512) -> Table:
    """``last_factor`` as a table."""
    rows = [
        (
            one.name,
            f"{one.plan.tp} x {one.plan.pp} x {one.plan.dp}",
            format_bytes(one.bytes_per_card),
            format_time(one.exposed),
            format_share(one.exposed / one.seconds),
            digits(one.smallest_batch, 6),
        )
        for one in last_factor(id, global_batch)
    ]
    return table(
        ("factor 2 to", "tp x pp x dp", "a card sends", "not hidden", "of the step", "batch for m = 4 p"),
        rows,
    )


def best_factors(id="guide-13b", batches=BATCHES) -> dict[int, str]:
    """Which strategy takes the last factor 2 with the shortest step, by global batch."""
    return {size: min(last_factor(id, size), key=lambda one: one.seconds).name for size in batches}


def factors_by_batch(ids=("llama2-7b", "gpt3-13b", "guide-13b", "llama2-70b")) -> Table:
    """``best_factors`` of several models."""
    rows = [(id, *best_factors(id).values()) for id in ids]
    return table(("shortest step on 64 A100, at a batch of", *map(str, BATCHES)), rows)


def half_of_peak(rate=50 * GB) -> Cluster:
    """Eight nodes of 312 TFLOP/s cards that reach half of it, with ``rate`` bytes/s a card across nodes."""
    base = cluster("a100", nodes=8)
    card = replace(base.gpu, peak={"bf16": 312e12}, reached=0.5)
    return replace(base, gpu=card, inter=Link(base.inter.alpha, rate))


def stage_rows(m=32, stages=(4, 8, 16), tp=8, micro_batch=4) -> list[dict[str, float]]:
    """32 layers cut into more and more stages: layers, bubble, m wanted, forward and transfer seconds."""
    shape, machine = model("guide-13b"), half_of_peak()
    found = []
    for pp in stages:
        plan = Plan(tp=tp, pp=pp, micro_batch=micro_batch, accumulation=m)
        found.append(
            {
                "stages": pp,
                "layers": shape.layers / pp,
                "bubble": bubble_share(pp, m),
                "wanted": ENOUGH_MICRO_BATCHES * pp,
                "forward": stage_forward(shape, machine, plan),
                "transfer": stage_transfer(shape, machine, plan),
            }
        )
    return found


def stages_table(m=32) -> Table:
    """``stage_rows`` as a table."""
    rows = [
        (
            digits(row["stages"]),
            digits(row["layers"]),
            "thin" if row["layers"] < TIGHT else "tight" if row["layers"] == TIGHT else "",
            format_time(row["forward"]),
            format_time(row["transfer"]),
            format_share(row["bubble"]),
            digits(row["wanted"]),
        )
        for row in stage_rows(m)
    ]
    return table(
        ("stages", "layers each", "", "forward", "passes on for", f"bubble, m = {m}", "m for 4 p"), rows
    )


def noise_table(batches=(128, 512, 2048), cards=(1, 8, 64)) -> Table:
    """Relative noise of the averaged gradient, by global batch and by the cards that share it."""
    rows = [(f"{batch}", *(f"{gradient_noise(batch, n, draws=100):.5f}" for n in cards)) for batch in batches]
    return table(("global batch", *(f"{n} card{'s' * (n > 1)}" for n in cards)), rows)


def gradients_by_samples(samples=(1, 4, 16)) -> dict[int, float]:
    """Share of the step that gradients cost beyond what hides, by sequences a card: 1.7 B on 64 A100."""
    small = Transformer("1.7 B", 24, 2304, 24, 51200, 2048)  # as in the same table 1
    found = {}
    for each in samples:
        plan = Plan(dp=64, micro_batch=each, accumulation=1, recompute="selective")
        step = step_time(small, cluster("a100", nodes=8), plan)
        found[each] = step.dp / step.total
    return found


def family_model(size: str) -> Transformer:
    """One of ``FAMILY`` by its printed size."""
    return Transformer(size, *FAMILY[size], 51200, 2048)


def judged(shape: Transformer, micro_batch=1, global_batch=512, **options) -> str:
    """The plan that the decision finds for a model on 64 A100-80, or ``does not fit``."""
    try:
        plan = decide(shape, cluster("a100", nodes=8), global_batch, micro_batch, **options).plan
    except InputRefused:
        return "does not fit"
    return f"{plan.tp} x {plan.pp} x {plan.dp}"


# As that paper trained: every activation kept, attention scores among them.
ALL_KEPT = {"recompute": "none", "fused_attention": False}


def sizes_table() -> Table:
    """The decision for a family of sizes and micro-batches, all activations kept: 8 x 4 x 2 is one answer."""
    rows = [
        (size, *(judged(family_model(size), batch, **ALL_KEPT) for batch in MICRO_BATCHES)) for size in FAMILY
    ]
    return table(("parameters", *(f"micro-batch {batch}" for batch in MICRO_BATCHES)), rows)


def presets_table(
    ids=("llama2-7b", "gpt3-13b", "llama2-13b", "mixtral-8x7b", "llama2-70b", "gpt3-175b"),
) -> Table:
    """The same for preset models, attention scores not kept."""
    rows = [(id, *(judged(model(id), batch) for batch in MICRO_BATCHES)) for id in ids]
    return table(("model", *(f"micro-batch {batch}" for batch in MICRO_BATCHES)), rows)


def replica_of_32(parameters=13e9, cards=32, memory=80 * GB) -> tuple[float, float]:
    """Largest model whose states fill a replica of ``cards``, and bytes of states a card of another one."""
    return largest_model(memory) * cards, parameters * MIXED.total / cards
