"""From a plan that runs to a fast one: steps in order, each with the gain to expect and what to measure.

Each step sets free one more setting, the cheapest to try first: overlap, micro-batch, sharding, recompute,
schedule, and at last the cut itself. Its plan is the best that ``labkit.planner.search`` finds with all other
settings as they were, so that the last step's plan is the best of all that have what no search tries as it
was (``order``, ``prefetch``, ``shard_ranks`` ...).
"""

from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.planner.memory import memory
from labkit.planner.plan_space import UNTRIED
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time
from labkit.planner.why import setting
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import amount, noun, without_arrays
from labkit.spec.rules import allowed, check_nouns
from labkit.units import format_share, format_time

SAME = "nothing to gain"
_SHOWN = ("tp", "cp", "pp", "dp", "ep", "v", "schedule", "micro_batch", "zero", "recompute")
_OF_SEVERAL = {
    "sequence_parallel": "tp",
    "context": "cp",
    "stage_layers": "pp",
}  # shown where there are ranks
_CUT = ("tp", "cp", "pp", "ep", "sequence_parallel", "context")
# What each step sets free, what shows whether its gain is real, and the section of the guide it is from.
STEPS = (
    ("micro-batch", ("micro_batch",), "tokens/s per GPU, and the peak of memory", "3.2, 5.5"),
    ("sharding", ("zero",), "exposed time of gathers and reductions", "4.1"),
    ("recompute", ("recompute",), "the peak of memory beside the step", "4.2"),
    ("schedule", ("v", "schedule", "stage_layers"), "idle share of the last pipeline rank", "3.3"),
    ("cut", _CUT, "the step, with the mapping of ranks checked", "3.4"),
)
_NO_START = (
    "tuning starts from a plan that runs, and this one is impossible or does not fit; procedure() finds one"
)
_OVERLAP = ("overlap of gradients", "exposed time of the reductions (5.4: at most 10 %)", "3.1, 4.3")


@dataclass(frozen=True, slots=True)
class Tuned:
    """One step: ``change`` in words, the ``plan`` after it, its seconds ``before`` and ``after``.

    ``measure``: what shows whether the gain is real; ``source``: the sections of the guide that it is from.
    """

    name: str
    change: str
    plan: Plan
    before: float
    after: float
    measure: str
    source: str

    @property
    def gain(self) -> float:
        """Seconds saved as a share of the step before."""
        return 1 - self.after / self.before


def tuning(
    model: Transformer, cluster: Cluster, plan: Plan, max_memory: float | None = None
) -> tuple[Tuned, ...]:
    """Steps from a plan that runs to the best of all, in order.

    Global batch and GPUs stay as they are, and no plan takes more than ``max_memory`` bytes a card (all that
    the card leaves to a job, unless given). Refused: arrays, and a plan that is impossible or does not fit.

    >>> from labkit.spec import Gpu, Link
    >>> card = Gpu("80 GB card", 80e9, {"bf16": 312e12}, 0.5, 2e12)
    >>> nodes = Cluster("2 x 8", card, 2, 8, Link(2e-6, 235e9), Link(5e-6, 25e9), 8)
    >>> gpt = Transformer("1.3B", 24, 2048, 16, 50257, 2048)
    >>> start = Plan(tp=2, pp=2, dp=4, zero=1, sequence_parallel=True, global_batch=64, micro_batch=1)
    >>> steps = tuning(gpt, nodes, start)
    >>> [step.name for step in steps][:3], all(step.gain >= 0 for step in steps)
    (['overlap of gradients', 'micro-batch', 'sharding'], True)
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    without_arrays("tuning", cluster=cluster, plan=plan)
    capacity = cluster.gpu.usable if max_memory is None else max_memory
    capacity = float(amount(capacity, "max_memory, in bytes of a card,", endless=True, arrays=False))
    if not allowed(model, cluster, plan) or memory(model, cluster, plan).peak > capacity:
        raise InputRefused(_NO_START)
    before, seconds = (step_time(model, cluster, plan, overlap=one).total for one in (False, True))
    name, measure, source = _OVERLAP
    change = SAME if seconds >= before else "in buckets beside the backward pass"
    return freed_in_turn(
        Tuned(name, change, plan, before, seconds, measure, source), model, cluster, max_memory
    )


def freed_in_turn(
    first: Tuned, model: Transformer, cluster: Cluster, max_memory: float | None = None
) -> tuple[Tuned, ...]:
    """The step ``first``, and those of ``STEPS`` from its plan on. Refused: what ``search`` refuses."""
    noun(first, Tuned, "the first step")
    steps, plan = [first], first.plan
    fixed = {name: getattr(plan, name) for _, freed, *_ in STEPS for name in freed}
    fixed |= {name: getattr(plan, name) for name in UNTRIED}
    for name, freed, measure, source in STEPS:
        fixed = {kept: value for kept, value in fixed.items() if kept not in freed}
        table = search(model, cluster, plan.global_batch, fixed, max_memory)
        if table.empty:
            raise InputRefused(_NO_START)
        best, last = table.iloc[0], steps[-1]
        better = float(best["seconds"]) < last.after
        found, seconds = (plan_of(best), float(best["seconds"])) if better else (last.plan, last.after)
        steps.append(Tuned(name, _words(last.plan, found), found, last.after, seconds, measure, source))
        fixed |= {kept: getattr(found, kept) for kept in fixed}
    return tuple(steps)


def _words(before: Plan, after: Plan) -> str:
    """What changed, setting by setting.

    >>> _words(Plan(tp=4, dp=2), Plan(tp=2, dp=4)), _words(Plan(), Plan())
    ('tp 4 -> 2, dp 2 -> 4', 'nothing to gain')
    """
    names = [name for name in (*_SHOWN, *_OF_SEVERAL) if getattr(before, name) != getattr(after, name)]
    said = [
        setting(before, after, (name,))
        for name in names
        if all(plan.degree(_OF_SEVERAL.get(name, "tp")) > 1 for plan in (before, after)) or name in _SHOWN
    ]
    return ", ".join(said) or SAME


def sentence(step: Tuned) -> str:
    """A step in one line: what it changes, what it should gain, and what to measure."""
    noun(step, Tuned, "a step of tuning")
    if step.change == SAME:
        return f"{step.name}: {SAME}"
    return (
        f"{step.name}: {step.change}, {format_time(step.before)} -> {format_time(step.after)} "
        f"(-{format_share(step.gain)}); measure {step.measure}"
    )
