"""Section 3.2's claims: tensor parallel, what it sends, how wide it may be, and sequence parallel."""

from dataclasses import replace

import numpy as np

from labkit.course import chapter3_tensor as tensor
from labkit.course import chapter3_tensor_degree as degree
from labkit.course.chapter2_topology import PARAMETERS, layer
from labkit.course.claims import claim
from labkit.planner.activations import layer_activation_bytes
from labkit.planner.placement import crossing_cost
from labkit.planner.states import MIXED, state_bytes
from labkit.planner.traffic import tensor_parallel
from labkit.presets import cluster, model
from labkit.strategies.communicator import tally
from labkit.strategies.layer import gelu
from labkit.strategies.tensor import split_layer, split_mlp
from labkit.units import GB, digits, format_bytes, format_share

LAYERS = layer().layers


@claim(
    "3.2-a",
    "Columns, then rows: one AllReduce 先按列切、再按行切，一次 AllReduce",
    guide="one AllReduce for the pair of matrices, forward and backward",
)
def columns_then_rows():
    inputs = tensor.small_layer()
    parts = []
    for t in (2, 4, 8):
        split = split_layer(*inputs, t)
        count = tally(split.calls)
        parts.append(
            f"t = {t}: {count['forward', 'all_reduce'] // 2} forward and "
            f"{count['backward', 'all_reduce'] // 2} backward per pair, "
            f"off by {_bound(tensor.difference(split, inputs))}"
        )
    return "layer of two pairs, output and all gradients against the unsplit: " + "; ".join(parts)


def _bound(error: float) -> str:
    """A bound in words: the last digits of a sum differ from machine to machine."""
    return "less than 1e-11" if error < 1e-11 else f"{digits(error, 2)}"


@claim("3.2-b", "One AllReduce carries 84 MB, 64 of them 5 GB 单次约84MB", guide="84 MB; x 64 = 5 GB forward")
def payload():
    (row,) = tensor_parallel(layer(), 8, per_layer=2)
    return (
        f"4 x 2048 x 5120 x 2 bytes = {format_bytes(row.payload)}; x {row.count:.0f} = "
        f"{format_bytes(row.payload * row.count)}"
    )


@claim(
    "3.2-c",
    "Tensor parallel no wider than a node 张量并行度不要超过单机的卡数",
    guide="t at most the cards of a node",
    verdict="approximately",
    why="a rule of cost, not of possibility: what leaving costs is set by the ports per node (2.4-e), and "
    "the boundary is the fast-link domain (2.4-f)",
)
def no_wider_than_a_node():
    machine = cluster("a100")
    costs = ", ".join(f"{crossing_cost(layer(), machine, ports):.1f}x with {ports}" for ports in (1, 2, 4, 8))
    return f"preset a100, TP 16 over two nodes against TP 8 in one, per sample and card, by ports: {costs}"


@claim(
    "3.2-d",
    "Tensor-parallel volume does not depend on the batch 通信量与 batch 无关",
    guide="independent of the batch",
    verdict="corrected",
    why="the guide's own formula is proportional to the batch; what does not shrink with the micro-batch is "
    "the number of collectives and their latency",
)
def volume_and_batch():
    rows = {b: tensor_parallel(layer(b), 8)[0] for b in (1, 2, 4)}
    each = ", ".join(f"{b}: {format_bytes(row.payload)} x {row.count:.0f}" for b, row in rows.items())
    return f"per micro-batch of {each}, sent by a rank {_list(r.bytes_per_rank for r in rows.values())}"


def _list(sizes) -> str:
    return ", ".join(map(format_bytes, sizes))


@claim(
    "3.2-e",
    "Per layer and micro-batch one AllReduce forward, one backward 前向一次、反向一次",
    guide="1 forward, 1 backward",
    verdict="corrected",
    why="two and two, attention and MLP, as the guide's own 32 x 2 = 64 assumes; full recompute runs the "
    "forward ones again",
)
def how_many():
    inputs = tensor.small_layer()
    forward = tally(split_layer(*inputs, 4).calls)["forward", "all_reduce"]
    both, full = (len(split_layer(*inputs, 4, recompute=r).calls) for r in ("none", "full"))
    return (
        f"counted on a whole layer: {forward} forward, {both} with backward, {full} with full recompute; "
        f"x {LAYERS} layers: {forward * LAYERS}, {both * LAYERS}, {full * LAYERS}"
    )


@claim(
    "3.2-f",
    "A forward pass adds up to 5 GB of traffic 累计就是5GB级别",
    guide="5 GB",
    verdict="approximately",
    why="that is the payload; a rank sends 2(t-1)/t of it, twice that with the backward pass, and all of it "
    "again for each micro-batch of the step",
)
def traffic():
    sent = [tensor_parallel(layer(), 8, per_layer=count)[0].bytes_per_rank for count in (2, 4, 6)]
    payload = tensor_parallel(layer(), 8, per_layer=2)[0]
    return (
        f"payload {format_bytes(payload.payload * payload.count)}; sent by a rank at t = 8 per micro-batch "
        f"forward, with backward, with full recompute: {_list(sent)}"
    )


