"""The guide's four steps from a model and a cluster to a plan, each with the numbers that decide it.

1 Does one layer fit? (tensor parallel) 2 Do the layers suffice? (pipeline) 3 The rest to data parallel.
4 Does the global batch suffice? A greedy choice with estimates from bounds: the first plan that fits, not
the fastest; a search over all plans can only do better.
"""

from dataclasses import dataclass

import numpy as np

from labkit.planner.activations import layer_on_plan
from labkit.planner.candidates import TIGHT, Candidate, candidates, choose, worded
from labkit.planner.factors import factor_two
from labkit.planner.memory import RankMemory
from labkit.planner.rank_parameters import layer_on_rank
from labkit.planner.stage_times import stage_forward, stage_transfer
from labkit.planner.states import state_bytes
from labkit.spec import Cluster, Plan, Transformer, problems
from labkit.spec.checks import amount
from labkit.spec.rule import counted
from labkit.spec.rules import check_nouns
from labkit.spec.rules_batch import ENOUGH_MICRO_BATCHES, ENOUGH_SAMPLES
from labkit.strategies.pipeline import bubble_share
from labkit.units import digits, format_bytes, format_share, format_time, wrapped


@dataclass(frozen=True, slots=True)
class Step:
    """One question, the numbers that answer it, and what follows."""

    question: str
    answer: str
    outcome: str


@dataclass(frozen=True, slots=True, repr=False)
class Decision:
    """The chosen plan, the four steps to it, and what to watch.

    ``needs`` says what made it choose its tensor-parallel degree: ``nothing`` (tp = 1), ``layer``,
    ``states``, ``activations``, ``states and activations`` (neither alone) or ``global batch``. ``memory``:
    of the fullest rank. ``tried``: every legal cut with its memory.
    """

    title: str
    plan: Plan
    memory: RankMemory
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]
    needs: str
    tried: tuple[Candidate, ...]

    def __repr__(self):
        lines = wrapped(self.title, indent="")
        for number, step in enumerate(self.steps, 1):
            lines += wrapped(f"{number}  {step.question} {step.answer}", indent="   ")
            lines += wrapped(f"-> {step.outcome}", "   ", "      ")
        for warning in self.warnings:
            lines += wrapped(f"!  {warning}", indent="   ")
        return "\n".join(lines)


def decide(
    model: Transformer,
    cluster: Cluster,
    global_batch: int,
    micro_batch: int = 1,
    *,
    zero: int = 0,
    recompute: str = "selective",
    fused_attention: bool = True,
    sequence_parallel: bool = True,
    max_memory: float | None = None,
) -> Decision:
    """The plan that the four steps lead to on all GPUs of the cluster, in plain 1F1B.

    The smallest tensor-parallel degree inside the domain with which some pipeline fits in ``max_memory``
    bytes a card (all that the card leaves to a job, unless given), then the fewest stages; more stages than
    micro-batches, or stages of fewer than 4 layers, only where nothing else fits.
    Attention scores are kept where nothing is recomputed and attention is not fused. Refused: a model that
    does not fit however it is cut, and a global batch that no cut can share.

    >>> from labkit.spec import Gpu, Link
    >>> card = Gpu("80 GB card", 80e9, {"bf16": 312e12}, 0.5)
    >>> nodes = Cluster("8 x 8", card, 8, 8, Link(2e-6, 235e9), Link(5e-6, 25e9), 8)
    >>> gpt = Transformer("13B", 40, 5120, 40, 50257, 2048, learned_positions=2048)
    >>> found = decide(gpt, nodes, global_batch=512)
    >>> found.plan.tp, found.plan.pp, found.plan.dp, found.needs
    (1, 4, 16, 'nothing')
    """
    check_nouns(model=model, cluster=cluster)
    capacity = cluster.gpu.usable if max_memory is None else max_memory
    amount(capacity, "max_memory, in bytes of a card,", endless=True, arrays=False)
    tried = candidates(
        model,
        cluster,
        global_batch=global_batch,
        micro_batch=micro_batch,
        zero=zero,
        recompute=recompute,
        fused_attention=fused_attention,
        sequence_parallel=sequence_parallel,
    )
    chosen = choose(model, cluster, tried, capacity)
    plan = chosen.plan
    needs, rejected = what_tensor_parallel_is_for(model, tried, chosen, capacity)
    steps = (
        _layer_step(model, cluster.domain, tried, chosen, capacity, needs, rejected),
        _pipeline_step(model, cluster, tried, chosen, capacity),
        _data_step(model, cluster, plan),
        _batch_step(plan),
    )
    title = (
        f"{model.name} ({digits(model.parameters / 1e9)} B) on {cluster.n_gpus} x {cluster.gpu.name}, "
        f"{global_batch} x {model.sequence} tokens, {micro_batch} at a time: "
        f"TP {chosen.tp} x PP {chosen.pp} x DP {chosen.dp}"
    )
    warnings = tuple(_warnings(model, cluster, chosen))
    return Decision(title, plan, chosen.memory, steps, warnings, needs, tuple(tried))


