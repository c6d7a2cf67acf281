"""Plan: how one training job is cut over its ranks, and what each rank does in a step.

A plan says what is wanted; whether it works for a model on a cluster is what ``labkit.spec.rules`` answers.
Every number may be an array: then one Plan holds many plans, and everything computed from it broadcasts.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.transformer import RECOMPUTE
from labkit.units import plain

DIMENSIONS = ("tp", "cp", "dp", "pp")
SCHEDULES = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "zb-1p", "zb-2p")
CONTEXT = ("ring", "all_to_all")


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

    ``zero``: stage of sharded data parallel, 0 to 3. ``recompute``: none, selective or full.
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
    recompute: str = "none"
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    stage_layers: tuple[int, ...] | None = None
    context: str = "ring"
    balanced: bool = True
    replicate_kv: bool = False
    vocabulary_multiple: int = 128
    order: str = "tp-cp-dp-pp"

    def __post_init__(self):
        for name in ("tp", "pp", "dp", "cp", "ep", "v"):
            _whole(name, getattr(self, name), 1)
        _whole("vocabulary_multiple", self.vocabulary_multiple, 0)
        if self.etp is not None:
            _whole("etp", self.etp, 1)
        for name in ("micro_batch", "accumulation", "global_batch"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        if not np.all(np.isin(self.zero, (0, 1, 2, 3))):
            raise InputRefused(f"there is no sharding stage {self.zero}; use 0 (plain data parallel) to 3")
        for name, allowed in (("recompute", RECOMPUTE), ("schedule", SCHEDULES), ("context", CONTEXT)):
            if not np.all(np.isin(getattr(self, name), allowed)):
                raise InputRefused(f"there is no {name} {getattr(self, name)!r}; use {', '.join(allowed)}")
        if not isinstance(self.order, str) or sorted(self.order.split("-")) != sorted(DIMENSIONS):
            raise InputRefused(
                f"the rank order {self.order!r} must name each of {', '.join(DIMENSIONS)} once, joined by "
                "hyphens, as in tp-cp-dp-pp"
            )
        if self.stage_layers is not None:
            object.__setattr__(self, "stage_layers", tuple(self.stage_layers))
            for layers in self.stage_layers:
                _whole("stage_layers", layers, 0)
        self._derive_batch()

    def _derive_batch(self):
        micro, steps, batch = self.micro_batch, self.accumulation, self.global_batch
        replicas = np.asarray(self.dp)
        if batch is None:
            micro, steps = 1 if micro is None else micro, 1 if steps is None else steps
            batch = np.asarray(micro) * steps * replicas
        elif micro is None:
            steps = 1 if steps is None else steps
            micro = np.asarray(batch) / (replicas * steps)
        elif steps is None:
            steps = np.asarray(batch) / (replicas * micro)
        for name, value in (("micro_batch", micro), ("accumulation", steps), ("global_batch", batch)):
            object.__setattr__(self, name, _tidy(value))

    @property
    def ranks(self):
        """GPUs that the plan needs."""
        return plain(np.asarray(self.tp) * self.cp * self.pp * self.dp)

    @property
    def model_ranks(self):
        """GPUs that hold one replica of the model: tp x cp x pp."""
        return plain(np.asarray(self.tp) * self.cp * self.pp)

    @property
    def expert_tp(self):
        """Tensor-parallel degree inside an expert: ``etp``, or ``tp`` where it is not given."""
        return self.tp if self.etp is None else self.etp

    def stride(self, dimension: str):
        """How far apart two neighbours of a dimension's group sit in rank numbers.

        Expert groups run through the ranks of a stage in order, ``expert_tp`` apart.

        >>> plan = Plan(tp=4, pp=4, dp=2)
        >>> plan.stride("dp"), plan.stride("pp")
        (4, 8)
        """
        if dimension == "ep":
            return plain(np.asarray(self.expert_tp))
        names = self.order.split("-")
        if dimension not in names:
            raise InputRefused(f"there is no dimension {dimension!r}; use {', '.join((*names, 'ep'))}")
        stride = np.asarray(1)
        for name in names[: names.index(dimension)]:
            stride = stride * getattr(self, name)
        return plain(stride)

    def degree(self, dimension: str):
        """Ranks of one group of a dimension: tp, cp, dp, pp or ep."""
        if dimension not in (*DIMENSIONS, "ep"):
            raise InputRefused(f"there is no dimension {dimension!r}; use {', '.join((*DIMENSIONS, 'ep'))}")
        return getattr(self, dimension)

    def crosses(self, dimension: str, domain: int):
        """Whether some group of the dimension leaves its fast-link domain of ``domain`` neighbouring ranks.

        The groups of a dimension fill blocks of stride x degree ranks; they all stay inside where whole
        blocks fit a domain.
        """
        block = np.asarray(self.stride(dimension)) * self.degree(dimension)
        fits = (np.asarray(domain) % block == 0) | (np.asarray(self.ranks) <= domain)
        return plain((np.asarray(self.degree(dimension)) > 1) & ~fits)

    def padded_vocabulary(self, vocabulary):
        """Rows of the embedding with padding, so that every tensor-parallel rank holds as many.

        Without a multiple the vocabulary itself, whether it divides or not.

        >>> Plan(tp=8, vocabulary_multiple=64).padded_vocabulary(128256)
        128512
        """
        piece = np.maximum(np.asarray(self.vocabulary_multiple), 1) * self.tp
        padded = -(-np.asarray(vocabulary) // piece) * piece
        return plain(np.where(np.asarray(self.vocabulary_multiple) == 0, vocabulary, padded))


def _whole(name: str, value, least: int) -> None:
    """Refuses what is not a whole number, or an array of them, from ``least`` up."""
    array = np.asarray(value)
    good = array.dtype.kind in "iuf" and np.all(np.isfinite(array) & (array >= least) & (array % 1 == 0))
    if not good:
        raise InputRefused(f"{name} of a plan is {value!r}; give a whole number from {least} up")


def _tidy(value):
    """A single whole number as an int, anything else as it is."""
    value = plain(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
