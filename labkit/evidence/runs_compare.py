"""Two runs side by side, and the earlier run that a new case is most like."""

from dataclasses import dataclass, fields, is_dataclass, replace
from math import log2, sqrt

from labkit.evidence.logged_run import LoggedRun
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.rules import check_nouns
from labkit.spec.step_time import TERMS

_NUMBERS = ("tp", "cp", "pp", "dp", "ep", "v", "micro_batch", "accumulation", "global_batch")


@dataclass(frozen=True, slots=True)
class Difference:
    """A quantity of two runs in its own unit; None where one of them does not have it."""

    quantity: str
    unit: str
    a: float | None
    b: float | None

    @property
    def change(self) -> float | None:
        """b / a - 1; None without both, or where a is 0."""
        return self.b / self.a - 1 if self.a and self.b is not None else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs were set up with that differs, one clause each, and every quantity of both."""

    settings: tuple[str, ...]
    quantities: tuple[Difference, ...]

    def of(self, quantity: str) -> Difference:
        """The difference in one quantity, by its name."""
        return next(one for one in self.quantities if one.quantity == quantity)


def compare(a: LoggedRun, b: LoggedRun) -> Comparison:
    """Measured step times, throughput, and predicted against measured, of two runs.

    Quantities: ``mean``, ``median``, ``p99``, ``longest`` and ``spread`` as measured; ``tokens a second and
    GPU`` by the median; ``predicted``, its part ``predicted compute`` and so on, and ``predicted / measured``
    by the median.
    """
    columns = [_quantities(run) for run in (a, b)]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = []
    for name in names:
        values = [column.get(name, (None, ""))[0] for column in columns]
        unit = next(column[name][1] for column in columns if name in column)
        rows.append(Difference(name, unit, *values))
    return Comparison(tuple(differences(a, b)), tuple(rows))


def _quantities(run: LoggedRun) -> dict[str, tuple[float, str]]:
    """Every quantity of a run with its unit."""
    measured = run.measured
    found = {name: (getattr(measured, name), "s") for name in ("mean", "median", "p99", "longest")}
    found["spread"] = (measured.spread, "")
    tokens = run.plan.global_batch * run.model.sequence
    found["tokens a second and GPU"] = (tokens / (measured.median * run.plan.ranks), "1/s")
    if run.predicted is not None:
        found["predicted"] = (run.predicted.total, "s")
        found |= {f"predicted {name}": (getattr(run.predicted, name), "s") for name in TERMS}
        found["predicted / measured"] = (run.predicted.total / measured.median, "")
    return found


def differences(a, b) -> list[str]:
    """Each field of model, cluster and plan in which two runs (or a run and a case) differ, a clause each."""
    return [
        clause
        for name in ("model", "cluster", "plan")
        for clause in _differing(getattr(a, name), getattr(b, name), name)
    ]


def _differing(a, b, name: str) -> list[str]:
    if not (is_dataclass(a) and is_dataclass(b)):
        return [] if a == b else [f"{name}: {a} and {b}"]
    parts = [field.name for field in fields(a) if field.name != "sources"]
    return [
        clause
        for part in parts
        for clause in _differing(getattr(a, part), getattr(b, part), f"{name} {part}")
    ]


@dataclass(frozen=True, slots=True)
class Nearest:
    """An earlier run, how far a new case is from it in factors of two, and what differs, one clause each."""

    run: LoggedRun
    distance: float
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    model: Transformer
    cluster: Cluster
    plan: Plan


def nearest(runs: list[LoggedRun], model: Transformer, cluster: Cluster, plan: Plan) -> Nearest | None:
    """Of the runs the one most like a case; None without runs.

    Runs of the same model come first, then those on the same kind of cluster, of however many nodes, then the
    smallest distance: the root of the summed squares of log2(run / case) over the numbers of the plan and the
    sizes of model and GPU, and 1 for each option that differs. Of equally near ones the latest.
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    case = _Case(model, cluster, plan)

    def order(run: LoggedRun):
        other_cluster = _kind(run.cluster) != _kind(cluster)
        return run.model != model, other_cluster, _distance(run, case), -run.number

    if not runs:
        return None
    best = min(runs, key=order)
    return Nearest(best, _distance(best, case), tuple(differences(best, case)))


def _kind(cluster: Cluster) -> Cluster:
    return replace(cluster, nodes=1, sources={})


def _distance(a, b) -> float:
    squares = [log2(one / other) ** 2 for one, other in zip(_sizes(a), _sizes(b), strict=True)]
    options = [field.name for field in fields(Plan) if field.name not in _NUMBERS]
    return sqrt(sum(squares) + sum(getattr(a.plan, name) != getattr(b.plan, name) for name in options))


def _sizes(case) -> list[float]:
    """The numbers above 0 that a step's time goes with."""
    plan = [getattr(case.plan, name) for name in _NUMBERS]
    return [
        *plan,
        case.model.parameters,
        case.model.sequence,
        max(case.cluster.gpu.peak.values(), default=1.0),
    ]
