"""Plan: how one training job is cut over its ranks, and what each rank does in a step.

A plan says what is wanted; whether it works for a model on a cluster is what ``labkit.spec.rules`` answers.
Every number may be an array: then one Plan holds many plans, and everything computed from it broadcasts.
"""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import LARGEST, amount, broadcasting, one_of, shown, whole
from labkit.spec.transformer import RECOMPUTE
from labkit.units import plain

DIMENSIONS = ("tp", "cp", "dp", "pp")
SCHEDULES = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "zb-1p", "zb-2p")
CONTEXT = ("ring", "all_to_all")
_DEGREES = ("tp", "cp", "pp", "dp", "ep", "v")
_BATCH = ("micro_batch", "global_batch", "accumulation")
_CHOICES = {
    "zero": (0, 1, 2, 3),
    "recompute": RECOMPUTE,
    "fused_attention": (False, True),
    "sequence_parallel": (False, True),
    "schedule": SCHEDULES,
    "context": CONTEXT,
    "balanced": (False, True),
    "replicate_kv": (False, True),
}
_ARRAYS = (
    *_DEGREES,
    *_BATCH,
    *_CHOICES,
    "etp",
    "shard_ranks",
    "prefetch",
    "recompute_every",
    "vocabulary_multiple",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Degrees of parallelism, batch and options of one job; ranks = tp x cp x pp x dp.

    ``tp`` tensor, ``cp`` context, ``pp`` pipeline, ``dp`` data parallel degree. ``ep`` expert parallel is
    carved out of the ranks of a stage and is no further factor; ``etp`` is tensor parallel inside an expert
    (as ``tp`` unless given). ``v`` virtual stages a rank: above 1, 1F1B is interleaved.

    Of ``micro_batch`` (sequences at a time), ``accumulation`` (micro-batches a replica works through before
    the optimizer runs, the m of a pipeline) and ``global_batch`` (sequences a step, all replicas) any two
    give the third; of one alone, the global batch in one piece per replica, or one of the others with 1 for
    the rest. A third that does not come out whole is kept as it is, for the rules to point at.

    ``zero``: stage of sharded data parallel, 0 to 3, over all dp x cp ranks, or, hybrid, over ``shard_ranks``
    of them with replicas across; ``prefetch``: layers whose parameters stage 3 gathers ahead. ``recompute``:
    none, selective (the attention core) or full, which keeps the input of every ``recompute_every``-th layer.
    ``fused_attention``: attention scores are never stored.
    ``sequence_parallel``: norm and dropout split over the tensor-parallel ranks. ``schedule``: of the
    pipeline. ``stage_layers``: layers of each stage (of each virtual stage with ``v``), where they are not
    equal. ``context``: ring attention or all_to_all; ``balanced``: each rank takes an early and a late piece
    of the sequence, because causal attention has more to do late. ``replicate_kv``: ranks beyond the kv heads
    hold copies. ``vocabulary_multiple``: rows a rank holds of the embedding are a multiple of it (0: no
    padding). ``order``: which dimension's neighbours sit next to each other, first the closest.

    >>> Plan(tp=8, pp=4, dp=2, global_batch=512, micro_batch=4).accumulation
    64
    >>> Plan(dp=7, global_batch=256, micro_batch=2).accumulation
    18.285714285714285
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    v: int = 1
    micro_batch: int | None = None
    accumulation: int | None = None
    global_batch: int | None = None
    zero: int = 0
    shard_ranks: int | None = None
    prefetch: int = 1
    recompute: str = "none"
    recompute_every: int = 1
    fused_attention: bool = True
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    stage_layers: tuple[int, ...] | None = None
    context: str = "ring"
    balanced: bool = True
    replicate_kv: bool = False
    vocabulary_multiple: int = 128
    order: str = "tp-cp-dp-pp"

    def __post_init__(self):
        for name in _DEGREES:
            self._whole(name, 1)
        for name, least in (("vocabulary_multiple", 0), ("prefetch", 0), ("recompute_every", 1)):
            self._whole(name, least)
        for name in ("etp", "shard_ranks", *_BATCH):
            if getattr(self, name) is not None:
                self._whole(name, 1)
        for name, allowed in _CHOICES.items():
            one_of(allowed, getattr(self, name), f"{name} of a plan")
        if not isinstance(self.order, str) or sorted(self.order.split("-")) != sorted(DIMENSIONS):
            raise InputRefused(
                f"the rank order is {shown(self.order)}; name each of {', '.join(DIMENSIONS)} once, joined "
                "by hyphens, as in tp-cp-dp-pp"
            )
        if self.stage_layers is not None:
            if not isinstance(self.stage_layers, tuple | list):
                raise InputRefused(
                    f"stage_layers of a plan is {shown(self.stage_layers)}; give a tuple with the layers of "
                    "each stage, as (7, 8, 8, 7)"
                )
            layers = tuple(whole(one, "a number in stage_layers of a plan", 0) for one in self.stage_layers)
            object.__setattr__(self, "stage_layers", layers)
        broadcasting({name: np.shape(getattr(self, name)) for name in _ARRAYS}, "one plan")
        self._derive_batch()
        self._check_products()

    def _whole(self, name: str, least: int) -> None:
        value = whole(getattr(self, name), f"{name} of a plan", least, arrays=True)
        object.__setattr__(self, name, value)

    def _derive_batch(self):
        micro, steps, batch = self.micro_batch, self.accumulation, self.global_batch
        if batch is None:
            micro, steps = 1 if micro is None else micro, 1 if steps is None else steps
            batch = micro * steps * self.dp
        elif micro is None:
            steps = 1 if steps is None else steps
            micro = batch / (self.dp * steps)
        elif steps is None:
            steps = batch / (self.dp * micro)
        for name, value in (("micro_batch", micro), ("accumulation", steps), ("global_batch", batch)):
            object.__setattr__(self, name, _tidy(value))

    def _check_products(self):
        """Products of the plan's numbers stay below what an array of whole numbers can hold."""
        for what, names in (
            ("ranks, tp x cp x pp x dp", ("tp", "cp", "pp", "dp")),
            ("virtual stages, pp x v", ("pp", "v")),
            ("expert ranks, ep x etp", ("ep", "expert_tp")),
            ("sequences, the global batch", ("global_batch",)),
        ):
            product = np.asarray(1.0)
            for name in names:
                product = product * np.asarray(getattr(self, name), float)
            if np.any(product > LARGEST):
                raise InputRefused(f"a plan has at most {LARGEST:,} {what}; give smaller numbers")

    def changed(self, **changes) -> "Plan":
        """This plan with other values, its batch derived anew.

        Of the three batch numbers those named here count, then the micro-batch, then the global batch, and
        the rest follows.

        >>> plan = Plan(dp=7, global_batch=256, micro_batch=2)
        >>> plan.changed(dp=8).accumulation, plan.changed(accumulation=18).global_batch
        (16, 252)
        """
        unknown = sorted(set(changes) - set(self.__slots__))
        if unknown:
            raise InputRefused(f"a plan has no {unknown[0]!r}; it has {', '.join(self.__slots__)}")
        batch = {name: changes[name] for name in _BATCH if name in changes}
        for name in _BATCH:
            if len(batch) < 2 and name not in batch and np.all(getattr(self, name) % 1 == 0):
                batch[name] = getattr(self, name)
        return replace(self, **{**dict.fromkeys(_BATCH), **changes, **batch})

    def with_axis(self) -> "Plan":
        """This plan with one more axis, of length 1, behind those of its arrays: for stages to stand along.

        >>> Plan(pp=np.array([2, 4]), accumulation=8).with_axis().pp.shape
        (2, 1)
        """
        wider = copy(self)  # not made anew: a batch that does not come out whole is kept as it is
        for name in _ARRAYS:
            value = getattr(self, name)
            if np.ndim(value):
                object.__setattr__(wider, name, value[..., None])
        return wider

    @property
    def single(self) -> bool:
        """Whether this is one plan and not an array of them."""
        return all(np.ndim(getattr(self, name)) == 0 for name in _ARRAYS)

    @property
    def ranks(self):
        """GPUs that the plan needs."""
        return self.model_ranks * self.dp

    @property
    def model_ranks(self):
        """GPUs that hold one replica of the model: tp x cp x pp."""
        return self.tp * self.cp * self.pp

    @property
    def stage_ranks(self):
        """GPUs that hold one pipeline stage, in all replicas: tp x cp x dp. Experts are spread over them."""
        return self.tp * self.cp * self.dp

    @property
    def expert_tp(self):
        """Tensor-parallel degree inside an expert: ``etp``, or ``tp`` where it is not given."""
        return self.tp if self.etp is None else self.etp

    def degree(self, dimension: str):
        """Ranks of one group of a dimension: tp, cp, dp, pp or ep."""
        if not isinstance(dimension, str) or dimension not in (*DIMENSIONS, "ep"):
            raise InputRefused(
                f"there is no dimension {shown(dimension)}; use {', '.join((*DIMENSIONS, 'ep'))}"
            )
        return getattr(self, dimension)

    def stride(self, dimension: str):
        """How far apart in rank numbers the first two members of a dimension's group are.

        Expert groups run through the ranks of a stage in order, ``expert_tp`` apart.

        >>> plan = Plan(tp=4, pp=4, dp=2)
        >>> plan.stride("dp"), plan.stride("pp")
        (4, 8)
        """
        self.degree(dimension)
        if dimension != "ep":
            return self._closer(dimension)
        closer = self._closer("pp")  # a stage has so many neighbouring ranks, then those of others follow
        return self.expert_tp % closer + self.expert_tp // closer * closer * self.pp

    def _closer(self, dimension: str):
        """Product of the degrees before the dimension in the order."""
        names = self.order.split("-")
        product = 1
        for name in names[: names.index(dimension)]:
            product = product * getattr(self, name)
        return product

    def crosses(self, dimension: str, domain: int):
        """Whether some group of the dimension leaves its fast-link domain of ``domain`` neighbouring ranks.

        The groups of a dimension fill blocks of neighbouring ranks; they all stay inside where whole blocks
        fit a domain.
        """
        domain = whole(domain, "a fast-link domain", arrays=True)
        block = self.stride(dimension) * self.degree(dimension)
        if dimension == "ep":
            closer, experts = self._closer("pp"), self.ep * self.expert_tp
            alone = (np.asarray(self.pp) == 1) | (closer % experts == 0)  # no rank of another stage between
            block = np.where(alone, experts, np.lcm(closer, experts) * self.pp)
        fits = (domain % block == 0) | (self.ranks <= domain)
        return plain((np.asarray(self.degree(dimension)) > 1) & ~np.asarray(fits))

    def positions(self, sequence):
        """Positions of one micro-batch that a rank works on: context parallel cuts each ``sequence``.

        >>> Plan(cp=4, micro_batch=2).positions(8192)
        4096.0
        """
        return plain(
            np.asarray(self.micro_batch) * amount(sequence, "a sequence") / np.asarray(self.cp, float)
        )

    def padded_vocabulary(self, vocabulary):
        """Rows of the embedding with padding, so that every tensor-parallel rank holds as many.

        Without a multiple the vocabulary itself, whether it divides or not.

        >>> Plan(tp=8, vocabulary_multiple=64).padded_vocabulary(128256)
        128512
        """
        vocabulary = whole(vocabulary, "a vocabulary", arrays=True)
        piece = np.maximum(np.asarray(self.vocabulary_multiple), 1) * self.tp
        padded = -(-np.asarray(vocabulary) // piece) * piece
        return plain(np.where(np.asarray(self.vocabulary_multiple) == 0, vocabulary, padded))


def _tidy(value):
    """A single whole number as an int, anything else as it is."""
    value = plain(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
