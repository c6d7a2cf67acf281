"""Launch: what a launcher's file says about a training run, and what it leaves open."""

from dataclasses import dataclass, field

from labkit.spec import Plan, Transformer
from labkit.units import digits, wrapped

_MOST_SHOWN = 12  # unknown flags in the report; all of them stand in ``unknown``
_DEGREES = ("tp", "cp", "pp", "dp", "ep")


@dataclass(frozen=True, slots=True, repr=False)
class Launch:
    """A run as its launcher starts it. ``framework``: megatron-lm, deepspeed or torchtitan.

    ``plan``: degrees, batch and options; ``model``: the shape, None where the file does not give all of it;
    ``global_batch`` sequences a step of ``sequence`` tokens on ``gpus`` GPUs in ``precision``, None where not
    known. ``missing``: what the file leaves open, each with the argument of ``read_launcher`` that gives it;
    ``unknown``: flags and values that are not known here, all of them; ``warnings``: contradictions, what is
    not modelled, and what was assumed.
    """

    framework: str
    plan: Plan
    model: Transformer | None
    global_batch: float | None
    sequence: int | None
    gpus: int | None
    precision: str | None
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __repr__(self):
        plan = self.plan
        degrees = " x ".join(f"{name} {plan.degree(name)}" for name in _DEGREES if plan.degree(name) > 1)
        options = [
            f"zero {plan.zero}",
            f"recompute {plan.recompute}",
            *["sequence parallel"] * plan.sequence_parallel,
        ]
        if plan.pp > 1:
            options.append(f"{plan.schedule}, v = {plan.v}" if plan.v > 1 else plan.schedule)
        batch = "not known" if self.global_batch is None else digits(self.global_batch, 6)
        lines = [
            f"{self.framework}: {degrees or 'no parallel degree'} on {self.gpus or 'unknown'} GPUs, "
            f"global batch {batch}, micro-batch {digits(plan.micro_batch, 4)}, {', '.join(options)}",
            f"model: {_shape(self.model)}; sequence {self.sequence or 'not known'}; precision "
            f"{self.precision or 'not known'}",
        ]
        lines += [f"missing: {one}" for one in self.missing] + [f"warning: {one}" for one in self.warnings]
        if self.unknown:
            more = f" and {len(self.unknown) - _MOST_SHOWN} more" if len(self.unknown) > _MOST_SHOWN else ""
            lines.append(f"unknown: {', '.join(self.unknown[:_MOST_SHOWN])}{more}")
        return "\n".join(part for line in lines for part in wrapped(line))


def _shape(model: Transformer | None) -> str:
    if model is None:
        return "not known"
    size = digits(model.parameters / 1e9)
    return f"{model.name}, {size} B, {model.layers} layers x hidden {model.hidden}"
