"""The communication bill of one step of one plan: every collective, its bytes, count, group and link.

``labkit.planner.traffic`` bills each strategy alone; here the plan cuts what each of them sees. Every number
of the plan may be an array, and the rows then hold arrays.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from labkit.planner.plan_seats import (
    expert_data_seats,
    expert_seats,
    expert_tensor_seats,
    plan_seats,
    shard_seats,
)
from labkit.planner.rank_parameters import fullest, most_layers
from labkit.planner.sharding import hybrid
from labkit.planner.states import MIXED, Recipe
from labkit.planner.traffic import (
    BillRow,
    Seats,
    Workload,
    bill_row,
    data_parallel,
    expert_parallel,
    tensor_parallel,
)
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import noun, together
from labkit.spec.replicas import shard_counts
from labkit.spec.rules import check_nouns
from labkit.units import plain

AGAIN = "tensor parallel, gather again"  # of inputs for the weight gradients, beside which it may run
_LOSS_REDUCTIONS = 3  # vocabulary-parallel loss: maximum, sum of exponentials, logit of the right token
_LOSS_BYTES = 4.0  # of each, per token: the loss is computed in fp32


def step_bill(
    model: Transformer,
    cluster: Cluster,
    plan: Plan,
    *,
    recipe: Recipe = MIXED,
    bucket: float | None = None,
) -> list[BillRow]:
    """Every collective of one step. Each row is that of its **busiest rank**: the fullest stage, or an end.

    So the sum is that of one rank where one rank is the busiest in all rows, and an upper bound elsewhere.
    ``link`` is ``inside`` only where all groups of the row stay in a fast-link domain. Rows that send nothing
    are left out, unless some of an array of plans does.

    What is counted: gradients once, at the end of accumulation (dp x cp ranks; experts over theirs), or the
    collectives of ``plan.zero`` stages 1 to 3, with an all_reduce between the replicas that ``shard_ranks``
    leaves, in ``bucket`` bytes where given; the embedding's gradient between the ends where a
    pipeline ties it to the head; of each layer and micro-batch tensor parallel's all_reduces, under sequence
    parallel as reduce_scatter + all_gather of the same bytes and one more all_gather a block and for the
    head, of the input that was not kept whole; those of the embedding, the head and the loss; once a step, of
    the gradients that each rank has but a summand of (norms); context parallel's ring or all_to_all; the
    experts' all_to_alls; activations and gradients between stages. ``plan.recompute`` repeats forward
    communication: ``full`` of the whole layer, ``selective`` of attention.

    ``recipe`` gives the bytes of a gradient and of a gathered weight; activations have 2 an element.

    Left out: scalars such as the gradient norm, and what is sent at start or for a checkpoint. Between stages
    every tensor-parallel rank sends the whole activation, or its own positions under sequence parallel.

    Sources: "Megatron-LM" (2019), section 3; Korthikanti et al. (2022), section 4.2.2; Narayanan et al.
    (2021), section 2.2; Liu et al. (2023); Jacobs et al. (2023); "GShard" (2020); "ZeRO" (2020), section 7.

    >>> from labkit.spec import Gpu, Link
    >>> gpt = Transformer("gpt", 32, 4096, 32, 50176, 2048)
    >>> nodes = Cluster("4 x 8", Gpu("g", 80e9, {"bf16": 3e14}, 0.5), 4, 8, Link(0, 2e11), Link(0, 2e10), 8)
    >>> plan = Plan(tp=8, pp=2, dp=2, micro_batch=1, global_batch=32)
    >>> for row in step_bill(gpt, nodes, plan):
    ...     each = f"{row.collective} of {row.payload / 1e6:.4g} MB {row.link}"
    ...     print(f"{row.strategy}: {row.count:g} x {each}")
    data parallel: 1 x all_reduce of 857.6 MB across
    embedding between the ends: 1 x all_reduce of 51.38 MB across
    tensor parallel: 1024 x all_reduce of 16.78 MB inside
    tensor parallel, ends: 16 x all_reduce of 16.78 MB inside
    tensor parallel, loss: 48 x all_reduce of 0.008192 MB inside
    pipeline: 16 x send_recv of 16.78 MB across
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    noun(recipe, Recipe, "the recipe")
    together("a bill", cluster=cluster, plan=plan, bucket=bucket)
    layers = most_layers(model, plan)
    held = fullest(model, plan)
    work = Workload(
        held.dense,
        np.maximum(layers, 1),
        model.hidden,
        np.asarray(model.sequence / np.asarray(plan.cp, float)),
        np.asarray(plan.micro_batch),
        np.asarray(plan.accumulation),
        gradient_bytes_per_element=recipe.gradients,
    )
    states = replace(work, bytes_per_element=recipe.weights)
    rows = [
        *_gradients(states, plan, plan_seats(plan, "cp", "dp", domain=cluster.domain), 0, "", bucket),
        *_expert_gradients(model, plan, states, held.experts, cluster.domain, bucket),
        *_between_ends(model, plan, work, cluster.domain),
        *_tensor(model, plan, work, held, cluster.domain),
        *_context(model, plan, work, cluster.domain),
        *_experts(model, plan, work, cluster.domain),
        *_pipeline(plan, work, cluster.domain),
    ]
    sends = [np.asarray(row.bytes_per_rank) > 0 for row in rows]
    return [row for mask, row in zip(sends, rows, strict=True) if np.any(mask) for row in _where(mask, [row])]


