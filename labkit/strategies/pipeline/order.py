"""Orders: what each rank of a pipeline does, one operation after the other.

The model is cut into **stages**, 0 at the input; each **rank** has one of them, or v when its share is cut
into v chunks. An order holds, for each rank, its operations ``(kind, micro-batch, stage)``. Which order is
used is the schedule; which rank has which stage, and when everything happens, follow from the order.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import whole
from labkit.strategies.pipeline.times import LONGEST
from labkit.strategies.timeline import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

Operation = tuple[str, int, int]
Order = list[list[Operation]]

WHOLE = (FORWARD, BACKWARD)
SPLIT = (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)


@dataclass(frozen=True)
class Coded:
    """An order as numbers: the code of an operation is (kind x stages + stage) x m + micro-batch.

    ``kinds``: the kinds in the order in which they are counted; ``rank_of``: the rank of each stage;
    ``codes``: the operations of each rank.
    """

    kinds: tuple[str, ...]
    m: int
    rank_of: list[int]
    codes: list[list[int]]

    @property
    def p(self) -> int:
        """Ranks."""
        return len(self.codes)

    @property
    def stages(self) -> int:
        """Stages of the model, v for each rank."""
        return len(self.rank_of)

    def name(self, code: int) -> str:
        """An operation in words."""
        group, k = divmod(code, self.m)
        kind, stage = divmod(group, self.stages)
        return f"{self.kinds[kind]} {k} of stage {stage}"


def coded(order: Order | Coded) -> Coded:
    """The order as numbers, once it is complete; what is numbers already is given back.

    Whoever asks several things of one order does this once, since it takes longer than any of the answers.

    Refused: an order that is empty or of another form, knows other kinds of operations, mixes whole and split
    backwards, gives one stage to two ranks, ranks of different numbers of stages, or misses or repeats an
    operation.
    """
    if isinstance(order, Coded):
        return order
    columns = _columns(order)
    found = set().union(*(kind for kind, _, _ in columns))
    kinds = SPLIT if found & {INPUT_GRADIENT, WEIGHT_GRADIENT} else WHOLE
    if found - set(kinds):
        raise InputRefused(
            f"an order has the operations {', '.join(WHOLE)} or {', '.join(SPLIT)}; this one has "
            f"{', '.join(sorted(found))}: use one set throughout"
        )
    rank_of = _ranks_of_stages([set(stage) for _, _, stage in columns])
    m = 1 + max(columns[0][1])
    for rank, (_, k, _) in enumerate(columns):
        if min(k) < 0 or max(k) >= m:
            raise InputRefused(
                f"rank {rank} runs micro-batch {min(k) if min(k) < 0 else max(k)}, rank 0 runs 0 to {m - 1}; "
                "let all ranks run the same micro-batches, counted from 0"
            )
    base = {kind: number * len(rank_of) * m for number, kind in enumerate(kinds)}
    codes = [[base[kind] + stage * m + k for kind, k, stage in rank] for rank in order]
    result = Coded(kinds, m, rank_of, codes)
    _check_each_once(result)
    return result


def _columns(order: Order) -> list[tuple]:
    """Kinds, micro-batches and stages of each rank's operations."""
    try:
        columns = [tuple(zip(*rank, strict=True)) for rank in order]
        numbers = [number for _, k, stage in columns for number in {*k, *stage}]
    except (TypeError, ValueError):
        columns, numbers = [], []
    if not numbers or not all(isinstance(number, int | np.integer) for number in numbers):
        raise InputRefused(
            "the order is empty for some rank or of another form; give each rank a list of operations "
            "(kind, micro-batch, stage)"
        )
    return columns


def _ranks_of_stages(owned: list[set[int]]) -> list[int]:
    """The rank that has each stage, from the stages that each rank has."""
    owners: dict[int, int] = {}
    for rank, stages in enumerate(owned):
        for stage in stages:
            if owners.setdefault(stage, rank) != rank:
                raise InputRefused(
                    f"stage {stage} is on rank {owners[stage]} and on rank {rank}; give it to one of them"
                )
    if sorted(owners) != list(range(len(owners))) or len({len(stages) for stages in owned}) > 1:
        raise InputRefused(
            f"the stages {sorted(owners)} do not lie evenly on {len(owned)} ranks; "
            "number them from 0 and give every rank as many"
        )
    return [owners[stage] for stage in range(len(owners))]


def _check_each_once(result: Coded) -> None:
    """Every stage runs every micro-batch once in each kind."""
    expected = len(result.kinds) * result.stages * result.m
    times = np.bincount(np.concatenate([np.array(rank) for rank in result.codes]), minlength=expected)
    wrong = np.flatnonzero(times != 1)
    if wrong.size:
        code = int(wrong[0])
        how = "never" if times[code] == 0 else f"{times[code]} times"
        rank = result.rank_of[code // result.m % result.stages]
        raise InputRefused(
            f"rank {rank} runs {result.name(code)} {how}; every stage runs each of the {result.m} "
            "micro-batches once in each kind: correct the order"
        )


def check_counts(p: int, m: int, v: int = 1) -> tuple[int, int, int]:
    """Counts of ranks, micro-batches and chunks as integers; refused when not whole, below 1 or too many."""
    p, m = whole(p, "the number of pipeline ranks"), whole(m, "the number of micro-batches")
    v = whole(v, "the number of chunks per rank")
    if p * m * v > LONGEST:
        raise InputRefused(
            f"{p} ranks x {m} micro-batches x {v} chunks make an order of {p * m * v:,} forwards; "
            f"use up to {LONGEST:,}"
        )
    return p, m, v