@claim(
    "3.2-g",
    "TP 16 sends half across nodes and must collapse 有一半的通信要跨机",
    guide="half of the traffic",
    verdict="corrected",
    why="the share depends on the algorithm, and a ring runs at its slowest hop whatever the share; the "
    "ports per node decide",
)
def half_across():
    shares = ", ".join(f"{name} {format_share(share)}" for name, share in degree.crossing_shares().items())
    return f"16 ranks on 2 nodes, bytes that cross, counted: {shares}"


@claim(
    "3.2-h",
    "Eight cards a node: t = 8; four: t = 4 张量并行度就设8",
    guide="t = cards of a node",
    verdict="corrected",
    why="a ceiling, not a setting: cost per sample grows with t, so the smallest legal t that fits is the "
    "best; t must divide heads, kv heads (or copy them), ffn and the padded vocabulary",
)
def which_degree():
    of = model("guide-13b")
    legal = degree.legal_degrees(of)
    best = degree.smallest_degree(of, 80 * GB, "states and activations", PARAMETERS)
    costs = ", ".join(f"{t}: {degree.cost_per_sample(t):.2f}" for t in (1, 2, 4, 8))
    return (
        f"40 heads: {', '.join(map(str, legal))} are legal, 16 {'is' if 16 in legal else 'is not'}; cards x "
        f"seconds per sample by t {costs}; smallest that holds 13 B in 80 GB: {best}"
    )


@claim(
    "3.2-i",
    "Do not cut the micro-batch too fine, latency eats the gain micro-batch 不宜切得太碎",
    guide="communication's share rises",
    verdict="approximately",
    why="at a fixed global batch the bytes of a step stay and the number of collectives goes as "
    "1/micro-batch: it matters for messages near t alpha B, where latency equals bandwidth, hardly beyond",
)
def cut_too_fine():
    sizes, times = tensor.micro_batches(batch=64)
    small, large = 0, int(np.flatnonzero(sizes == 4)[0])
    counts = [tensor_parallel(replace(layer(int(b)), micro_batches=64 / b), 8)[0].count for b in sizes]
    payload = layer(int(sizes[small])).activation_bytes
    meets = payload * times.latency[small] / times.bandwidth[small]
    shares = [times.communication[i] / times.total[i] for i in (small, large)]
    return (
        f"64 sequences in micro-batches of 1 or 4, t = 8 inside a100: {counts[small]:,.0f} or "
        f"{counts[large]:,.0f} collectives of equal bytes in all; share of the step "
        f"{format_share(shares[0])} or {format_share(shares[1])}; latency = bandwidth at "
        f"{format_bytes(meets)}"
    )


@claim(
    "3.2-j",
    "First matrix by columns, second by rows 第一个按列切、第二个按行切: why this order",
    guide="columns, then rows",
)
def why_this_order():
    draw = np.random.default_rng(0)
    x, up, down = (draw.normal(size=shape) for shape in ((32, 64), (64, 256), (256, 64)))
    right = gelu(x @ up) @ down
    parts = []
    for name, how in (
        ("columns first", {"first": "columns"}),
        ("rows first, summed between", {"first": "rows"}),
        ("rows first, not summed", {"first": "rows", "sum_between": False}),
    ):
        output, calls = split_mlp(x, up, down, 4, **how)
        error = float(np.abs(output - right).max() / np.abs(right).max())
        parts.append(f"{name}: {len(calls)} AllReduce, error {_bound(error)} of the largest output")
    return "; ".join(parts)


@claim(
    "3.2-k",
    "Tensor parallel solves that a single layer does not fit 单层都放不下",
    guide="for layers that do not fit",
    verdict="approximately",
    why="a layer fits many times over; what t divides here is the states, and activations from 34 to "
    "10 + 24/t in units of s b h",
)
def what_it_buys():
    of = model("guide-13b")
    weights, states = of.layer_parameters * MIXED.weights, state_bytes(of.layer_parameters)
    unit = of.sequence * 4 * of.hidden
    units = [
        layer_activation_bytes(of.sequence, 4, of.hidden, of.heads, t, recompute="selective") / unit
        for t in (1, 8)
    ]
    chosen = {
        what: degree.smallest_degree(of, 80 * GB, what, PARAMETERS)
        for what in ("layer", "activations", "states")
    }
    reasons = ", ".join(f"{what} alone t = {t}" for what, t in chosen.items())
    return (
        f"one layer: {format_bytes(weights)} of weights, {format_bytes(states)} with gradients and "
        f"optimizer; activations {units[0]:g} to {units[1]:g} s b h at t = 8; 13 B in 80 GB needs: {reasons}"
    )


@claim(
    "3.2-l",
    "Sequence parallel 序列并行, named in 6.3 and not explained",
    guide="no figure",
    verdict="approximately",
    why="AllReduce = ReduceScatter + AllGather around norm and dropout: equal bytes if the gathered inputs "
    "are saved; the published 34/t saves shards only and gathers them again, 5/4 of the bytes",
)
def sequence_parallel():
    plain, kept, published = (
        tensor.split_facts(8, **tensor.WAYS[name])
        for name in (
            "tensor parallel",
            "and sequence parallel, whole inputs saved",
            "and sequence parallel, as published",
        )
    )
    return (
        f"t = 8, counted, off by {_bound(max(kept['difference'], published['difference']))}: saved "
        f"{plain['saved']:g} s b h without, {kept['saved']:g} at {kept['traffic']:g}x the bytes, "
        f"{published['saved']:g} at {published['traffic']:g}x "
        f"({plain['saved'] / published['saved']:.2f}x less)"
    )
