"""Strong and weak scaling of one plan, and where efficiency goes: inside nodes, across them, or neither.

Strong: the global batch stays, and each replica gets less of it; it answers "how much sooner at this batch".
Weak: the batch of a replica stays; it answers "does the cluster scale". Both come from the same
``planner.step.step_time``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.step import step_time
from labkit.spec import Cluster, Plan, StepTime, Transformer
from labkit.spec.checks import amount, floats, noun, one_of, shown, whole
from labkit.spec.rules import check_nouns
from labkit.spec.step_time import COMMUNICATION, TERMS
from labkit.units import plain

MODES = ("strong", "weak")
CAUSES = ("compute", "update", "bubble", "inside", "across", "waiting")
_OTHERS = {
    "compute": ("compute", "launch"),
    "update": ("optimizer",),
    "bubble": ("bubble",),
    "waiting": ("data", "idle"),
}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Curve:
    """One scaling curve: arrays along ``cards``, the first of which is the base.

    ``step``: the step on so many cards; ``batch``: its global batch; ``crosses``: for each kind of
    communication whether its groups leave the fast-link domain there. NaN in ``throughput`` and
    ``efficiency`` where the batch has no work for so many cards.
    """

    mode: str
    cards: np.ndarray
    batch: np.ndarray
    step: StepTime
    works: np.ndarray
    crosses: dict[str, np.ndarray]

    @property
    def throughput(self) -> np.ndarray:
        """Tokens a second of all cards together."""
        return np.where(self.works, self.step.tokens_per_s, np.nan)

    @property
    def speedup(self) -> np.ndarray:
        """Throughput over that of the base."""
        return self.throughput / self.throughput[0]

    @property
    def efficiency(self) -> np.ndarray:
        """What a card gets done over what one of the base does: speed-up over the ratio of cards."""
        return self.speedup / (self.cards / self.cards[0])

    @property
    def lost(self) -> dict[str, np.ndarray]:
        """The efficiency lost, by cause; with ``efficiency`` it adds up to 1. See ``efficiency_lost``."""
        base = StepTime(**{name: value[0] for name, value in _parts(self.step, self.cards).items()})
        found = efficiency_lost(base, StepTime(**_parts(self.step, self.cards)), self.crosses)
        return {cause: np.where(self.works, share, np.nan) for cause, share in found.items()}


def scaling_curve(model: Transformer, cluster: Cluster, plan: Plan, cards, mode: str = "weak") -> Curve:
    """The plan on ever more cards: more replicas, everything else as it is.

    ``plan``: that of the base, the first of ``cards`` (rising whole numbers, a list or array); the cluster is
    taken as large as they ask for. ``strong``: the global batch of the base, so each replica accumulates
    fewer micro-batches; beyond one each there is no work. Refused: an array of plans, a number of cards that
    is no multiple of a replica, and a batch that the replicas cannot share evenly in whole micro-batches.
    """
    mode = one_of(MODES, mode, "the mode of scaling", arrays=False).item()
    return _curves(model, cluster, plan, cards, (mode,))[mode]


def scaling_curves(model: Transformer, cluster: Cluster, plan: Plan, cards) -> dict[str, Curve]:
    """Both curves, by their mode, each as ``scaling_curve`` has it, in little more than the time of one."""
    return _curves(model, cluster, plan, cards, MODES)


def _curves(model, cluster, plan, cards, modes: tuple[str, ...]) -> dict[str, Curve]:
    check_nouns(model=model, cluster=cluster, plan=plan)
    if not plan.single:
        raise InputRefused("a scaling curve starts from one plan; give single numbers, not arrays")
    cards = _cards(cards, plan)
    replicas = cards // plan.model_ranks
    each = plan.global_batch / (plan.dp * plan.micro_batch)
    micro_batches = np.stack([_micro_batches(mode, each, plan.dp, replicas) for mode in modes])
    uneven = (micro_batches >= 1) & (micro_batches % 1 != 0)
    if uneven.any():
        place = np.flatnonzero(uneven.any(axis=0))[0]
        raise InputRefused(
            f"a batch of {plan.global_batch} in micro-batches of {plan.micro_batch} cannot be shared evenly "
            f"by {replicas[place]} replicas ({cards[place]} cards); choose another batch"
        )
    # Where there is no work left a single micro-batch stands in, and is masked.
    many = plan.changed(
        dp=np.broadcast_to(replicas, micro_batches.shape),
        accumulation=np.maximum(micro_batches, 1).astype(int),
        micro_batch=plan.micro_batch,
    )
    nodes = -(-int(cards.max()) // cluster.gpus_per_node)
    step = step_time(model, replace(cluster, nodes=max(nodes, cluster.nodes)), many)
    across = crossing(many, cluster.domain)
    return {
        mode: Curve(
            mode,
            cards,
            np.asarray(many.global_batch)[row],
            _row(step, row),
            micro_batches[row] >= 1,
            {name: np.broadcast_to(crosses, micro_batches.shape)[row] for name, crosses in across.items()},
        )
        for row, mode in enumerate(modes)
    }


def _micro_batches(mode: str, each: float, dp: int, replicas: np.ndarray) -> np.ndarray:
    """Micro-batches of a replica: as many as the base has, or what is left of the base's batch."""
    return np.full(len(replicas), each) if mode == "weak" else each * dp / replicas