def _layer(model, plan) -> RankMemory:
    """One layer alone: its states, unsharded, and the activations of one micro-batch."""
    return RankMemory(state_bytes(layer_on_rank(model, plan).total), layer_on_plan(model, plan))


def what_tensor_parallel_is_for(
    model: Transformer, tried: list[Candidate], chosen: Candidate, capacity: float
) -> tuple[str, list[Candidate]]:
    """What the next smaller degree fails by, as in ``Decision``, and the leanest cut at each smaller one."""
    needs, rejected = "nothing", []
    for tp in sorted({one.tp for one in tried if one.tp < chosen.tp}):
        # Thin stages are no way out for a smaller degree where the chosen plan has none.
        there = [one for one in tried if one.tp == tp and one.thin <= chosen.thin]
        if not there:
            continue
        best = min(there, key=lambda one: one.memory.total)
        if _layer(model, best.plan).total > capacity:
            needs = "layer"
        elif best.memory.total <= capacity:
            needs = "global batch"
        elif min(one.memory.states for one in there) > capacity:
            needs = "states"
        elif min(one.memory.activations for one in there) > capacity:
            needs = "activations"
        else:
            needs = "states and activations"
        rejected.append(best)
    return needs, rejected


def _layer_step(model, domain, tried, chosen, capacity, needs, rejected) -> Step:
    whole = min(tried, key=lambda one: (one.tp, one.pp)).plan
    one, kept = _layer(model, whole), model.layers * layer_on_plan(model, whole)
    fits = "fits" if one.total <= capacity else "does not fit"
    answer = (
        f"At tp {whole.tp} a layer takes {worded(one)} of {format_bytes(capacity)}: it {fits}. But the first "
        f"stage keeps a micro-batch of all {model.layers} layers however many stages there are, "
        f"{format_bytes(kept)}, and states come on top."
    )
    for best in rejected:
        answer += f" At tp {best.tp} the leanest, pp {best.pp}, needs {worded(best.memory)}."
    said = {
        "nothing": "no tensor parallel is needed",
        "layer": "a single layer asks for it",
        "states": "the states ask for it",
        "activations": "the activations ask for it, which only tp divides",
        "states and activations": "states and activations together ask for it",
        "global batch": "the global batch asks for it: a smaller one leaves uneven shares or idle stages",
    }
    legal = max(one.tp for one in tried)
    bound = "the domain" if legal == domain else f"heads and cards allow no more in a domain of {domain}"
    room = f" That is the ceiling: {bound}." if legal == chosen.tp else f" The ceiling would be {legal}."
    return Step(
        "Does one layer fit?",
        answer,
        f"tp = {chosen.tp}: {said[needs]}.{room}",
    )


