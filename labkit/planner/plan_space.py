"""All plans of a model on a cluster at one global batch, as a few Plans of arrays: the space of a search.

Every choice has an axis of its own, so that what depends on some choices is computed for those alone and
broadcasts over the others. Nothing is judged here: the rules do that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import noun, shown, whole, without_arrays
from labkit.spec.plan import CONTEXT, SCHEDULES
from labkit.spec.rule import counted, divisors
from labkit.spec.rules import check_nouns
from labkit.spec.rules_memory import nothing_to_shard
from labkit.spec.rules_shape import even_stages
from labkit.spec.transformer import RECOMPUTE

CUT = ("tp", "cp", "pp", "dp", "ep", "micro_batch", "context", "replicate_kv")
CHOICES = {"zero": (0, 1, 2, 3), "recompute": RECOMPUTE, "sequence_parallel": (False, True)}
PIPELINE = ("v", "schedule")
SEARCHED = (*CUT, *CHOICES, *PIPELINE)
AXES = ("cut", *CHOICES, "pipeline")
MOST_VIRTUAL = 8  # virtual stages a rank that are tried
_FIELDS = tuple(field.name for field in fields(Plan))
UNTRIED = tuple(name for name in _FIELDS if name not in (*SEARCHED, "accumulation", "global_batch"))


@dataclass(frozen=True)
class Space:
    """Plans along five axes: cuts, stages of ZeRO, recompute, sequence parallel, and pipelines.

    ``cuts``, ``pipelines``, ``choices``: the values of the fields along their axes. ``others``: fields with
    one value for all, the global batch among them; ``pinned``: names of those that the caller fixed.
    """

    model: Transformer
    cluster: Cluster
    cuts: dict[str, np.ndarray]
    pipelines: dict[str, np.ndarray]
    choices: dict[str, np.ndarray]
    others: dict
    pinned: frozenset[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        choices = (self.choices[name].size for name in CHOICES)
        return (self.cuts["tp"].size, *choices, self.pipelines["v"].size)

    @cached_property
    def plan(self) -> Plan:
        """All of them as one plan, whose arrays have the five axes, of length 1 where nothing changes."""
        given = dict(self.fields())
        if self.others.get("stage_layers") is not None:  # those of one pipeline
            single = ("pp", "v") if given["schedule"].size > 1 else ("pp", "v", "schedule")
            given |= {name: given[name].flat[0].item() for name in single}
        return Plan(**given, **self.others)

    def fields(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names of the fields that differ between plans, and their values along the axes."""
        for name, values in self.cuts.items():
            yield name, _along(values, 0)
        for axis, name in enumerate(CHOICES, 1):
            yield name, _along(self.choices[name], axis)
        for name, values in self.pipelines.items():
            yield name, _along(values, len(AXES) - 1)

    def at(self, place: tuple) -> Plan:
        """One of the plans, by its place along each axis."""
        given = {
            name: values[tuple(min(i, n - 1) for i, n in zip(place, values.shape, strict=True))].item()
            for name, values in self.fields()
        }
        return Plan(**given, **self.others)

    @property
    def canonical(self) -> np.ndarray:
        """One of each set of plans that are the same: a mask that broadcasts to ``shape``.

        v = 1 and 1F1B without a pipeline, no sequence parallel without tensor parallel, no ZeRO where no two
        ranks hold the same, and no equal stages where layers do not divide over them. What is pinned stays.
        """
        plan, again = self.plan, np.zeros((self.shape[0], 1, 1, 1, self.shape[-1]), bool)
        flat = np.asarray(plan.pp) == 1
        for name, same in (
            ("v", flat & (np.asarray(plan.v) > 1)),
            ("schedule", flat & (np.asarray(plan.schedule) != "1f1b")),
            ("sequence_parallel", plan.sequence_parallel & (np.asarray(plan.tp) == 1)),
            ("zero", nothing_to_shard(self.model, self.cluster, plan)),
            ("stage_layers", self._in_a_space_of_its_own(plan)),
        ):
            if name not in self.pinned:
                again = again | same
        return ~again

    def _in_a_space_of_its_own(self, plan: Plan):
        uneven = _is_uneven(self.model, np.asarray(plan.pp)) & (np.asarray(plan.v) == 1)
        return uneven & (plan.stage_layers is None)

    def part(self, cuts, pipelines=slice(None)) -> "Space":
        """The plans of some cuts and pipelines alone: slices or masks along the first and the last axis."""
        return replace(
            self,
            cuts={name: values[cuts] for name, values in self.cuts.items()},
            pipelines={name: values[pipelines] for name, values in self.pipelines.items()},
        )