def _where(mask, rows: list[BillRow]) -> list[BillRow]:
    """The rows of those plans that have them; elsewhere they count nothing."""
    mask = np.asarray(mask, float)
    return [
        replace(row, count=plain(row.count * mask), bytes_per_rank=plain(row.bytes_per_rank * mask))
        for row in rows
    ]


def _named(rows: list[BillRow], words: str) -> list[BillRow]:
    return [replace(row, strategy=row.strategy + words) for row in rows]


def _again(plan: Plan, *modes: str):
    """1 where the plan computes this forward part again before the backward pass, else 0."""
    return np.isin(plan.recompute, modes).astype(float)


def _gradients(work: Workload, plan: Plan, at: Seats, kind: int, words: str, bucket) -> list[BillRow]:
    """Gradients to all ranks, or gradients and weights as shards; ``kind`` 0: of all, 1: of experts."""
    zero, rows = np.asarray(plan.zero), []
    shards, replicas = shard_seats(at, shard_counts(plan)[kind])
    for stage in np.unique(zero).tolist():
        reduce = partial(hybrid, work, shards, replicas, stage) if stage else partial(data_parallel, work, at)
        found = reduce(bucket=bucket)
        rows += _where(zero == stage, found)
    return _named(rows, words)


def _expert_gradients(model, plan, work, experts, domain, bucket) -> list[BillRow]:
    """The experts' gradients go to the ranks that hold the same experts."""
    if not model.experts:
        return []
    at = expert_data_seats(plan, domain)
    return _gradients(replace(work, parameters=experts), plan, at, 1, ", experts", bucket)


def _between_ends(model, plan, work, domain) -> list[BillRow]:
    """A tied matrix has two copies on a pipeline, and two halves of its gradient."""
    apart = (np.asarray(plan.pp) > 1) & (np.asarray(plan.schedule) != "zb-v")
    rows = np.asarray(plan.padded_vocabulary(model.vocabulary)) / np.asarray(plan.tp, float)
    payload = rows * model.hidden * work.gradient_bytes_per_element
    link = plan_seats(plan, "pp", domain=domain).link
    at = Seats(2, link, plain(np.where(np.asarray(link) == "across", 1, 2)))
    row = bill_row("embedding between the ends", "all_reduce", payload, 1, at)
    return _where(apart & model.tied, [row])


def _tensor(model, plan, work, held, domain) -> list[BillRow]:
    """All_reduces of activations, or what sequence parallel makes of them."""
    at, split = plan_seats(plan, "tp", domain=domain), np.asarray(plan.sequence_parallel, bool)
    per_layer = 4 + 2 * _again(plan, "full")
    # Under sequence parallel a rank routes its own positions, and the halves of a layer are not alike.
    halves = np.where(split & bool(model.experts), 0.5, 1.0)
    ends = _ends(plan, work, at)
    whole = [*tensor_parallel(work, at, per_layer=per_layer), *ends]
    scattered = [*tensor_parallel(work, at, per_layer=per_layer * halves), *ends]
    pieces = [
        bill_row(row.strategy, half, row.payload, row.count, at)
        for row in scattered
        for half in ("reduce_scatter", "all_gather")
    ]
    again = (2 * halves * work.layers + 1) * work.micro_batches
    pieces.append(bill_row(AGAIN, "all_gather", work.activation_bytes, again, at))
    # A rank sees its own positions only, or of the norms of query and key its own heads only.
    per_head = 2 * model.head_dim * int(model.qk_norm) * work.layers
    once = np.where(split, held.whole, per_head) * work.gradient_bytes_per_element
    return [
        *_where(~split, whole),
        *_where(split, [*pieces, *_inside_experts(model, plan, work, per_layer, domain)]),
        bill_row("tensor parallel, norms", "all_reduce", once, 1, at),
        *_copied_heads(model, plan, work, held, domain),
        *_loss(plan, work, at),
    ]


def _ends(plan, work, at) -> list[BillRow]:
    """The embedding's sum forward and the head's backward: on one rank without a pipeline, else on two."""
    together = (np.asarray(plan.pp) == 1) | (np.asarray(plan.schedule) == "zb-v")
    count = np.where(together, 2.0, 1.0) * work.micro_batches
    return [bill_row("tensor parallel, ends", "all_reduce", work.activation_bytes, count, at)]


