"""Section 3.2's question of degree as tables: what crosses a node, which t is legal, needed, and how dear."""

from dataclasses import replace

import numpy as np

from labkit.collectives import bit_reversed, crossing_share, placed, trace
from labkit.course.chapter2_topology import PARAMETERS, layer
from labkit.course.table import Table, table
from labkit.planner.activations import layer_activation_bytes
from labkit.planner.placement import crossing_cost, tensor_time
from labkit.planner.states import state_bytes
from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.spec.rules_shape import ffn, heads, kv_heads, vocabulary
from labkit.spec.transformer import Transformer
from labkit.units import GB, format_bytes, format_rate, format_share


def crossing_shares(n=16) -> dict[str, float]:
    """Share of all bytes that leave a node when ``n`` ranks on two nodes communicate, counted on traces."""
    machine = replace(cluster("a100", nodes=2), nics_per_node=1)

    def share(op, algorithm, order=None):
        sends = trace(op, algorithm, n, machine)
        return crossing_share(sends if order is None else placed(sends, order), machine)

    return {
        "ring": share("all_reduce", "ring"),
        "recursive doubling": share("all_reduce", "recursive_doubling"),
        "hierarchical": share("all_reduce", "hierarchical"),
        "halving-doubling, near first": share("all_reduce", "halving_doubling"),
        "halving-doubling, far first": share("all_reduce", "halving_doubling", bit_reversed(n)),
        "all_to_all": share("all_to_all", "pairwise"),
    }


def crossing_table() -> Table:
    """What share of the bytes crosses at TP 16 on two nodes of eight, by algorithm."""
    return table(
        ("algorithm", "bytes that cross"),
        ((name, format_share(share)) for name, share in crossing_shares().items()),
    )


def legal_degrees(of: Transformer, most=40) -> list[int]:
    """The t up to ``most`` that divide heads, kv heads (or copy them), ffn; the vocabulary is padded."""
    plan = Plan(tp=np.arange(1, most + 1), replicate_kv=True)
    machine = cluster("a100")
    broken = sum(np.asarray(rule(of, machine, plan), bool) for rule in (heads, kv_heads, ffn, vocabulary))
    return (np.flatnonzero(np.broadcast_to(broken, (most,)) == 0) + 1).tolist()


def bytes_by_degree(of: Transformer, t, micro_batch=4, parameters=None) -> dict[str, np.ndarray]:
    """The three reasons to choose t: bytes per rank of one layer, of all activations and of all states.

    ``layer``: states and activations of a single layer. Activations are those of all layers and one
    micro-batch without the attention scores (selective recompute). Nothing but tensor parallel divides here.
    """
    t = np.asarray(t, float)
    one = layer_activation_bytes(of.sequence, micro_batch, of.hidden, of.heads, t, recompute="selective")
    states = state_bytes(of.parameters if parameters is None else parameters) / t
    return {
        "layer": state_bytes(of.layer_parameters) / t + one,
        "activations": of.layers * one,
        "states": states,
        "states and activations": states + of.layers * one,
    }


def smallest_degree(of: Transformer, memory, what: str, parameters=None) -> int | None:
    """The smallest legal t at which ``what`` of ``bytes_by_degree`` stays below ``memory`` bytes."""
    legal = np.array(legal_degrees(of))
    fits = np.asarray(bytes_by_degree(of, legal, parameters=parameters)[what]) < memory
    return int(legal[np.argmax(fits)]) if fits.any() else None


def reasons_table(memory=80 * GB) -> Table:
    """Which of the three made a 13 B model choose t on an 80 GB card."""
    of = model("guide-13b")
    rows = []
    for what in ("layer", "activations", "states", "states and activations"):
        at = {t: float(bytes_by_degree(of, t, parameters=PARAMETERS)[what]) for t in (1, 2, 4, 8)}
        smallest = smallest_degree(of, memory, what, PARAMETERS)
        name = "one layer and its activations" if what == "layer" else what
        rows.append((name, *map(format_bytes, at.values()), f"t = {smallest}"))
    return table(("a rank needs for", "t = 1", "2", "4", "8", "first below 80 GB"), rows)


def degrees_table(machine: str = "a100") -> Table:
    """For each model: degrees that are legal, and the smallest that holds it within a node."""
    card = cluster(machine)
    rows = []
    for name in ("llama2-7b", "guide-13b", "llama2-70b", "llama3.1-8b", "gpt3-175b"):
        of = model(name)
        legal = legal_degrees(of, 32)
        fits = smallest_degree(of, card.gpu.usable, "states and activations")
        within = fits is not None and fits <= card.domain
        rows.append(
            (
                name,
                f"{of.heads} / {of.kv_heads} / {of.ffn:,}",
                ", ".join(map(str, legal)),
                f"t = {fits}" if within else "none in a node: pipeline or shards as well",
            )
        )
    return table(
        ("model", "heads / kv heads / ffn", "legal t up to 32", "smallest that holds states and activations"),
        rows,
    )


def cost_per_sample(t) -> float:
    """Cards x seconds per sample at degree ``t`` inside a node of preset a100, against one card's."""
    work, machine = layer(), cluster("a100")
    return t * tensor_time(work, machine, t).total / tensor_time(work, machine, 1).total


def step_degree_table() -> Table:
    """Cost per sample and card by degree on preset a100, with one port per node and with eight."""
    machine = cluster("a100")
    rows = [(str(t), "inside a node", f"{cost_per_sample(t):.2f}") for t in (2, 4, 8)]
    for ports in (1, 8):
        cost = cost_per_sample(8) * crossing_cost(layer(), machine, ports)
        rows.append(("16", f"two nodes, {ports} x {format_rate(machine.inter.bandwidth)}", f"{cost:.2f}"))
    return table(("t", "where", "cards x seconds per sample, t = 1 as 1"), rows)
