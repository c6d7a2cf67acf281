"""Section 5.5: what the search's choice hangs on: the network, the sequence, and the errors of the model."""

from dataclasses import replace
from functools import cache

from labkit.course.chapter5_gain import GUIDE_CUT, best, found, with_network
from labkit.course.chapter5_rounds import BATCH, FIRST, MACHINE, MODEL, cards
from labkit.course.table import Table, table
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time
from labkit.presets import cluster, model
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.plan_words import said
from labkit.units import GB, format_rate, format_share, format_time

SEQUENCES = (512, 2048, 8192, 32768)
TOKENS = 2**18  # of a step, where sequences of different length are compared
NETWORKS = (0.125, 0.25, 0.5, 1.0, 2.0)  # times what a port has
NEAR = (0.01, 0.03, 0.1)


def network_table(networks=NETWORKS) -> Table:
    """The best plan as the network gets slower or faster, beside round 1 and the best of its cut."""
    rows = []
    for times in networks:
        machine = with_network(cards(), times)
        plan, kept = best(network=times), best(network=times, **GUIDE_CUT)
        speeds = [
            step_time(model(MODEL), machine, one).tokens_per_s_per_gpu for one in (FIRST.plan, kept, plan)
        ]
        rows.append(
            (
                format_rate(machine.inter.bandwidth),
                *(f"{speed:,.0f}" for speed in speeds),
                f"{speeds[2] / speeds[0]:.2f} x",
                said(plan),
            )
        )
    heads = ("a port", "round 1, tokens/s a card", "best of its cut", "best of all", "of round 1", "plan")
    return table(heads, rows)


def longer(sequence: int, id="gpt3-13b") -> Transformer:
    """13B for another sequence: without learned positions, which would grow with it."""
    return replace(model(id), sequence=sequence, learned_positions=0)


@cache
def best_by_sequence(sequence: int, fused=True, context=True, nodes=1) -> Plan:
    """The best plan of 13B (40 layers) on nodes of eight A100, ``TOKENS`` a step in sequences of one length.

    ``context``: whether context parallel may be used; the guide names sequence parallel alone.
    """
    fixed = {"fused_attention": fused} | ({} if context else {"cp": 1})
    rows = search(longer(sequence), cluster(MACHINE, nodes=nodes), TOKENS // sequence, fixed)
    return plan_of(rows.iloc[0])


def sequence_table(sequences=SEQUENCES) -> Table:
    """Claim 6.3-f: where the best plan switches as sequences get longer, with scores stored and without."""
    rows = [
        (
            f"{s:,}",
            TOKENS // s,
            said(best_by_sequence(s, fused=False, context=False)),
            said(best_by_sequence(s, context=False)),
            said(best_by_sequence(s)),
        )
        for s in sequences
    ]
    heads = ("sequence", "batch", "scores stored", "fused attention", "and context parallel")
    return table(heads, rows)


def near_table(shares=NEAR) -> Table:
    """How many plans come close to the best one, and what all of them have in common."""
    rows = found()
    lines = []
    for share in shares:
        near = rows[rows["seconds"] <= (1 + share) * rows["seconds"].iloc[0]]
        spans = [_span(near[name]) for name in ("tp", "cp", "pp", "dp", "micro_batch", "zero")]
        memory = _span((near["memory"] / GB).round().astype(int))
        lines.append((f"{share:.0%}", f"{len(near):,}", *spans, f"{memory} GB"))
    heads = ("within", "plans", "tp", "cp", "pp", "dp", "micro-batch", "ZeRO", "memory")
    return table(heads, lines)


def _span(column) -> str:
    low, high = column.min(), column.max()
    return str(low) if low == high else f"{low} to {high}"


def wrong_by(machine: Cluster) -> dict[str, Cluster]:
    """The cluster as it is, and with one thing of the model of it wrong by much."""
    gpu, use = machine.gpu, machine.gpu.kernels
    return {
        "as it is": machine,
        "products reach 20 % less": replace(
            machine, gpu=replace(gpu, kernels=replace(use, product=0.8 * use.product))
        ),
        "launches take three times": replace(
            machine, gpu=replace(gpu, kernels=replace(use, launch=3 * use.launch))
        ),
        "links inside: half": replace(
            machine, intra=replace(machine.intra, bandwidth=0.5 * machine.intra.bandwidth)
        ),
        "ports: half": with_network(machine, 0.5),
        "every message takes three times": replace(
            machine,
            intra=replace(machine.intra, alpha=3 * machine.intra.alpha),
            inter=replace(machine.inter, alpha=3 * machine.inter.alpha),
        ),
    }


def error_table() -> Table:
    """Whether the choice stands where the model is wrong: the best plan there, and what the first costs."""
    shape, chosen, rows = model(MODEL), best(), []
    for words, machine in wrong_by(cards()).items():
        ranked = search(shape, machine, BATCH)
        first = step_time(shape, machine, FIRST.plan).total
        kept = step_time(shape, machine, chosen).total
        least = ranked["seconds"].iloc[0].item()
        rows.append(
            (
                words,
                format_time(least),
                said(plan_of(ranked.iloc[0])),
                format_share(kept / least - 1),
                f"{first / kept:.2f} x",
            )
        )
    heads = ("if", "best step", "by", "the first choice is slower by", "round 1 is slower by")
    return table(heads, rows)
