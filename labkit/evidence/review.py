"""What an engineer already runs: what is missing, what stands against it, its step, and a better plan."""

from dataclasses import dataclass, fields, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.evidence.launchers import Launch, launcher_arguments
from labkit.planner.plan_space import SEARCHED
from labkit.planner.search import plan_of, search
from labkit.planner.step import step_time
from labkit.planner.why import setting
from labkit.planner.why_not import why_not
from labkit.spec import Cluster, Plan, StepTime, Transformer, problems
from labkit.spec.checks import amount, noun
from labkit.spec.rule import IMPOSSIBLE, listed
from labkit.units import format_share, format_time, wrapped

_FOLLOWS = ("dp", "accumulation", "replicate_kv")  # from other settings, and no change of their own
_COMPARED = tuple(name for name in SEARCHED if name not in _FOLLOWS)
# What a search does not try stays as it is.
_STAYS = tuple(
    field.name
    for field in fields(Plan)
    if field.name not in (*SEARCHED, "accumulation", "global_batch", "stage_layers")
)
_TRIED = 200  # plans, the nearest first, that are written for the framework before there is none


@dataclass(frozen=True, slots=True, repr=False)
class Review:
    """A launch and what the planner says to it.

    ``launch``: as read, its model the one that is reviewed, with the launch's sequence; None where nobody
    gives one. ``reasons``: what makes the plan impossible or too large; ``advice``: rules of thumb it breaks.
    ``step``: predicted, None where model or batch is missing or the plan is impossible. ``better``: the
    nearest plan that its framework can run and that is faster by more than the model's error, or, of a plan
    that cannot run, the nearest that can; None where there is none. ``changes`` to it in words, its step
    ``after``, the framework's ``arguments`` for it. ``fastest``: seconds of the search's first plan.
    """

    launch: Launch
    reasons: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    step: StepTime | None = None
    better: Plan | None = None
    changes: tuple[str, ...] = ()
    after: StepTime | None = None
    arguments: str = ""
    fastest: float | None = None

    def __repr__(self):
        lines = [f"cannot run: {one}" for one in self.reasons]
        lines += [f"advice: {one}" for one in self.advice]
        if self.step is not None:
            lines.append(f"predicted: {format_time(self.step.total)} a step, {_speed(self.step)}")
        if self.better is not None:
            gain = "" if self.step is None or self.reasons else _gain(self.step.total / self.after.total)
            word = "nearest that runs" if self.reasons else "nearest better plan"
            lines.append(f"{word}: {listed(list(self.changes), 'and')}")
            lines.append(f"  then {format_time(self.after.total)} a step, {_speed(self.after)}{gain}")
        elif self.step is not None and not self.reasons:
            lines.append("no plan that this framework runs is faster by more than the model's error")
        if self.fastest is not None and self.after is not None and self.fastest < self.after.total:
            lines.append(f"the fastest of all plans: {format_time(self.fastest)} a step")
        said = [part for line in lines for part in wrapped(line)]
        return "\n".join([str(self.launch), *said])


def _gain(ratio: float) -> str:
    return f", {format_share(ratio - 1)} more"


def _speed(step: StepTime) -> str:
    return f"{step.tokens_per_s_per_gpu:,.0f} tokens/s a GPU"


def review(
    launch: Launch,
    model: Transformer | None,
    cluster: Cluster,
    error: float | None = None,
    max_memory: float | None = None,
) -> Review:
    """What the planner says to a launch that ``read_launcher`` read, on a cluster of as many GPUs.

    ``model`` stands in for that of the launch (None: the launch's own), with the launch's sequence. Nearest
    is the plan with the fewest changed settings (dp, accumulation and copies of KV heads follow from
    others), of these the fastest; what a search does not try stays as it is. Refused: arguments of another
    type, and an error below 0; by default it is the ``kernels.residual`` of the GPU.
    """
    noun(launch, Launch, "the launch")
    noun(cluster, Cluster, "the cluster")
    if model is not None:
        noun(model, Transformer, "the model")
    error = cluster.gpu.kernels.residual if error is None else error
    error = amount(error, "the error of the model, a share of a step,", zero=True, arrays=False).item()
    shape = launch.model if model is None else model
    if shape is not None and launch.sequence is not None:
        shape = replace(shape, sequence=launch.sequence)
    missing = launch.missing if model is None else _without_shape(launch)
    launch = replace(launch, model=shape, missing=missing)
    if shape is None or launch.global_batch is None:
        return Review(launch)
    plan = launch.plan
    verdict = why_not(shape, cluster, plan, max_memory)
    broken = problems(shape, cluster, plan)
    advice = tuple(f"{one.message}; {one.remedy}" for one in broken if one.severity != IMPOSSIBLE)
    impossible = any(one.severity == IMPOSSIBLE for one in broken)
    step = None if impossible else step_time(shape, cluster, plan)
    found = Review(launch, verdict.reasons, advice, step)
    table = _searched(shape, cluster, plan, max_memory)
    if table is None or not len(table):
        return found
    fastest = float(table["seconds"].iloc[0])
    most = np.inf if verdict.reasons else step.total / (1 + error)
    better, arguments = _nearest(table, launch, shape, cluster, most)
    if better is None:
        return replace(found, fastest=fastest)
    changed = tuple(
        setting(plan, better, (field.name,))
        for field in fields(Plan)
        if getattr(plan, field.name) != getattr(better, field.name)
    )
    after = step_time(shape, cluster, better)
    return replace(found, better=better, changes=changed, after=after, arguments=arguments, fastest=fastest)


def _without_shape(launch: Launch) -> list[str]:
    """What is missing beside the model."""
    given = ("layers", "hidden", "heads", "vocabulary", "sequence", "model")
    return [one for one in launch.missing if not any(f"give {name}=" in one for name in given)]


def _searched(shape: Transformer, cluster: Cluster, plan: Plan, max_memory):
    """Every plan with what a search does not try as it is; None where the rules leave none."""
    try:
        fixed = {name: getattr(plan, name) for name in _STAYS}
        return search(shape, cluster, plan.global_batch, fixed, max_memory)
    except InputRefused:
        return None


def _nearest(table, launch: Launch, shape: Transformer, cluster: Cluster, most: float):
    """The nearest plan of at most so many seconds that the framework can run, and its arguments."""
    seconds = table["seconds"].to_numpy()
    here = np.flatnonzero(seconds <= most)
    changes = sum(
        (table[name].to_numpy()[here] != getattr(launch.plan, name)).astype(int) for name in _COMPARED
    )
    for place in here[np.lexsort((seconds[here], changes))][:_TRIED].tolist():
        plan = plan_of(table.iloc[place])
        try:
            return plan, launcher_arguments(launch.framework, shape, cluster, plan)
        except InputRefused:  # what this framework cannot express
            continue
    return None, ""
