"""One run of the run log as a value, and as the texts that a file keeps of it."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from labkit.errors import InputRefused
from labkit.evidence.noun_json import from_json, parsed, to_json
from labkit.evidence.step_times import MOST_STEPS, Summary, checked, summary
from labkit.spec import Cluster, Plan, StepTime, Transformer
from labkit.spec.checks import noun, shown
from labkit.units import format_time

COLUMNS = ("key", "recorded", "model", "cluster", "plan", "step_times", "predicted", "notes", "profiled")
MOST_NOTES = 10_000  # characters
_LONGEST_TIMES = 26 * MOST_STEPS  # characters that so many floats take at most


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One training run of the log: ``step_times`` in seconds, one a step; ``predicted`` before it, or None;
    ``profiled``: where the seconds of a step went as a profile of the run has it, or None.

    ``number`` counts in this log, ``key`` is the run's own in every copy. ``recorded``: ISO 8601, UTC.
    """

    number: int
    key: str
    recorded: str
    model: Transformer
    cluster: Cluster
    plan: Plan
    step_times: tuple[float, ...]
    predicted: StepTime | None = None
    notes: str = ""
    profiled: StepTime | None = None

    @property
    def measured(self) -> Summary:
        """Mean, median, P99, shortest and longest step."""
        return summary(self.step_times)

    def __repr__(self) -> str:
        """The facts in one line."""
        degrees = " x ".join(f"{name} {self.plan.degree(name)}" for name in ("tp", "cp", "pp", "dp"))
        median = f"median of {len(self.step_times)} steps {format_time(self.measured.median)}"
        return f"LoggedRun({self.number}: {self.model.name}, {self.cluster.name}, {degrees}, {median})"


def as_row(run: LoggedRun) -> tuple:
    """The texts of a run, in the order of ``COLUMNS``."""
    predicted, profiled = (None if step is None else to_json(step) for step in (run.predicted, run.profiled))
    nouns = map(to_json, (run.model, run.cluster, run.plan))
    return (run.key, run.recorded, *nouns, json.dumps(run.step_times), predicted, run.notes, profiled)


def from_row(number: int, row) -> LoggedRun:
    """The run of such texts, each of them checked as when a run is recorded."""
    key, recorded, model, cluster, plan, times, predicted, notes, profiled = row
    if not (isinstance(key, str) and len(key) == 32 and set(key) <= set("0123456789abcdef")):
        raise InputRefused(f"the key of a run is {shown(key)}; it has 32 hexadecimal digits")
    predicted, profiled = (
        None if step is None else from_json(step, StepTime, what)
        for step, what in ((predicted, "the predicted step"), (profiled, "the profiled step"))
    )
    return LoggedRun(
        number,
        key,
        moment(recorded or ""),
        from_json(model, Transformer, "the model"),
        from_json(cluster, Cluster, "the cluster"),
        from_json(plan, Plan, "the plan"),
        checked(parsed(times, "the list of step times", _LONGEST_TIMES)),
        predicted,
        text(notes),
        profiled,
    )


def moment(when: datetime | str | None) -> str:
    """A time as text in UTC, now where none is given; one without a zone is taken as UTC.

    >>> moment("2026-03-01T12:00:00+08:00")
    '2026-03-01T04:00:00.000000+00:00'
    """
    try:
        given = datetime.now(UTC) if when is None else when
        given = datetime.fromisoformat(given) if isinstance(given, str) else given
        zoned = given.replace(tzinfo=UTC) if given.tzinfo is None else given
        return zoned.astimezone(UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, AttributeError, TypeError):
        raise InputRefused(
            f"the time of a run is {shown(when)}; give a datetime, or a text as 2026-03-01T12:00:00"
        ) from None


def text(notes) -> str:
    """Notes with plain line ends; refused: more than 10,000 characters, and what cannot be printed."""
    noun(notes, str, "the notes of a run")
    notes = notes.replace("\r\n", "\n")
    if len(notes) > MOST_NOTES or not all(mark.isprintable() or mark in "\n\t" for mark in notes):
        raise InputRefused(
            f"the notes of a run have more than {MOST_NOTES:,} characters, or some that cannot be printed; "
            "give text"
        )
    return notes
