"""Measured peaks of memory from published runs, each with the model and the plan that it was measured of."""

from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.presets.measured_rows import PLAN, SHAPE, measured_facts
from labkit.presets.published import published
from labkit.spec import Plan, Transformer

_YES_OR_NO = {"gated", "tied", "bias", "dropout", "qk_norm", "sequence_parallel", "fused_attention"}


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """Bytes that were measured on a rank of one stage of a pipeline, and what ran.

    ``stage`` counts from 0; None: the fullest. ``kind``: what the peak counts, bytes ``allocated`` in the
    framework, bytes that its allocator ``reserved`` for it, or a whole number of GB ``printed`` without
    saying which. ``gradient_bytes`` per parameter; weights have 2, the optimizer 12. ``loss``: copies of the
    logits alive at once: 16 bits and an ``fp32 copy``, another fp32 copy more (``compiled``), or 16 bits
    alone that turn into their gradient (``in place``). ``unused_gradients``: 16-bit weight gradients are
    handed on although they were added to the fp32 ones already. ``dispatcher``: of experts' tokens.
    """

    source: str
    label: str
    gpu: str
    model: Transformer
    plan: Plan
    stage: int | None
    peak: float
    kind: str
    gradient_bytes: float
    loss: str
    unused_gradients: bool
    dispatcher: str


@dataclass(frozen=True, slots=True)
class NotScored:
    """A measured row that a ``Transformer`` and a ``Plan`` cannot express, or that says too little of it."""

    source: str
    label: str
    why: str


def measured_peaks() -> tuple[list[MeasuredPeak], list[NotScored]]:
    """The peaks of ``data/published/measured_memory.csv``, and its rows that cannot be expressed.

    >>> peaks, not_scored = measured_peaks()
    >>> first = peaks[0]
    >>> first.model.hidden, first.plan.tp, first.plan.zero, first.stage, round(first.peak / 1e9, 2)
    (8192, 2, 1, 0, 65.15)
    """
    return _sorted(published("measured_memory"))


def peaks_of(rows: list[dict[str, str]]) -> tuple[list[MeasuredPeak], list[NotScored]]:
    """The same of rows in the columns of the published tables, as ``csv.DictReader`` gives them.

    Refused: what ``measured_facts`` refuses of a row.
    """
    if not isinstance(rows, list | tuple):
        raise InputRefused("measured rows come in a list; give list(csv.DictReader(file))")
    return _sorted([facts for row in rows for facts in measured_facts(row)])


def _sorted(rows: list[dict]) -> tuple[list[MeasuredPeak], list[NotScored]]:
    peaks, not_scored = [], []
    for facts in rows:
        why = facts["not_expressed"]
        try:
            if not why:
                peaks.append(_peak(facts))
        except InputRefused as refusal:  # of a shape or a plan
            why = str(refusal)
        if why:
            not_scored.append(NotScored(facts["source"], facts["label"], why))
    return peaks, not_scored


def _peak(facts: dict) -> MeasuredPeak:
    given = {
        name: bool(value) if name in _YES_OR_NO else value for name, value in facts.items() if value != ""
    }
    shape = {name: given[name] for name in SHAPE if name in given}
    plan = {name: given[name] for name in PLAN if name in given}
    if "stage_layers" in plan:
        plan["stage_layers"] = tuple(map(int, plan["stage_layers"].split()))
    return MeasuredPeak(
        source=facts["source"],
        label=facts["label"],
        gpu=facts["gpu"],
        model=Transformer(facts["label"][:100], **shape),
        plan=Plan(**plan),
        stage=given.get("stage"),
        peak=float(facts["peak"]),
        kind=facts["kind"],
        gradient_bytes=float(facts["gradient_bytes"]),
        loss=facts["loss"],
        unused_gradients=bool(facts["unused_gradients"]),
        dispatcher=facts["dispatcher"],
    )
