"""Search: every plan of a model on a cluster, timed by the functions that time a single one, as a table."""

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.feasible import Census, capacity_of, feasible
from labkit.planner.plan_space import CHOICES, SEARCHED, Space
from labkit.planner.step import step_time
from labkit.spec import Cluster, Plan, StepTime, Transformer
from labkit.spec.plan import CONTEXT, SCHEDULES
from labkit.spec.rule import counted
from labkit.spec.rules_shape import even_stages
from labkit.spec.step_time import TERMS
from labkit.spec.transformer import RECOMPUTE
from labkit.units import plain

LOSSES = tuple(name for name in TERMS if name != "compute")
WORDS = {"recompute": RECOMPUTE, "context": CONTEXT, "schedule": SCHEDULES, "limit": LOSSES}
FIELDS = ("tp", "cp", "pp", "dp", "ep", "v", "schedule", "micro_batch", "accumulation", "zero", "recompute")
FIELDS += ("sequence_parallel", "context", "replicate_kv")
FIGURES = ("seconds", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "exposed", "bubble", "limit", "memory")
_NARROW = {"v": np.int8, "zero": np.int8, "sequence_parallel": bool, "replicate_kv": bool}


def search(
    model: Transformer,
    cluster: Cluster,
    global_batch: int,
    fixed: dict | None = None,
    max_memory: float | None = None,
):
    """All plans that are possible and fit, best first: a pandas table with a row for each.

    Tried is what ``plan_spaces`` lists, on all GPUs; ``fixed`` pins fields of ``Plan``. A plan fits if its
    fullest rank takes no more than the card has, and than ``max_memory`` bytes. Columns: the ``FIELDS`` of
    the plan; ``seconds`` of a step, ``tokens_per_s`` of the job and per GPU, ``mfu``; ``exposed`` and
    ``bubble``, seconds of the step; ``limit``, the largest term beside compute; ``memory``, bytes on the
    fullest rank. Of plans that take equally long the one with less memory comes first.

    A table and its rows carry along in ``.attrs``: ``model``, ``cluster``, ``global_batch``, ``fixed``;
    ``tried``, the plans in canonical form; ``refused``, how many of them for which reason: each for the first
    rule that it breaks, in the order of ``RULES``, or for its ``memory``. Refused: what ``plan_spaces``
    refuses, a ``max_memory`` that is not above 0, and where rules leave no plan at all.

    >>> from labkit.spec import Gpu, Link
    >>> card = Gpu("80 GB card", 80e9, {"bf16": 312e12}, 0.5, 2e12)
    >>> node = Cluster("node", card, 1, 8, Link(2e-6, 235e9), Link(5e-6, 25e9), 8)
    >>> gpt = Transformer("1.3B", 24, 2048, 16, 50257, 2048)
    >>> table = search(gpt, node, 64, {"micro_batch": 4})
    >>> len(table) == table.attrs["tried"] - sum(table.attrs["refused"].values())
    True
    >>> bool(step_time(gpt, node, plan_of(table.iloc[0])).total == table["seconds"].iloc[0])
    True
    """
    census, capacity = Census(), capacity_of(cluster, max_memory)
    found = [_columns(*piece) for piece in feasible(model, cluster, global_batch, fixed, capacity, census)]
    if not census.possible:
        reasons = ", ".join(f"{name} ({number:,})" for name, number in census.refused.items())
        raise InputRefused(
            f"{model.name} on {counted(cluster.n_gpus, 'GPU')} at a global batch of {global_batch} has no "
            f"plan that the rules allow with what is fixed; they refuse all {census.tried:,}: {reasons}"
        )
    table = _table(found, global_batch)
    table.attrs |= {"model": model, "cluster": cluster, "global_batch": global_batch}
    table.attrs |= {"fixed": dict(fixed or {}), "tried": census.tried, "refused": census.refused}
    return table