def _row(step: StepTime, row: int) -> StepTime:
    """One row of a step of many plans."""
    values = {name: getattr(step, name) for name in StepTime.__dataclass_fields__}
    return StepTime(**{name: one[row] if np.ndim(one) else one for name, one in values.items()})


def _cards(cards, plan: Plan) -> np.ndarray:
    given = floats(cards)
    if given.ndim != 1 or not np.all(np.diff(given) > 0):
        raise InputRefused(f"the numbers of cards are {shown(cards)}; give rising whole numbers in a list")
    given = whole(given, "a number of cards", arrays=True)
    if given[0] != plan.ranks:
        raise InputRefused(f"the base is {given[0]} cards and its plan takes {plan.ranks}; start from those")
    if np.any(given % plan.model_ranks):
        wrong = int(given[given % plan.model_ranks > 0][0])
        raise InputRefused(f"{wrong} cards are no whole replicas of {plan.model_ranks}; add whole replicas")
    return given


def crossing(plan: Plan, domain: int) -> dict[str, np.ndarray]:
    """For each kind of communication whether some group of it leaves its fast-link domain.

    Gradients are reduced over data and context parallel together, so either of them takes ``dp`` across.

    >>> {name: bool(across) for name, across in crossing(Plan(tp=8, pp=2, dp=4), 8).items()}
    {'tp': False, 'cp': False, 'ep': False, 'pp': True, 'dp': True}
    """
    noun(plan, Plan, "the plan")
    found = {name: np.asarray(plan.crosses(name, domain)) for name in COMMUNICATION}
    found["dp"] = found["dp"] | found["cp"]
    return found