def _pipeline_step(model, cluster, tried, chosen, capacity) -> Step:
    plan = chosen.plan
    there = sorted((one for one in tried if one.tp == plan.tp and one.pp <= plan.pp), key=_stages)
    totals = ", ".join(f"pp {one.pp} {format_bytes(one.memory.total)}" for one in there)
    answer = f"Of {format_bytes(capacity)} a card the fullest stage takes: {totals}."
    if any(one.memory.total <= capacity and not one.whole_batch for one in there):
        answer += " Fewer stages fit too, but not with replicas that share the batch evenly."
    if plan.pp == 1:
        return Step("Are there layers enough to cut?", answer, "pp = 1: no pipeline, no bubble")
    answer += (
        f" A stage computes {format_time(stage_forward(model, cluster, plan))} forward and passes on for "
        f"{format_time(stage_transfer(model, cluster, plan))}."
    )
    kind = "thin" if chosen.thin else "tight" if chosen.layers <= TIGHT else "thick enough"
    bubble = format_share(bubble_share(plan.pp, plan.accumulation))
    outcome = f"pp = {plan.pp}: {digits(chosen.layers)} layers a stage, {kind}; bubble {bubble} at m = "
    return Step("Are there layers enough to cut?", answer, f"{outcome}{digits(plan.accumulation)}")


def _stages(one: Candidate) -> int:
    return one.pp


def _data_step(model, cluster, plan) -> Step:
    question = "What do the other cards do?"
    factors = factor_two(model, cluster, plan)
    if not factors:
        outcome = (
            f"dp = {plan.dp}: {plan.ranks} GPUs hold {counted(plan.dp, 'replica')} of {plan.model_ranks}"
        )
        return Step(question, "No factor of 2 is left to compare.", outcome)
    said = "; ".join(
        f"to {one.name} {format_bytes(one.bytes_per_card)} a card and step, {format_time(one.exposed)} not "
        f"hidden, a step of {format_time(one.seconds)}"
        for one in factors
    )
    best = min(factors, key=lambda one: one.seconds)
    outcome = f"dp = {plan.dp}: replicas of {counted(plan.model_ranks, 'GPU')}. "
    outcome += (
        "Data parallel costs the least time"
        if best.name == "DP"
        else f"{best.name} would cost less time here: try it"
    )
    return Step(question, f"The last factor 2, given {said}.", outcome)


def _batch_step(plan: Plan) -> Step:
    each, enough = plan.global_batch / plan.dp, ENOUGH_MICRO_BATCHES * plan.pp * plan.dp * plan.micro_batch
    answer = f"{counted(each, 'sequence')} a replica (at least 1, better {ENOUGH_SAMPLES}), m = "
    answer += f"{counted(plan.accumulation, 'micro-batch')}."
    if plan.pp > 1:
        answer += (
            f" A pipeline of {plan.pp} wants m >= {ENOUGH_MICRO_BATCHES * plan.pp}: a global batch of "
            f"{enough}, the same for any split of {plan.pp * plan.dp} ranks into stages and replicas."
        )
    well = each >= ENOUGH_SAMPLES and (plan.pp == 1 or plan.global_batch >= enough)
    most = plan.global_batch // plan.micro_batch
    outcome = "enough" if well else "short of what is advised: more tp, fewer GPUs or a larger batch"
    outcome += f"; data parallel is used up at dp = {most}, one micro-batch each"
    return Step("Is the global batch large enough?", answer, outcome)


def _warnings(model, cluster, chosen):
    if chosen.thin or (chosen.pp > 1 and chosen.layers <= TIGHT):
        kind = "thin" if chosen.thin else "tight"
        yield (
            f"{digits(chosen.layers)} layers a stage are {kind}: with more stages the bubble grows, "
            f"{bubbles(chosen.plan)}; models have been trained with one or two"
        )
    for problem in problems(model, cluster, chosen.plan):
        if problem.rule != "padding":
            yield f"{problem.message}; {problem.remedy}"


def bubbles(plan: Plan) -> str:
    """The bubble of half, of all and of twice the stages at the plan's micro-batches, in words."""
    shares = bubble_share(np.array([plan.pp / 2, plan.pp, 2 * plan.pp]), plan.accumulation)
    stages = (plan.pp // 2, plan.pp, 2 * plan.pp)
    return ", ".join(f"{format_share(s)} at {p}" for p, s in zip(stages, shares, strict=True) if p >= 1)