def plan_of(row) -> Plan:
    """The plan of one row of a table that ``search`` made, as ``table.iloc[0]``. Refused: anything else."""
    known = carried(row, *SEARCHED)
    if np.ndim(row["tp"]):
        raise InputRefused("a plan is that of one row; give table.iloc[0], not the table")
    fields = {name: plain(row[name]) for name in SEARCHED}
    others = {name: value for name, value in known["fixed"].items() if name not in FIELDS}
    if known["model"].layers % (fields["pp"] * fields["v"]):
        others.setdefault("stage_layers", even_stages(known["model"].layers, fields["pp"]))
    return Plan(**fields, **others, global_batch=known["global_batch"])


def carried(table, *columns: str) -> dict:
    """What a table of ``search``, or a row of it, carries along; ``columns``: those that it must have.

    Refused: anything else, as the tuples of ``itertuples``, which carry nothing, and a lack of columns.
    """
    known = getattr(table, "attrs", None)
    if not isinstance(known, dict) or "refused" not in known:
        raise InputRefused(
            "this is no table of search(), and no row of one; give the table, or table.iloc[0]"
        )
    lacking = [name for name in columns if name not in table]
    if lacking:
        raise InputRefused(
            f"the table of search() has no column {lacking[0]} any more; give it with all its columns"
        )
    return known


def _columns(space: Space, runs: np.ndarray, peak: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of the plans of a space that run; of words their places in the lists of all."""
    step = step_time(space.model, space.cluster, space.plan)
    total = np.asarray(step.total)
    figures = (total, step.tokens / total, step.tokens_per_s_per_gpu, step.mfu, step.exposed, step.bubble)
    chosen = np.flatnonzero(runs)
    at = np.unravel_index(chosen, space.shape)
    columns = {name: _codes(name, values)[at[0]] for name, values in space.cuts.items()}
    for axis, name in enumerate(CHOICES, 1):
        columns[name] = _codes(name, space.choices[name])[at[axis]]
    columns |= {name: _codes(name, values)[at[-1]] for name, values in space.pipelines.items()}
    for name, values in zip(FIGURES, (*figures, _limit(step), peak), strict=True):
        columns[name] = np.broadcast_to(values, space.shape).reshape(-1)[chosen]
    return columns


def _codes(name: str, values: np.ndarray) -> np.ndarray:
    """Values as narrow numbers; of words their places in the list of all."""
    if name in WORDS:
        return np.array([WORDS[name].index(word) for word in values.tolist()], np.int8)
    return values.astype(_NARROW.get(name, np.int32))


def _limit(step: StepTime) -> np.ndarray:
    """The place in ``LOSSES`` of the largest of these terms."""
    most, place = np.asarray(0.0), np.asarray(0, np.int8)
    for number, name in enumerate(LOSSES):
        seconds = np.asarray(getattr(step, name))
        place = np.where(seconds > most, np.int8(number), place)
        most = np.maximum(most, seconds)
    return place


def _table(found: list[dict], global_batch: int):
    """One table of all columns, best first."""
    import pandas as pd

    nothing = [np.empty(0, np.int32)]
    columns = {
        name: np.concatenate([one[name] for one in found] or nothing) for name in (*SEARCHED, *FIGURES)
    }
    columns["accumulation"] = global_batch // (columns["dp"] * columns["micro_batch"])
    order = _ranking(columns["seconds"], columns["memory"])
    ranked = {name: columns.pop(name)[order] for name in (*FIELDS, *FIGURES)}
    for name, all_words in WORDS.items():
        ranked[name] = pd.Categorical.from_codes(ranked[name], categories=list(all_words))
    return pd.DataFrame(ranked, copy=False)


def _ranking(seconds: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Places by seconds, then by memory, then as they come; only those that tie are sorted twice."""
    order = np.argsort(seconds)
    ranked = seconds[order]
    same = ranked[1:] == ranked[:-1]
    tied = np.zeros(order.shape, bool)
    tied[1:] |= same
    tied[:-1] |= same
    among = order[tied]
    order[tied] = among[np.lexsort((among, memory[among], seconds[among]))]
    return order
