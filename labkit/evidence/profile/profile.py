"""Profile: what the traces of a job's ranks tell together, in labkit's own terms of a step."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import InputRefused
from labkit.evidence.limits import GUIDE
from labkit.evidence.printed import printable
from labkit.evidence.profile.files import LARGEST, trace_files
from labkit.evidence.profile.groups import GroupRow, group_rows
from labkit.evidence.profile.ranks import Collective, collectives_of, straggler_of
from labkit.evidence.profile.rows import read_traces
from labkit.evidence.profile.says import findings, warnings_of
from labkit.evidence.profile.steps import RankProfile, rank_profile
from labkit.evidence.profile.trace import Trace, rank_in_name
from labkit.spec import StepTime
from labkit.units import format_share, format_time, wrapped

_SHOWN = 8  # ranks or warnings that a repr lists


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """A profiled job. Seconds and bytes; of a collective, its kernels', waiting for other ranks included.

    ``ranks``: totals of each rank's trace; ``steps``: its steps, a ``StepTime`` each, so that they stand
    beside predicted ones (``beside``). ``collectives``: each once, with its seconds on every rank;
    ``groups``: sums by rank, process group and operation. ``straggler``: the rank for which the others wait,
    or None, and ``reason``. ``findings``: what stands out; ``warnings``: what was assumed or cannot be told;
    ``refused``: files that cannot be read, a sentence each.
    """

    ranks: dict[int, RankProfile]
    steps: dict[int, list[StepTime]]
    collectives: list[Collective]
    groups: list[GroupRow]
    straggler: int | None
    reason: str
    findings: list[str]
    warnings: list[str]
    refused: list[str]

    def __repr__(self):
        lines = [
            "rank  steps      a step     compute       comm.     exposed  of a step   hidden     waiting",
        ]
        waited = self.waited
        for rank, one in list(sorted(self.ranks.items()))[:_SHOWN]:
            times = [step.total for step in self.steps[rank]]
            step = format_time(sum(times) / len(times)) if times else "not told"
            within = sum(step.exposed for step in self.steps[rank])
            known = one.communication is not None
            cells = (
                format_time(one.compute) if times else "not told",
                format_time(one.communication) if known else "not told",
                format_time(one.exposed) if known else "not told",
                format_share(within / sum(times)) if known and sum(times) else "not told",
                "none" if one.coverage is None else format_share(one.coverage),
                format_time(waited[rank]) if rank in waited else "not told",
            )
            lines.append(
                f"{rank:>4}  {len(times):>5}  {step:>10}  {cells[0]:>10}  {cells[1]:>10}  {cells[2]:>10}  "
                f"{cells[3]:>9}  {cells[4]:>7}  {cells[5]:>10}"
            )
        if len(self.ranks) > _SHOWN:
            lines.append(f"... and {len(self.ranks) - _SHOWN} more ranks")
        who = "none" if self.straggler is None else f"rank {self.straggler}"
        if self.collectives:
            lines.append("comm., exposed: seconds of its kernels, waiting for other ranks included")
        lines.append(f"straggler: {who}; {self.reason}")
        for what in ("findings", "warnings", "refused"):
            said = getattr(self, what)
            lines += [f"{what}: {one}" for one in said[:_SHOWN]]
            lines += [f"{what}: ... and {len(said) - _SHOWN} more"] if len(said) > _SHOWN else []
        return "\n".join(part for line in lines for part in wrapped(line))

    @property
    def waited(self) -> dict[int, float]:
        """Seconds that each rank waited for others inside collectives, of those found on several ranks."""
        found: dict[int, float] = {}
        for one in self.collectives:
            for rank, seconds in (one.waiting or {}).items():
                found[rank] = found.get(rank, 0.0) + seconds
        return found


def read_profile(paths: str | os.PathLike | Sequence[str | os.PathLike], largest: float = LARGEST) -> Profile:
    """What PyTorch profiler (Kineto, Chrome) traces tell, one file for each rank of a job.

    ``paths``: files or folders, .json or .json.gz. ``largest``: bytes of one trace, unpacked, above which it
    is refused. A file that cannot be read is named in ``refused``; where none can, it is an InputRefused.

    A step's ``compute`` is the union of what computes, its exposed communication what lies outside of that;
    overlap = compute + communication - union of both. The rank is that of ``distributedInfo``, else of the
    file's name, else the next in the given order, with a warning.
    """
    traces, refused = [], []
    for path, _ in trace_files(paths):
        try:
            traces += read_traces(path, largest)
        except InputRefused as refusal:
            refused.append(str(refusal))
    if not traces:
        more = f" (and {len(refused) - 1} more files)" if len(refused) > 1 else ""
        raise InputRefused(refused[0] + more)
    by_rank, warnings = _by_rank(traces)
    ranks = {rank: rank_profile(trace) for rank, trace in by_rank.items()}
    collectives, unmatched = collectives_of(ranks)
    straggler, reason = straggler_of(ranks, collectives)
    return Profile(
        ranks=ranks,
        steps={rank: one.steps for rank, one in ranks.items()},
        collectives=collectives,
        groups=group_rows(ranks),
        straggler=straggler,
        reason=reason,
        findings=findings(ranks, GUIDE),
        warnings=[*warnings, *unmatched, *warnings_of(ranks)],
        refused=refused,
    )


def _by_rank(traces: list[Trace]) -> tuple[dict[int, Trace], list[str]]:
    """Each trace under its rank, in the order of ranks, and what was assumed."""
    found: dict[int, Trace] = {}
    warnings, unknown, paths = [], [], Counter(trace.path for trace in traces)
    for trace in traces:
        named = rank_in_name(trace.path)
        alone = paths[trace.path] == 1
        if alone and None not in (trace.rank, named) and named != trace.rank:
            warnings.append(f"{_name(trace.path)} is of rank {trace.rank}, whatever its name says")
        trace.rank = named if trace.rank is None else trace.rank
        if trace.rank is None:
            unknown.append(trace)
        elif trace.rank in found:
            other = _name(found[trace.rank].path)
            warnings.append(f"{_name(trace.path)} is left out: {other} is of rank {trace.rank} too")
        else:
            found[trace.rank] = trace
    free = (rank for rank in range(len(traces) + len(found)) if rank not in found)
    for trace, rank in zip(unknown, list(free), strict=False):
        trace.rank, found[rank] = rank, trace
        warnings.append(
            f"{_name(trace.path)} does not tell its rank; it is taken as rank {rank}, by its order"
        )
    sizes = sorted({trace.world for trace in found.values() if trace.world})
    if len(sizes) > 1:
        warnings.append(
            f"the traces are of jobs of {', '.join(map(str, sizes))} ranks; read each job by itself"
        )
    return dict(sorted(found.items())), warnings


def _name(path: Path) -> str:
    return printable(path.name if len(path.name) <= 60 else path.name[:40] + "...")