def _along(values: np.ndarray, axis: int) -> np.ndarray:
    """Values along one of the five axes."""
    return values.reshape([-1 if here == axis else 1 for here in range(len(AXES))])


def plan_spaces(
    model: Transformer, cluster: Cluster, global_batch: int, fixed: dict | None = None
) -> Iterator[Space]:
    """Every plan on all GPUs of the cluster, tp x cp x pp x dp, in a few spaces.

    Degrees: divisors of the number of GPUs; of the experts for ep. Micro-batches: divisors of a replica's
    share of the batch, or 1 of a share that is not whole. ZeRO 0 to 3, the three kinds of recompute, sequence
    parallel, both kinds of context parallel, 1 to 8 virtual stages, every schedule. Layers that do not divide
    over the stages are split as evenly as they can be, without virtual stages, each such pipeline in a space
    of its own. KV heads are copied where ranks outnumber them.

    ``fixed`` pins fields of the plan to single values; those that are neither pinned nor tried are as in
    ``Plan()``. Refused: a model or cluster of another type, a cluster of arrays, a batch that is no whole
    number, and what ``checked_fields`` refuses.
    """
    check_nouns(model=model, cluster=cluster)
    without_arrays("a search", cluster=cluster)
    batch, fixed = whole(global_batch, "global_batch of a plan"), checked_fields(fixed)
    cuts = _cuts(model, cluster, batch, fixed)
    choices = {name: np.array([fixed[name]] if name in fixed else values) for name, values in CHOICES.items()}
    others = {name: value for name, value in fixed.items() if name not in (*SEARCHED, "accumulation")}
    for depths, layers, pairs in _pipelines(model, sorted(set(cuts["pp"].tolist())), fixed):
        here = np.isin(cuts["pp"], depths)
        v, schedule = zip(*pairs, strict=True)
        yield Space(
            model,
            cluster,
            {name: values[here] for name, values in cuts.items()},
            {"v": np.array(v), "schedule": np.array(schedule)},
            choices,
            {**others, "global_batch": batch, "stage_layers": layers},
            frozenset(fixed),
        )


def checked_fields(fixed: dict | None) -> dict:
    """Fields of a plan and the values to pin them to. Refused: those that no plan has, and arrays."""
    fixed = {} if fixed is None else fixed
    noun(fixed, dict, "what is fixed")
    for name in fixed:
        if name == "global_batch":
            raise InputRefused("the global batch is an argument of its own; take it out of what is fixed")
        if name not in _FIELDS:
            raise InputRefused(f"a plan has no {shown(name)} to fix; it has {', '.join(_FIELDS)}")
    plan = Plan(**fixed)
    if not plan.single:
        raise InputRefused("what is fixed holds for all plans; give single values, not arrays")
    return {name: getattr(plan, name) for name in fixed if fixed[name] is not None or name == "stage_layers"}


