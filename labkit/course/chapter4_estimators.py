"""Section 4.4: one plan put to four public estimators, rebuilt from their conventions, then on one set.

The figures they print were obtained in November 2026 with the inputs nearest to the plan that each of them
takes. Where two of its options would print the same digits, the docstring says which is assumed.
"""

from dataclasses import dataclass, replace

from labkit.course.table import Table, table
from labkit.planner.activations import layer_activation_bytes, layer_activations
from labkit.planner.conventions import Conventions
from labkit.planner.in_flight import in_flight
from labkit.planner.memory import ACTIVATIONS, LIBRARIES, PASSING, memory
from labkit.planner.rank_parameters import layer_on_rank, rank_parameters
from labkit.planner.states import FP32_GRADIENTS, bytes_by_state
from labkit.presets import cluster, model
from labkit.spec import Plan, Transformer
from labkit.units import GiB

# 13 B on 32 A100-80GB: micro-batch 1, global batch 512, sequence 2,048.
PLAN = Plan(
    tp=4,
    pp=2,
    dp=4,
    zero=1,
    micro_batch=1,
    accumulation=128,
    sequence_parallel=True,
    recompute="selective",
    vocabulary_multiple=1,
)
PARTS = ("parameters", "gradients", "optimizer_states", "activations", "other")
COOKBOOK, MEGATRON, ANALYSIS, CALCULON = TOOLS = ("cookbook", "Megatron-LM", "llm-analysis", "Calculon")
PRINTED = {COOKBOOK: 70.72, MEGATRON: 17.06, ANALYSIS: 13.8, CALCULON: 12.2}  # GiB

_GPT = Transformer("GPT 13B", 40, 5120, 40, 51200, 2048, bias=False)
# "13B" is a shape of its own in each: what is counted of the ends differs, and the width.
SHAPES = {
    COOKBOOK: replace(_GPT, tied=False, learned_positions=2048),
    MEGATRON: _GPT,
    ANALYSIS: replace(_GPT, name="LLaMA 13B", vocabulary=32000, norm="rms"),
    CALCULON: replace(_GPT, name="GPT-3 13B", hidden=5140, head_dim=128, ffn=20560),
}
_BUCKET = 5e8  # weights that ZeRO gathers at a time: DeepSpeed's allgather_bucket_size
_AHEAD = 2  # layers whose weights llm-analysis takes to be gathered


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes on the fullest rank, by ``PARTS``, as one tool counts them."""

    tool: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self.parts.values())


def states(parameters: float) -> dict[str, float]:
    """Weights in 16 bits, gradients in 32, optimizer states over the data-parallel ranks: 2 + 4 + 12/dp."""
    each = bytes_by_state(PLAN.dp, PLAN.zero, FP32_GRADIENTS)
    return {part: parameters * each[part] for part in each}


def in_pipeline(shape: Transformer) -> float:
    """Activations on the first stage: its layers and the embedding's dropout mask, of all in flight."""
    mask = shape.sequence * shape.hidden / PLAN.tp
    one = shape.layers / PLAN.pp * layer_activations(shape, PLAN).kept + mask
    return in_flight(PLAN, 0) * one


def cookbook() -> Estimate:
    """EleutherAI/cookbook, calc_transformer_mem.py, with gradients divided by tp x pp as parameters are.

    All parameters evenly over tp x pp; 34 s b h of every layer on each rank, whatever tp.
    """
    shape = SHAPES[COOKBOOK]
    layer = layer_activation_bytes(shape.sequence, 1, shape.hidden, shape.heads, recompute="selective")
    parts = {"activations": shape.layers * layer, "other": FP32_GRADIENTS.weights * _BUCKET}
    return Estimate(COOKBOOK, states(shape.parameters / PLAN.model_ranks) | parts)


def megatron() -> Estimate:
    """NVIDIA/Megatron-LM, megatron/training/theoretical_memory_usage.py: all of the first stage."""
    shape = SHAPES[MEGATRON]
    held = rank_parameters(shape, PLAN, "first").total
    return Estimate(MEGATRON, states(held) | {"activations": in_pipeline(shape), "other": 0.0})


def llm_analysis() -> Estimate:
    """cli99/llm-analysis, analysis.py: the larger of gradients and activations, and two layers gathered."""
    shape = SHAPES[ANALYSIS]
    parts = states(rank_parameters(shape, PLAN, "first").total)
    beyond = max(0.0, in_pipeline(shape) - parts["gradients"])
    ahead = _AHEAD * FP32_GRADIENTS.weights * layer_on_rank(shape, PLAN).total
    return Estimate(ANALYSIS, parts | {"activations": beyond, "other": ahead})