def efficiency_lost(base: StepTime, step: StepTime, crosses: Mapping) -> dict:
    """What of the efficiency against a base is lost to which cause, predicted or measured; floats or arrays.

    A term costs seconds x cards / tokens; its growth over the base's, as a share of the step's, is what it
    loses, and all of them add up to 1 - efficiency. A negative one is gained. ``compute`` counts launches,
    and what computing beside hidden collectives takes longer; ``update`` is the optimizer. Communication is
    ``across`` where a group of its kind leaves the fast-link domain in the step (``crosses``, see
    ``crossing``), ``inside`` elsewhere: a collective is one, and its slowest link sets its pace, so it is not
    cut in two. Refused: steps without tokens or cards.

    >>> one = StepTime(compute=0.9, tp=0.1, tokens=1e6, gpus=8)
    >>> two = StepTime(compute=0.9, tp=0.1, dp=0.25, tokens=2e6, gpus=16)
    >>> lost = efficiency_lost(one, two, {"dp": True})
    >>> {cause: round(share, 3) for cause, share in lost.items() if share}
    {'across': 0.2}
    """
    noun(base, StepTime, "the base")
    noun(step, StepTime, "the step")
    if not isinstance(crosses, Mapping):
        raise InputRefused(f"what crosses is {shown(crosses)}; give a dict, as crossing(plan, 8) returns")
    for what, one in (("the base", base), ("the step", step)):
        if one.tokens is None or one.gpus is None or not np.all(np.asarray(one.tokens) > 0):
            raise InputRefused(f"{what} has no tokens or gpus; give both, to compare work by work")
    before, after = _costs(base), _costs(step)
    all_of_it = sum(after.values())
    grown = {name: (after[name] - before[name]) / all_of_it for name in TERMS}
    found = {cause: sum(grown[name] for name in names) for cause, names in _OTHERS.items()}
    far = {name: np.asarray(crosses.get(name, False), bool) for name in COMMUNICATION}
    found["inside"] = sum(np.where(far[name], 0.0, grown[name]) for name in COMMUNICATION)
    found["across"] = sum(np.where(far[name], grown[name], 0.0) for name in COMMUNICATION)
    return {cause: plain(found[cause]) for cause in CAUSES}


def _costs(step: StepTime) -> dict[str, np.ndarray]:
    each = np.asarray(step.gpus, float) / np.asarray(step.tokens, float)
    return {name: np.asarray(getattr(step, name), float) * each for name in TERMS}


def _parts(step: StepTime, cards: np.ndarray) -> dict[str, np.ndarray]:
    """The terms of a step, its tokens and cards, each as long as ``cards``."""
    given = {name: getattr(step, name) for name in (*TERMS, "tokens", "gpus")}
    return {name: np.broadcast_to(np.asarray(value, float), cards.shape) for name, value in given.items()}


@dataclass(frozen=True, slots=True)
class Against:
    """A measured point beside the model: tokens/s, and the efficiency of each against its own base."""

    cards: int
    measured: float
    modelled: float
    measured_efficiency: float
    modelled_efficiency: float

    @property
    def unexplained(self) -> float:
        """Efficiency that the model says should be there, and is not (below 0: better than modelled)."""
        return self.modelled_efficiency - self.measured_efficiency


def against(curve: Curve, measured: Mapping[int, float]) -> list[Against]:
    """Measured throughput, as cards -> tokens/s, beside a curve of the same mode.

    The base of both efficiencies is the smallest number of cards measured, so that a model that is wrong by
    the same factor everywhere still tells how the job should scale. Refused: fewer than two points, and
    numbers of cards that the curve does not have or has no work for.
    """
    noun(curve, Curve, "the curve")
    if not isinstance(measured, Mapping) or len(measured) < 2:
        raise InputRefused("a measured curve has two points at least; give {cards: tokens a second, ...}")
    modelled = dict(zip(curve.cards.tolist(), curve.throughput.tolist(), strict=True))
    points = {}
    for cards, speed in measured.items():
        if not isinstance(cards, int | np.integer) or not modelled.get(int(cards), np.nan) > 0:
            raise InputRefused(
                f"{shown(cards)} cards were measured and are not on the curve; it has "
                f"{', '.join(str(n) for n, v in modelled.items() if v > 0)}"
            )
        points[int(cards)] = float(amount(speed, f"the throughput of {cards} cards", arrays=False))
    base = min(points)
    return [
        Against(
            cards,
            points[cards],
            modelled[cards],
            (points[cards] / cards) / (points[base] / base),
            (modelled[cards] / cards) / (modelled[base] / base),
        )
        for cards in sorted(points)
    ]
