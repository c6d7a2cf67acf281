"""Can a job go on under another plan? Tensor by tensor; where not, with the nearest layouts that work."""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.practice.resharding.formats import Survival, changes, survives
from labkit.practice.resharding.rows import TensorChange, rows
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import whole, without_arrays
from labkit.spec.plan_words import said
from labkit.spec.rule import Problem, counted, divisors
from labkit.spec.rules import RULES, check_nouns
from labkit.units import digits

# What must hold of the target, whatever the source was. The batch is no matter of a checkpoint.
SHAPE = ("heads", "kv heads", "ffn", "vocabulary", "layers", "experts", "expert ranks")
_MOST_LAYOUTS = 4


@dataclass(frozen=True, slots=True)
class Reshard:
    """The answer. ``possible``: whether every tensor can be cut as the target wants it.

    ``problems``: rules of shape that the target breaks, with remedies; ``layouts``: the nearest plans on as
    many cards that break none, where it breaks some; ``survival``: what the form of the checkpoint lets
    through, where it was named.
    """

    model: str
    source: Plan
    target: Plan
    changed: tuple[str, ...]
    tensors: tuple[TensorChange, ...]
    problems: tuple[Problem, ...]
    layouts: tuple[Plan, ...]
    survival: Survival | None

    @property
    def possible(self) -> bool:
        """Whether every tensor of the model splits the way the target wants it."""
        return not self.problems

    def __repr__(self):
        verdict = "possible" if self.possible else "not possible"
        title = f"{self.model}, {_named(self.source)} -> {_named(self.target)}: {verdict}"
        lines = [title, f"changed: {', '.join(self.changed) or 'nothing that a checkpoint is cut by'}"]
        lines += [str(problem) for problem in self.problems]
        old, new = self.source.global_batch, self.target.global_batch
        if old != new:
            lines.append(
                f"global batch {digits(old, 4)} -> {digits(new, 4)}: keep it, or warm up to another loss"
            )
        if self.layouts:
            lines.append("nearest that work: " + "; ".join(_named(plan) for plan in self.layouts))
        width = max(len(row.name) for row in self.tensors)
        lines += [f"  {row.name:<{width}}  {row.change}: {row.says}" for row in self.tensors]
        if self.survival and not self.possible:
            lines.append("what the form of the checkpoint lets through, once the target is one that works:")
        lines += self.survival.says if self.survival else ()
        return "\n".join(lines)


def reshard(
    model: Transformer, cluster: Cluster, source: Plan, target: Plan, form: str | None = None
) -> Reshard:
    """Whether a checkpoint of ``source`` can be loaded into ``target``, and what is cut anew for it.

    Source and target need not divide each other, because target pieces are assembled from the source's by
    their place in the whole. What counts is the target against the tensors: whole heads, columns and experts
    a rank, whole layers a stage. ``cluster``: that of the target, for remedies; ``form``: a name of
    ``FORMATS``, how the checkpoint holds the optimizer. The stages of ZeRO cut flat buffers, padded to any
    number of ranks, and fit always. Refused: arrays of plans, and a source that the model cannot have had.

    >>> from labkit.spec import Gpu, Link
    >>> card = Gpu("card", 80e9, {"bf16": 3e14}, 0.5)
    >>> node = Cluster("node", card, 8, 8, Link(1e-6, 2e11), Link(1e-5, 2e10), 1)
    >>> gpt = Transformer("13B", 40, 5120, 40, 50257, 2048)
    >>> answer = reshard(gpt, node, Plan(tp=8, dp=4), Plan(tp=16, dp=4))
    >>> answer.possible, [problem.rule for problem in answer.problems]
    (False, ['heads'])
    """
    check_nouns(model=model, cluster=cluster, plan=source)
    check_nouns(plan=target)
    without_arrays("a change of plan", source=source, target=target, cluster=cluster)
    wrong = _broken(model, cluster, source)
    if wrong:
        raise InputRefused(
            f"no job of the source plan can have saved this model: {wrong[0].message}; correct it"
        )
    broken = _broken(model, cluster, target)
    return Reshard(
        model.name,
        source,
        target,
        changes(source, target, model),
        tuple(rows(model, source, target, {problem.rule: problem for problem in broken})),
        tuple(broken),
        nearest_layouts(model, cluster, target) if broken else (),
        None if form is None else survives(form, source, target, model),
    )


def nearest_layouts(
    model: Transformer, cluster: Cluster, wanted: Plan, most: int = _MOST_LAYOUTS
) -> tuple[Plan, ...]:
    """Plans on as many cards as ``wanted`` that every tensor of the model splits over, the nearest first.

    Near: the fewest doublings or halvings of tp, pp and ep in all; data parallel takes what they leave. The
    global batch stays where the replicas divide it; otherwise each takes one micro-batch.
    """
    check_nouns(model=model, cluster=cluster, plan=wanted)
    without_arrays("a plan to look near", wanted=wanted, cluster=cluster)
    most = whole(most, "the number of layouts")
    found = []
    cards = wanted.ranks // wanted.cp
    for tp in divisors(cards):
        for pp in divisors(cards // tp):
            for ep in divisors(model.experts) if model.experts else [1]:
                layers = wanted.stage_layers if pp == wanted.pp else None
                cut = dict(tp=tp, pp=pp, dp=cards // (tp * pp), ep=ep, stage_layers=layers)
                plan = _with(wanted, cut)
                if not any(rule.mask(model, cluster, plan) for rule in _RULES):
                    found.append((_apart(plan, wanted), tp, pp, ep, plan))
    return tuple(row[-1] for row in sorted(found, key=lambda row: row[:-1])[:most])


_RULES = [rule for rule in RULES if rule.name in SHAPE]


def _broken(model, cluster, plan) -> list[Problem]:
    return [rule.problem(model, cluster, plan) for rule in _RULES if rule.mask(model, cluster, plan)]


def _with(plan: Plan, cut: dict) -> Plan:
    """The plan with other degrees and a batch that they divide."""
    other = plan.changed(**cut)
    if other.accumulation % 1 and plan.global_batch % 1 == 0:
        other = plan.changed(**cut, global_batch=plan.global_batch, micro_batch=1)
    return plan.changed(**cut, micro_batch=1, accumulation=1) if other.accumulation % 1 else other


def _apart(a: Plan, b: Plan) -> float:
    return float(sum(abs(np.log2(getattr(a, name) / getattr(b, name))) for name in ("tp", "pp", "ep")))


def _named(plan: Plan) -> str:
    return f"{said(plan).rsplit(', m ', 1)[0]} on {counted(plan.ranks, 'card')}"
