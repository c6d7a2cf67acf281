"""The first plans of a search with their reasons: what limits each, why it beats the next, how surely."""

from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.planner.ranking import Lead, runner_up, stated_error
from labkit.planner.search import carried, plan_of
from labkit.planner.step import step_time
from labkit.planner.why import Difference, why
from labkit.spec import Plan, StepTime
from labkit.spec.checks import amount, whole
from labkit.units import format_share, format_time

_MOST = 100  # plans with reasons: a table has the others
_MOST_TERMS = 2  # named in a reason; ``against_next`` has all


@dataclass(frozen=True, slots=True)
class BestPlan:
    """A plan of a search by its ``place``, from 1, its step and the bytes of its fullest rank.

    ``limit``: the largest term of the step beside compute, ``longer``: how much longer than the first it
    takes, a share, and ``sure``: whether that is more than the model's error (of the first, whether the
    second takes so much longer). ``against_next``: the difference to the plan behind it, None of the last
    and where they differ in more than a sum can part. ``reasons``: all of it in sentences.
    """

    place: int
    plan: Plan
    step: StepTime
    memory: float
    limit: str
    longer: float
    sure: bool
    against_next: Difference | None
    reasons: tuple[str, ...]


def best_plans(table, count: int = 5, error: float | None = None) -> list[BestPlan]:
    """The first ``count`` plans of a table of ``search``, fewer where it has fewer, each with its reasons.

    ``error``: of the model, a share of a step, by default what it states. Refused: what is no such table, and
    a count that is not 1 to 100.
    """
    known = carried(table)
    error = stated_error(table) if error is None else error
    count = min(whole(count, "the number of best plans", most=_MOST), len(table))
    error = amount(error, "the error of the model, a share of a step,", zero=True, arrays=False).item()
    found, first = [], float(table["seconds"].iloc[0]) if count else 0.0
    for place in range(count):
        row = table.iloc[place]
        plan, longer = plan_of(row), float(row["seconds"]) / first - 1
        step = step_time(known["model"], known["cluster"], plan)
        behind = table.iloc[place + 1] if place + 1 < len(table) else None
        difference = None if behind is None else _difference(row, behind)
        ahead = longer if place else _gap(table, error)
        reasons = (*_limited(step, row["limit"]), *_beats(difference, behind))
        found.append(
            BestPlan(
                place + 1,
                plan,
                step,
                float(row["memory"]),
                str(row["limit"]),
                longer,
                ahead > error,
                difference,
                (*reasons, *_sure(place, longer, error)),
            )
        )
    return found


def lead_of(table, error: float | None = None) -> Lead | None:
    """How far the first plan of a table is ahead; None of a table with fewer than two."""
    return runner_up(table, error) if len(table) > 1 else None


def _gap(table, error: float) -> float:
    lead = lead_of(table, error)
    return 0.0 if lead is None else lead.gap


def _difference(row, behind) -> Difference | None:
    try:
        return why(row, behind)
    except InputRefused:  # more settings differ than can be parted
        return None


def _limited(step: StepTime, limit: str) -> list[str]:
    seconds = getattr(step, limit)
    share = format_share(seconds / step.total)
    return (
        [f"largest beside compute: {limit}, {format_time(seconds)} ({share} of the step)"] if seconds else []
    )


def _beats(difference: Difference | None, behind) -> list[str]:
    if behind is None:
        return ["no other plan runs"]
    if difference is None:
        return ["the next differs in too many settings to say what each does"]
    if difference.total == 0:
        return ["the next takes as long, and no less memory"]
    _, *terms = difference.sentences()
    longer = f"{format_time(difference.total)} ({format_share(difference.total / difference.before.total)})"
    return [f"the next takes {longer} longer: {'; '.join(terms[:_MOST_TERMS])}"]


def _sure(place: int, longer: float, error: float) -> list[str]:
    if not place:
        return []
    how = "more" if longer > error else "less"
    return [f"{format_share(longer)} behind the first, {how} than the model's error of {format_share(error)}"]