def _loss(plan, work, at) -> list[BillRow]:
    payload = work.micro_batch * work.sequence * _LOSS_BYTES
    count = _LOSS_REDUCTIONS * work.micro_batches
    return [bill_row("tensor parallel, loss", "all_reduce", payload, count, at)]


def _copied_heads(model, plan, work, held, domain) -> list[BillRow]:
    """Ranks with copies of one kv head sum its gradients, once per step."""
    tp = np.asarray(plan.tp)
    copies = np.maximum(1, tp // model.kv_heads)
    near = plan_seats(plan, "tp", domain=domain)
    members = np.minimum(copies, near.members)
    at = Seats(plain(copies), plain(np.where(members < copies, "across", "inside")), plain(members))
    payload = np.asarray(held.copied) * work.gradient_bytes_per_element
    return [bill_row("tensor parallel, copied kv heads", "all_reduce", payload, 1, at)]


def _inside_experts(model, plan, work, per_layer, domain) -> list[BillRow]:
    """Ranks that share an expert gather each other's tokens for it and scatter the sums."""
    if not model.experts:
        return []
    etp = np.asarray(plan.expert_tp)
    payload = model.top_k * work.activation_bytes * etp / np.asarray(plan.tp)
    count = per_layer / 2 * work.layers * work.micro_batches
    at = expert_tensor_seats(plan, domain)
    return [
        bill_row("tensor parallel, experts", half, payload, count, at)
        for half in ("reduce_scatter", "all_gather")
    ]


def _context(model, plan, work, domain) -> list[BillRow]:
    """Keys and values round a ring, or positions traded for heads; of a layer's own heads on this rank.

    Every rank of a trade gets a kv head: where there are fewer heads than ranks, they travel in copies.
    """
    at, ring = plan_seats(plan, "cp", domain=domain), np.asarray(plan.context) == "ring"
    tp, cp = np.asarray(plan.tp, float), np.asarray(plan.cp)
    tokens = work.micro_batch * work.sequence * work.bytes_per_element
    queries = tokens * model.query_width / tp
    heads = np.maximum(model.kv_heads / tp, 1)
    keys, traded = (tokens * one * model.head_dim for one in (heads, np.maximum(heads, cp)))
    times = work.layers * work.micro_batches
    again = _again(plan, "full", "selective")
    # Forward cp - 1 hops, backward again; the gradients of a block go one hop more, home.
    hops = np.where(cp > 1, (2 + again) * (cp - 1) + cp, 0)
    passes = bill_row("context parallel, keys and values", "send_recv", 2 * keys, hops * times, at)
    trades = [
        bill_row(
            f"context parallel, {name}", "all_to_all", size, 2 * (2 + again) * times * np.ones_like(cp), at
        )
        for name, size in (("queries and outputs", queries), ("keys and values", traded))
    ]
    return [*_where(ring, [passes]), *_where(~ring, trades)]


def _experts(model, plan, work, domain) -> list[BillRow]:
    """Dispatch and combine, of the tokens that a rank routes itself."""
    if not model.experts:
        return []
    tp, split = np.asarray(plan.tp, float), np.asarray(plan.sequence_parallel, bool)
    # Ranks that hold the same tokens share them out, except those that share an expert: all of them need all.
    own = np.where(split, 1 / tp, np.asarray(plan.expert_tp) / tp)
    rows = expert_parallel(work, expert_seats(plan, domain), model.top_k * own)
    repeats = 1 + _again(plan, "full") / 2
    return [
        replace(row, count=plain(row.count * repeats), bytes_per_rank=plain(row.bytes_per_rank * repeats))
        for row in rows
    ]


def _pipeline(plan, work, domain) -> list[BillRow]:
    """Activations up and gradients down, for each virtual stage; the two ends send less."""
    pp, v = np.asarray(plan.pp), np.asarray(plan.v)
    folded = np.asarray(plan.schedule) == "zb-v"
    of_two = np.where(folded, 2 * v - 2, 2 * v - 1)
    messages = np.where(pp > 2, 2 * v, np.where(pp == 2, of_two, 0))
    split = np.where(np.asarray(plan.sequence_parallel, bool), np.asarray(plan.tp, float), 1.0)
    at = replace(plan_seats(plan, "pp", domain=domain), members=1)
    payload, count = work.activation_bytes / split, messages * work.micro_batches
    return [bill_row("pipeline", "send_recv", payload, count, at)]


def check_rows(rows) -> None:
    """Refuses what is no list of the rows of a bill."""
    noun(rows, list, "the rows of a bill")
    for row in rows:
        noun(row, BillRow, "a row of a bill")


def bytes_by_strategy(rows: list[BillRow]) -> dict[str, float]:
    """Bytes per rank and step of each strategy, the first word of the rows' names; their parts added up."""
    sums: dict[str, float] = {}
    check_rows(rows)
    for row in rows:
        name = row.strategy.split(",")[0]
        sums[name] = plain(np.asarray(sums.get(name, 0.0)) + row.bytes_per_rank)
    return sums