def calculon() -> Estimate:
    """calculon-ai/calculon, llm.py and layers.py: layers alone, gradients sharded, one layer at work in full.

    Gradients are sharded, in 16 bits, but for those of one layer, whole in 32. The layer at work keeps its
    attention scores, and gradients of its activations, which the tool lists operation by operation: 2 s b h
    more than the activations, taken as large here. Its overlap of tensor-parallel communication is taken as
    on; off, but with a fused activation function and the gathered inputs kept, it prints the same digits.
    """
    shape = SHAPES[CALCULON]
    layers = shape.layers // PLAN.pp
    weights, sharded, optimizer = bytes_by_state(PLAN.dp, 2).values()
    held = layer_on_rank(shape, PLAN).total
    kept = layer_activations(shape, PLAN).kept
    at_work = layer_activations(shape, replace(PLAN, recompute="none", fused_attention=False)).kept
    parts = {
        "parameters": layers * held * weights,
        "gradients": held * ((layers - 1) * sharded + FP32_GRADIENTS.gradients),
        "optimizer_states": layers * held * optimizer,
        "activations": (layers * in_flight(PLAN, 0) - 1) * kept + at_work,
        "other": at_work,
    }
    return Estimate(CALCULON, parts)


def their_own() -> list[Estimate]:
    """The four as they count, in the order of ``TOOLS``."""
    return [cookbook(), megatron(), llm_analysis(), calculon()]


def on_one_set() -> list[Estimate]:
    """The four shapes, all counted as Megatron-LM counts: first stage, 2 + 4 + 12/dp, all in flight."""
    return [
        Estimate(
            tool,
            states(rank_parameters(shape, PLAN, "first").total)
            | {"activations": in_pipeline(shape), "other": 0.0},
        )
        for tool, shape in SHAPES.items()
    ]


def on_the_card() -> Estimate:
    """labkit's own estimate of the plan, gpt3-13b on 4 nodes of preset a100, with what no tool counts."""
    found = memory(model("gpt3-13b"), cluster("a100", nodes=4), PLAN, Conventions(recipe=FP32_GRADIENTS))
    at = found.fullest
    each = bytes_by_state(PLAN.dp, PLAN.zero, FP32_GRADIENTS)
    ends = found.parts["embedding"][at] / sum(each.values())
    parts = {part: float(found.parts[part][at] + ends * each[part]) for part in each}
    parts["activations"] = float(found.sum(ACTIVATIONS)[at])
    return Estimate("labkit", parts | {"other": float(found.sum((*PASSING, *LIBRARIES))[at])})


_COUNTED = {
    COOKBOOK: (
        "two embeddings of 51,200, positions",
        "2 + 4 + 12/4, all over tp x pp",
        "34 s b h, 40 layers, tp left out",
        "a bucket of 5e8 parameters",
        "SHAPES, FP32_GRADIENTS; layer_activation_bytes(tp=1)",
    ),
    MEGATRON: (
        "an embedding of 51,200",
        "2 + 4 + 12/4, first stage",
        "34/4 s b h, 2 x 20 layers",
        "nothing",
        "FP32_GRADIENTS, zero=1; sequence_parallel",
    ),
    ANALYSIS: (
        "an embedding of 32,000",
        "2 + 4 + 12/4, first stage",
        "only beyond the gradients",
        "parameters of 2 gathered layers",
        "FP32_GRADIENTS, zero=1; max(gradients, activations)",
    ),
    CALCULON: (
        "layers alone, hidden 5,140",
        "2 + 2/4 + 12/4, 4 in one layer",
        "34/4 s b h, one layer with scores",
        "gradients of one layer's activations",
        "MIXED, zero=2; recompute='none' in one layer",
    ),
}


def conventions_table() -> Table:
    """What each tool counts, the settings that say it in labkit, and both figures."""
    rows = []
    for one in their_own():
        printed = f"{PRINTED[one.tool]:g}"
        rows.append((one.tool, *_COUNTED[one.tool], f"{one.total / GiB:.2f}", printed))
    heads = ("tool", "parameters of", "bytes each", "activations", "besides", "in labkit", "GiB", "it prints")
    return table(heads, rows)


def parts_table() -> Table:
    """The same by part in GiB; last, labkit's own estimate with what the libraries take."""
    rows = []
    for one in [*their_own(), on_the_card()]:
        parts = (f"{one.parts[part] / GiB:.2f}" for part in PARTS)
        rows.append((one.tool, *parts, f"{one.total / GiB:.2f}"))
    return table(("GiB on the fullest card", *(part.replace("_", " ") for part in PARTS), "in all"), rows)


def one_set_table() -> Table:
    """The four shapes on one set of conventions."""
    rows = [
        (one.tool, SHAPES[one.tool].parameters / 1e9, f"{own.total / GiB:.2f}", f"{one.total / GiB:.2f}")
        for own, one in zip(their_own(), on_one_set(), strict=True)
    ]
    return table(("shape of", "B parameters", "GiB, as the tool counts", "GiB, all counted alike"), rows)
