"""Chapter 4's opening: one plan under three conventions, and measured peaks against the model."""

import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from labkit.course.table import Table, table
from labkit.planner.conventions import USUAL, Conventions
from labkit.planner.memory import STATES, Memory, memory
from labkit.planner.states import FP32_ACCUMULATION, FP32_GRADIENTS, MIXED, Recipe
from labkit.presets import cluster, model
from labkit.presets.measured import MeasuredPeak, measured_peaks
from labkit.presets.published import published
from labkit.spec import Plan
from labkit.units import GB, format_bytes, format_memory, format_share

MODEL, MACHINE = model("llama2-13b"), cluster("a100", nodes=2)
# The plan that the lab opens with: its tensors fit the card, and it does not.
PLAN = Plan(tp=2, pp=4, dp=2, micro_batch=4, accumulation=16, sequence_parallel=True)


def example(zero=0, recipe: Recipe = MIXED) -> Memory:
    """The memory of ``PLAN`` at a stage of sharding, under a recipe."""
    return memory(MODEL, MACHINE, replace(PLAN, zero=zero), replace(USUAL, recipe=recipe))


# ---- conventions

_RECIPES = (
    ("2 + 2 + 12", MIXED, "ZeRO (2020), section 3.1: fp16 gradients"),
    ("2 + 4 + 12", FP32_GRADIENTS, "Megatron-LM in bf16: gradients are kept and reduced in fp32"),
    ("2 + 2 + 4 + 12", FP32_ACCUMULATION, "DeepSpeed in bf16: 16-bit gradients are added up in an fp32 copy"),
)


def conventions_table(zero=1) -> Table:
    """The same plan, optimizer states sharded, under three recipes, on its fullest stage."""
    rows = []
    for name, recipe, source in _RECIPES:
        found = example(zero, recipe)
        states, buckets = (format_bytes(found.sum(names)[found.fullest]) for names in (STATES, ("buckets",)))
        rows.append((name, source, states, buckets, format_memory(found.peak), found.fits))
    return table(("bytes/parameter", "who counts so", "states", "buckets", "peak", "fits"), rows)


# ---- measured peaks

LOGIT_BYTES = {"fp32 copy": 6.0, "compiled": 10.0, "in place": 2.0}  # by the copies alive at the loss
CLOSE, FAR = 0.06, 0.12  # errors that are small, and those that ask for a reason
SOURCES = {
    "simumax_b200": "SimuMax, Llama on 8 B200",
    "zero_bubble": "Zero Bubble (2024), GPT on A100",
    "vocab_parallelism": "Vocabulary Parallelism (2024), GPT on A100",
    "mcore_golden_values": "Megatron-LM's functional tests",
}


@dataclass(frozen=True, slots=True)
class Scored:
    """A measured peak and the bytes that the model says of it."""

    measured: MeasuredPeak
    modelled: float

    @property
    def error(self) -> float:
        """Modelled over measured, less 1."""
        return self.modelled / self.measured.peak - 1


def conventions_of(peak: MeasuredPeak) -> Conventions:
    """What that run kept: bytes per gradient and per logit; the rest as usual."""
    return Conventions(recipe=Recipe(gradients=peak.gradient_bytes), logit_bytes=LOGIT_BYTES[peak.loss])


def modelled(peak: MeasuredPeak) -> float:
    """What the framework's counter would show: of the measured stage, or of the fullest.

    Where the allocator's reserved bytes were measured, its slack is counted in.
    """
    conventions = conventions_of(peak)
    allocated = memory(peak.model, MACHINE, peak.plan, conventions).allocated
    size = allocated.max() if peak.stage is None else allocated[peak.stage]
    return float(size * (1 + conventions.slack) if peak.kind == "reserved" else size)


@cache
def scored() -> tuple[Scored, ...]:
    """Every measured peak that a model and a plan can express; nothing is left out for its error."""
    return tuple(Scored(peak, modelled(peak)) for peak in measured_peaks()[0])


def errors(source: str | None = None) -> np.ndarray:
    """Relative errors of one source, or of all."""
    return np.array([one.error for one in scored() if source in (None, one.measured.source)])


def measured_table() -> Table:
    """How far the model is from what was measured, by source."""
    missing = measured_peaks()[1]
    rows = []
    for source, name in (*SOURCES.items(), (None, "all")):
        found = errors(source)
        left_out = sum(source in (None, one.source) for one in missing)
        worst = found[np.argmax(np.abs(found))]
        median, close = np.median(np.abs(found)), np.mean(np.abs(found) <= CLOSE)
        shares = (format_share(median), format_share(close), f"{100 * worst:+.1f} %")
        rows.append((name, f"{len(found)}", f"{left_out}", *shares))
    within = f"within {format_share(CLOSE)}"
    return table(
        ("source", "peaks", "not expressed", "median error", within, "worst (-: labkit too low)"), rows
    )


def outliers() -> list[Scored]:
    """The peaks that the model misses by more than ``FAR``, the worst first."""
    return sorted((one for one in scored() if abs(one.error) > FAR), key=lambda one: -abs(one.error))


def with_scores(one: Scored) -> Scored:
    """The same peak, had the run stored its attention scores, whatever its row says."""
    plan = replace(one.measured.plan, fused_attention=False)
    return Scored(one.measured, modelled(replace(one.measured, plan=plan)))


def outliers_table() -> Table:
    """``outliers``: GB measured and modelled, and modelled with attention that is not fused."""
    rows = []
    for one in outliers():
        row = [short(one.measured.label), f"{one.measured.peak / GB:.2f}"]
        for each in (one, with_scores(one)):
            row += [f"{each.modelled / GB:.2f}", f"{100 * each.error:+.1f} %"]
        rows.append(row)
    return table(("run", "GB measured", "labkit", "error", "labkit, scores stored", "error then"), rows)


def short(label: str) -> str:
    """A run's label without what all of its source's tests have in their names; the container comes last.

    >>> short("moe/gpt3_mcore_te_tp2_pp1_resume_torch_dist_te_8experts2parallel_groupedGEMM lts dgx_a100")
    'tp2 pp1, 8 experts, grouped GEMM, A100 lts'
    >>> short("2k 256k baseline")
    '2k 256k baseline'
    """
    parts = re.fullmatch(r"(?:.*/)?gpt3_mcore_(?:te_)?(tp\d+)_(.*) (\w+) dgx_(\w+)", label)
    if not parts:
        return label
    tp, name, container, card = parts.groups()
    name = re.sub(r"_resume|_torch_dist|_te(?=_)", "", name)
    name = re.sub(r"(\d+)experts\d*parallel", r"\1 experts", name)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=top\d)(?=router)", " ", name)
    name = re.sub(r"^zp_z(\d)", r"ZeRO-\1", name)
    cut, _, rest = name.partition("_")
    rest = re.sub(r"(?<= experts)_|(?<=^frozen)_", ", ", rest).replace("_", " ")
    return ", ".join(filter(None, (f"{tp} {cut}", rest, f"{card.upper()} {container}")))


def reserved_over_allocated() -> np.ndarray:
    """Bytes that the allocator held over bytes allocated in it, of every run that printed both.

    Rows that share one measurement count once.
    """
    rows = [row for row in published("measured_memory") if row["reserved"]]
    pairs = sorted({(row["reserved"], row["peak"]) for row in rows})
    return np.array([reserved / allocated for reserved, allocated in pairs])