def _cuts(model, cluster, batch, fixed) -> dict[str, np.ndarray]:
    """Degrees and micro-batches, one array for each; none may be a cut of nothing."""
    gpus, each = cluster.n_gpus, np.array(divisors(cluster.n_gpus))
    tp, cp, pp = (side.ravel() for side in np.meshgrid(each, each, each, indexing="ij"))
    fits = gpus % (tp * cp * pp) == 0
    degrees = np.stack([tp, cp, pp, gpus // (tp * cp * pp)], axis=-1)[fits]
    experts = [fixed["ep"]] if "ep" in fixed else divisors(max(1, model.experts))
    kinds = [CONTEXT.index(fixed["context"])] if "context" in fixed else range(len(CONTEXT))
    rows = [
        (*cut, ep, micro, kind)
        for cut in degrees.tolist()
        if all(fixed.get(name, size) == size for name, size in zip(CUT, cut, strict=False))
        for ep in experts
        for micro in _micro_batches(batch, cut[3], fixed)
        for kind in (kinds if cut[1] > 1 else kinds[:1])
    ]
    if not rows:
        named = [f"{name} = {fixed[name]}" for name in (*CUT, "accumulation") if name in fixed]
        raise InputRefused(
            f"no plan of {counted(cluster.n_gpus, 'GPU')} at a global batch of {batch} has "
            f"{' and '.join(named)}; degrees divide the GPUs, micro-batches a replica's share of the batch"
        )
    cuts = dict(zip(CUT, np.array(rows).T, strict=False))
    cuts["context"] = np.array(CONTEXT)[cuts["context"]]
    # all_to_all hands heads out over the context-parallel ranks as well.
    spread = cuts["tp"] * np.where(cuts["context"] == "all_to_all", cuts["cp"], 1)
    copied = np.full(len(rows), fixed["replicate_kv"]) if "replicate_kv" in fixed else spread > model.kv_heads
    return {**cuts, "replicate_kv": copied}


def _micro_batches(batch: int, dp: int, fixed: dict) -> list[int]:
    """Sequences at a time that a replica's share divides into, as far as they are not pinned."""
    if batch % dp:
        return [] if fixed.keys() & {"micro_batch", "accumulation"} else [1]
    share = batch // dp
    return [
        size
        for size in divisors(share)
        if fixed.get("micro_batch", size) == size
        and fixed.get("accumulation", share // size) == share // size
    ]


def _pipelines(model: Transformer, depths: list[int], fixed: dict) -> Iterator[tuple]:
    """Degrees pp, layers of their stages where these are not equal, and pairs of v and schedule."""
    virtual = [fixed["v"]] if "v" in fixed else list(range(1, MOST_VIRTUAL + 1))
    schedules = [fixed["schedule"]] if "schedule" in fixed else list(SCHEDULES)
    pairs, given = list(product(virtual, schedules)), fixed.get("stage_layers")
    if given is not None:
        cuts = [(len(given) // v, v, name) for v, name in pairs if len(given) % v == 0]
        cuts = [(pp, v, name) for pp, v, name in cuts if pp in depths and (v == 1 or pp > 1)]
        if not cuts:
            raise InputRefused(
                f"stage_layers has {counted(len(given), 'number')}, but no pipeline that is left so many "
                "stages; give pp x v numbers"
            )
        yield from (([pp], given, [(v, name)]) for pp, v, name in cuts)
        return
    deep = [pp for pp in depths if pp > 1]
    if len(pairs) <= MOST_VIRTUAL:  # too few to save much by looking at pipelines apart
        yield depths, None, pairs
    else:
        if 1 in depths:
            yield [1], None, [(fixed.get("v", 1), fixed.get("schedule", "1f1b"))]
        if deep:
            yield deep, None, pairs
    if "stage_layers" not in fixed and 1 in virtual:
        for pp in deep:
            if _is_uneven(model, pp):
                yield [pp], even_stages(model.layers, pp), [(1, name) for name in schedules]


def _is_uneven(model: Transformer, pp):
    """Whether stages get different numbers of layers, at least one each."""
    return (model.layers % pp != 0) & (pp <= model.layers)
