"""Reads the sweeps of nccl-tests and rccl-tests from their logs, as clusters leave them."""

import os
from dataclasses import dataclass, field, replace

import numpy as np

from labkit.collectives import busbw_factor
from labkit.errors import InputRefused
from labkit.evidence.sweep_facts import count_ratio, decide_collective, name_in, printed_share
from labkit.evidence.sweep_json import read_json
from labkit.evidence.sweep_ranks import decide_ranks
from labkit.evidence.sweep_rows import TYPE_BYTES, Half, Number, Row, rate_agrees, wrong_of
from labkit.evidence.sweep_source import refuse, text_of
from labkit.evidence.sweep_text import MOST_RANKS, Table, read_text


@dataclass(frozen=True, eq=False)
class Sweep:
    """One table of a log: a collective measured over message sizes.

    ``size, time, algbw, busbw`` are arrays in bytes, seconds and bytes/s, out of place; ``in_place`` is the
    same for the in-place half. algbw is size / time; busbw is algbw times the factor of nccl-tests where the
    collective and its ranks are known, else times the ratio that the table prints (NaN without one).
    ``wrong`` counts wrong elements, NaN where nothing was checked (of the old ``error`` column: 0 within
    rounding, else as printed). ``skipped`` holds (line number, why) of every row left out, ``warnings`` what
    a user of the numbers must know. ``part`` tells the tables of one run apart, such as "half, sum" where it
    went through data types, reductions or roots (``-d all -o all -r all``).
    """

    collective: str | None
    n_ranks: int | None
    size: np.ndarray
    time: np.ndarray
    algbw: np.ndarray
    busbw: np.ndarray
    wrong: np.ndarray
    in_place: "Sweep | None" = None
    skipped: list[tuple[int, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    part: str = ""

    def __repr__(self) -> str:
        """The facts in one line."""
        span = f"{self.size.min():.0f} to {self.size.max():.0f} B"
        return f"Sweep({self.collective}, {self.n_ranks} ranks, {self.size.size} rows, {span})"

    def fit(self, nominal: float | None = None):
        """The latency and bandwidth that this sweep shows: ``labkit.evidence.fit.fit_sweep`` of it.

        ``nominal``: bytes/s of one direction of the link, to judge the plateau by.
        """
        from labkit.evidence.fit import fit_sweep

        return fit_sweep(self, nominal)


def read_sweep(path_or_text: str | os.PathLike, n_ranks: int | None = None) -> list[Sweep]:
    """Every table of an nccl-tests or rccl-tests log (text or JSON), one ``Sweep`` each, in order.

    A ``str`` with a newline (or JSON) is the log itself, anything else a path. ``n_ranks`` overrules what the
    log says; a conflict is reported in ``warnings``. Raises InputRefused for anything that is no such log,
    for separate runs mixed line by line, and for host launch times (``-C 1``).

    >>> sweep, = read_sweep(
    ...     "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 2097152 step: 2(factor)\\n"
    ...     "  1048576  262144  float  sum  -1  101.9  10.29  18.01  0  101.4  10.34  18.10  0\\n"
    ...     "  2097152  524288  float  sum  -1  101.4  20.68  36.19  0  101.6  20.64  36.12  0\\n")
    >>> sweep
    Sweep(all_reduce, 8 ranks, 2 rows, 1048576 to 2097152 B)
    """
    whole = isinstance(n_ranks, int | np.integer) and not isinstance(n_ranks, bool)
    if n_ranks is not None and not (whole and 1 <= n_ranks <= MOST_RANKS):
        given = f"{n_ranks!r:.40}" if not whole or abs(n_ranks) < 1e15 else "far too large"
        raise InputRefused(f"n_ranks is {given}; give a whole number of ranks, 1 to {MOST_RANKS}")
    caller = None if n_ranks is None else int(n_ranks)
    text, path = text_of(path_or_text)
    tables = read_json(text) if text.lstrip()[:1] in ("{", "[") else []
    tables = tables or read_text(text)
    devices = [device for table in tables for device in table.devices]
    runs = {(host, process) for _, _, host, process in devices}
    if caller is None and len(runs) > 1 and all(rank == 0 for rank, *_ in devices):
        raise InputRefused(
            f"{path or 'the text'} mixes {len(runs)} separate runs of one rank each (every one calls "
            "itself rank 0), so no communication was measured; build nccl-tests with MPI=1 and run it again"
        )
    hosts = [table for table in tables if table.cpu_time and table.rows]
    parts = [found for table in tables if not table.cpu_time for found in _parts(table)]
    hint = name_in(os.path.basename(path))
    sweeps = [sweep for part, name in parts if (sweep := _sweep(part, name, caller, hint))]
    host = "the times are those of the host's launches (option -C), not of the collective; run without -C"
    if hosts and not sweeps:
        raise InputRefused(f"{path or 'the text'} cannot be used: {host}")
    if not sweeps:
        refuse(text, path, [part for part, _ in parts] or tables)
    if hosts:
        sweeps[-1].warnings.append(f"tables left out: {len(hosts)}, for {host}")
    troubles = [trouble for table in tables if not table.rows for trouble in table.troubles[:3]]
    sweeps[-1].warnings.extend(f"the log reports trouble: {trouble}" for trouble in troubles)
    return sweeps


def _parts(table: Table) -> list[tuple[Table, str]]:
    """One table for each data type, reduction and root in it, and what tells it from the others."""
    groups: dict[tuple, list[Row]] = {}
    for row in table.rows:
        root = row.root if row.root is not None and row.root >= 0 else -1
        groups.setdefault((row.type, row.redop or "none", root), []).append(row)
    most = max(map(len, groups.values()), default=0)
    stray = [rows[0] for rows in groups.values() if len(rows) == 1 < most]
    table.skipped += [(row.line, "its type, redop or root differ from every other row's") for row in stray]
    many = {key: rows for key, rows in groups.items() if len(rows) > 1 or most == 1}
    names = {
        key: ", ".join([key[0], key[1]] + [f"root {key[2]}"] * (key[2] >= 0)) if len(many) > 1 else ""
        for key in many
    }
    says = {
        key: [f"one of {len(many)} tables of a run over data types, reductions or roots: {name}"] * bool(name)
        for key, name in names.items()
    }
    return [
        (replace(table, rows=rows, warnings=[*table.warnings, *says[key]]), names[key])
        for key, rows in many.items()
    ] or [(table, "")]


def _consistent(table: Table, ratio: int | None, share: float) -> list[Row]:
    """The rows whose size, count, time and algbw agree; the others are put among the skipped."""
    kept = []
    for row in table.rows:
        if ratio is not None and row.size != row.count * TYPE_BYTES[row.type] * ratio:
            table.skipped.append((row.line, "its size and its count contradict each other"))
        elif not all(rate_agrees(row.size, half, share) for half in row.halves):
            table.skipped.append((row.line, "its size, time and algbw contradict each other"))
        else:
            kept.append(row)
    return kept


def _to_microseconds(rows: list[Row]):
    for row in rows:
        for side in ("out", "inp"):
            if half := getattr(row, side):
                time = Number(half.time.value * 1e3, half.time.rounding * 1e3)
                setattr(row, side, half._replace(time=time))


def _sweep(table: Table, part: str, caller: int | None, hint: str | None) -> Sweep | None:
    """The sweep of a table; None when no row can be read whole (``table.skipped`` then says why)."""
    if not table.rows:
        return None
    table.skipped = list(table.skipped)
    ratio = count_ratio(table.rows)
    if table.milliseconds or abs(printed_share(table.rows) / 1e-3 - 1) < 0.02:
        _to_microseconds(table.rows)
    share = printed_share(table.rows)
    collective, says = decide_collective(table, ratio, hint)
    convention = collective and ratio and ratio > 1 and abs(share - busbw_factor(collective, ratio)) < 0.01
    if share != 1 and not convention and len(table.rows) < 3:
        share = 1.0  # too few rows to call it a convention: they are damaged
    table.rows = _consistent(table, ratio, share)
    if not table.rows:
        return None
    n, more = decide_ranks(table, collective, ratio, share, caller)
    warnings = [*table.warnings, *says, *more]
    if share != 1:
        why = " (the early convention of nccl-tests: busbw in its place)" if convention else ""
        warnings.append(f"the printed algbw is {share:.4g} x size / time{why}: algbw here is size / time")
    out = _columns(table, [row.out for row in table.rows], collective, n, warnings)
    # the tests do not support all_to_all and send_recv in place: wrong results there mean nothing
    unchecked = [] if collective in ("all_to_all", "send_recv") else warnings
    inp = _columns(table, [row.inp for row in table.rows], collective, n, unchecked, " in place")
    if out is None:
        warnings.append("only in-place numbers were printed: they stand in for the out-of-place ones")
    first = out or inp
    if np.unique(first["size"]).size < first["size"].size:
        warnings.append(
            "some sizes were measured more than once: every row is kept (where two runs wrote into this log, "
            "give each a log of its own)"
        )
    warnings += [f"the log reports trouble: {trouble}" for trouble in list(dict.fromkeys(table.troubles))[:3]]
    in_place = Sweep(collective, n, **inp, part=part) if inp else None
    skipped = sorted(table.skipped)
    return Sweep(collective, n, **first, in_place=in_place, skipped=skipped, warnings=warnings, part=part)


def _columns(
    table: Table,
    halves: list[Half | None],
    collective: str | None,
    n: int | None,
    warnings: list[str],
    where: str = "",
) -> dict[str, np.ndarray] | None:
    """The arrays of one half of the table, None where it has none; contradictions go to ``warnings``."""
    pairs = [(row, half) for row, half in zip(table.rows, halves, strict=True) if half]
    if not pairs:
        return None
    size = np.array([float(row.size) for row, _ in pairs])
    time = np.array([half.time.value for _, half in pairs]) * 1e-6
    coarse = np.array([half.time.rounding / half.time.value for _, half in pairs])
    printed, rounding = np.array([half.busbw for _, half in pairs]).T * 1e9
    algbw = size / time
    if n and collective:
        factor = busbw_factor(collective, n)
        busbw = algbw * factor
        off = np.flatnonzero(np.abs(printed - busbw) > rounding + (coarse + 5e-3) * busbw)
        if off.size:
            at = off[0]
            warnings.append(
                f"the printed busbw{where} differs from algbw x {factor:.4g} in {off.size} of {size.size} "
                f"rows, first in line {pairs[at][0].line}: {printed[at] / 1e9:.4g} instead of "
                f"{busbw[at] / 1e9:.4g} GB/s"
            )
    else:
        clear = printed > 20 * rounding
        busbw = algbw * (np.median(printed[clear] / algbw[clear]) if clear.any() else np.nan)
    wrong = np.array([wrong_of(half, row.type, table.error_column) for row, half in pairs])
    bad = np.flatnonzero(wrong > 0)
    if bad.size:
        warnings.append(
            f"wrong results{where} in {bad.size} of {size.size} rows, first at {size[bad[0]]:.0f} B (line "
            f"{pairs[bad[0]][0].line}): a fit leaves these rows out"
        )
    return {"size": size, "time": time, "algbw": algbw, "busbw": busbw, "wrong": wrong}
