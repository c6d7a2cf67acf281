"""The run log: what was run on what, what was predicted, and every step time that was measured."""

import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from labkit.errors import InputRefused
from labkit.evidence import runs_csv
from labkit.evidence.home import home
from labkit.evidence.logged_run import COLUMNS, LoggedRun, as_row, from_row, moment, text
from labkit.evidence.runs_compare import Comparison, Nearest, compare, nearest
from labkit.evidence.runs_store import RunStore
from labkit.evidence.runs_table import RunRow, run_rows
from labkit.evidence.step_times import checked
from labkit.spec import Cluster, Plan, StepTime, Transformer
from labkit.spec.checks import amount, noun, shown, whole, without_arrays
from labkit.spec.rules import check_nouns


class RunLog:
    """The run log in a file: ``runs.sqlite`` in labkit's folder (``LABKIT_HOME``) unless ``path`` is given.

    Notebooks and processes may use it at the same time; what ``record`` has returned from is kept even if the
    process is killed, and the file may lie on a network home. ``wait``: seconds to be patient for its lock.
    ``skipped`` lists (number, why) of the runs that the last reading could not make out.
    """

    def __init__(self, path: str | os.PathLike | None = None, wait: float = 20.0):
        named = isinstance(path, str | os.PathLike) and str(path).strip() and "\0" not in str(path)
        if path is not None and not named:
            raise InputRefused(f"the run log is {shown(path)}; give the path of its file, or nothing")
        amount(wait, "seconds to wait for the run log", zero=True, arrays=False)
        self.path = home() / "runs.sqlite" if path is None else Path(path)
        self.skipped: list[tuple[int, str]] = []
        self._store = RunStore(self.path, wait)

    def record(
        self,
        model: Transformer,
        cluster: Cluster,
        plan: Plan,
        step_times,
        predicted: StepTime | None = None,
        notes: str = "",
        when: datetime | str | None = None,
        profiled: StepTime | None = None,
    ) -> LoggedRun:
        """Write one run; when this returns, it is on disk. ``when``: UTC where it names no zone, else now.

        ``profiled``: the step as a profile of the run has it (``read_profile``), for its communication share.

        Refused: nouns of another kind or with arrays in them, step times that are not finite and above 0 or
        more than 5,000, notes of more than 10,000 characters, and a file that cannot be written.
        """
        check_nouns(model=model, cluster=cluster, plan=plan)
        for step, what in ((predicted, "the predicted step"), (profiled, "the profiled step")):
            if step is not None:
                noun(step, StepTime, what)
        without_arrays("a run", cluster=cluster, plan=plan, predicted=predicted, profiled=profiled)
        times, key = checked(step_times), uuid4().hex
        run = LoggedRun(0, key, moment(when), model, cluster, plan, times, predicted, text(notes), profiled)
        (number,) = self._store.add([as_row(run)])
        return replace(run, number=number)

    def runs(self) -> list[LoggedRun]:
        """Every run, in the order of writing; those that cannot be made out go to ``skipped``."""
        found, self.skipped = [], []
        for number, *row in self._store.rows():
            try:
                found.append(from_row(number, row))
            except InputRefused as refusal:
                self.skipped.append((number, str(refusal)))
        return found

    def run(self, number: int) -> LoggedRun:
        """One run by its number. Refused: a number that is not in the log."""
        number = whole(number, "the number of a run")
        for run in self.runs():
            if run.number == number:
                return run
        why = dict(self.skipped).get(number)
        raise InputRefused(f"{self.path} has no run {number}" + (f" that can be read: {why}" if why else ""))

    def compare(self, a: int, b: int) -> Comparison:
        """What two runs, by their numbers, differ in, and by how much: see ``runs_compare.compare``."""
        return compare(self.run(a), self.run(b))

    def nearest(self, model: Transformer, cluster: Cluster, plan: Plan) -> Nearest | None:
        """The earlier run most like a new case, and what differs; None in an empty log.

        See ``runs_compare.nearest``.
        """
        return nearest(self.runs(), model, cluster, plan)

    def table(self) -> list[RunRow]:
        """Settings, step time, throughput, communication share and efficiency of every run, a row each.

        See ``runs_table.run_rows``.
        """
        return run_rows(self.runs())

    def to_csv(self, path: str | os.PathLike) -> int:
        """Write every run that can be read into a CSV file, and return how many there are."""
        runs = self.runs()
        runs_csv.write(path, COLUMNS, map(as_row, runs))
        return len(runs)

    def from_csv(self, path: str | os.PathLike) -> int:
        """Add the runs of a CSV file that ``to_csv`` wrote, all or none, and return how many are new.

        Runs that the log has already are left out. Refused, with file and line: whatever is no such file.
        """
        rows = []
        for line, cells in runs_csv.read(path, COLUMNS):
            texts = dict(zip(COLUMNS, cells, strict=True))
            texts |= {name: texts[name] or None for name in ("predicted", "profiled")}
            try:
                rows.append(as_row(from_row(0, texts.values())))
            except InputRefused as refusal:
                raise InputRefused(f"{path}, line {line}: {refusal}") from None
        return len(self._store.add(rows))
