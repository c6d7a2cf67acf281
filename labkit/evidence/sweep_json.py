"""Tables in the JSON that nccl-tests (``-J``) and rccl-tests (``-Z json``) write.

nccl-tests writes one object whose numbers may be strings (``"nan"``), whose booleans are strings and whose
``env`` holds the whole process environment: it is never looked at.
"""

import json
import math
import re

from labkit.evidence.sweep_rows import REDOPS, TYPE_BYTES, Half, Number, Row, measurable, number, rate_agrees
from labkit.evidence.sweep_text import MOST_RANKS, OPERATIONS, Table

_NEXT = re.compile(r"[\s,]*")
_MOST_OF_A_PROCESS = 4096  # threads x GPUs


def read_json(text: str) -> list[Table]:
    """The tables of JSON reports, one behind another; none when the text is no such report.

    A report that is cut keeps its complete results and says so. rccl-tests writes a list of records, or one
    record in each line.
    """
    decoder, tables, records, at = json.JSONDecoder(), [], [], _NEXT.match(text).end()
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            cut = _cut_report(text[at:])
            tables += [_report(cut, cut=True)] if cut else []
            break
        at = _NEXT.match(text, end).end()
        if isinstance(value, dict) and isinstance(value.get("results"), list):
            tables.append(_report(value))
        else:
            records += value if isinstance(value, list) else [value]
    return tables + _records(records)


def _cut_report(text: str) -> dict | None:
    """What can be decoded of a report that ends in the middle: its settings and its complete results."""
    decoder, report = json.JSONDecoder(), {"results": []}
    for key in ("args", "config", "results"):
        found = re.search(rf'[{{,]\s*"{key}"\s*:\s*', text)
        if not found:
            continue
        at = found.end()
        try:
            if key != "results":
                report[key] = decoder.raw_decode(text, at)[0]
                continue
            at = text.index("[", at) + 1
            while True:
                result, at = decoder.raw_decode(text, _NEXT.match(text, at).end())
                report[key].append(result)
        except (ValueError, RecursionError):
            continue
    return report if report["results"] else None


def _cell(value) -> Number:
    """A JSON number, or a number in a string, with half a unit of its last printed digit."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return Number(math.nan, math.nan)
    return number(str(value)[:40])


def _whole(value) -> int | None:
    found = _cell(value).value
    return int(found) if 0 <= found < 1e19 and found == int(found) else None


def _half(result: dict | None, keys: tuple[str, str, str, str]) -> Half | None:
    if not isinstance(result, dict):
        return None
    time, algbw, busbw = (_cell(result.get(key)) for key in keys[:3])
    if not measurable(time, algbw, busbw):
        return None
    wrong = _cell(result.get(keys[3])).value
    return Half(time, algbw, busbw, f"{wrong:g}" if wrong >= 0 and math.isfinite(wrong) else "N/A")


def _row(at: int, entry) -> Row | str:
    """The row of one result without its halves, or why it cannot be read."""
    if not isinstance(entry, dict):
        return "it is no object"
    size, data_type, redop = _whole(entry.get("size")), entry.get("type"), entry.get("redop")
    count = _whole(entry.get("count", 0))
    if size is None or count is None:
        return "its size or count is no number"
    if not isinstance(data_type, str) or data_type not in TYPE_BYTES:
        return f"its data type {str(data_type)[:20]!r} is unknown"
    if redop and redop not in REDOPS:
        return f"its reduction {str(redop)[:20]!r} is unknown"
    root = re.fullmatch(r"\s*(-1|\d{1,6})\s*", str(entry.get("root")))
    return Row(at, size, count, data_type, redop or None, int(root[1]) if root else None)


def _report(report: dict, cut: bool = False) -> Table:
    table, config = Table(), report.get("config")
    config = config if isinstance(config, dict) else {}
    table.threads = min(_whole(config.get("nthreads")) or 1, _MOST_OF_A_PROCESS)
    table.gpus = min(_whole(config.get("ngpus")) or 1, _MOST_OF_A_PROCESS // table.threads)
    devices = config.get("devices") if isinstance(config.get("devices"), list) else []
    each = table.threads * table.gpus  # one entry a process, each with so many ranks
    for process, device in enumerate(devices[: MOST_RANKS // each]):
        device = device if isinstance(device, dict) else {}
        group, first = _whole(device.get("group")) or 0, _whole(device.get("rank"))
        first = process * each if first is None or first >= MOST_RANKS else first
        who = str(device.get("hostname")), str(device.get("pid"))
        table.devices += [(rank, group, *who) for rank in range(first, first + each)]
    if len({device[:2] for device in table.devices}) < len(table.devices):
        table.devices = table.devices[::each]  # one entry a rank after all
    args = report.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    name = re.sub(r"_(?:perf|test)(?:\.exe)?$", "", re.split(r"[/\\]", program)[-1])
    table.name = OPERATIONS.get(name)
    for at, entry in enumerate(report["results"], 1):
        row = _row(at, entry)
        if isinstance(row, str):
            table.skipped.append((at, row))
            continue
        for side, place in (("out", "out_of_place"), ("inp", "in_place")):
            part = entry.get(place)
            cpu = isinstance(part, dict) and "cpu_time" in part
            table.cpu_time = table.cpu_time or cpu
            setattr(row, side, _half(part, ("cpu_time" if cpu else "time", "alg_bw", "bus_bw", "nwrong")))
        unreadable = any(
            isinstance(entry.get(p), dict) and not h
            for p, h in (("out_of_place", row.out), ("in_place", row.inp))
        )
        _keep(table, row, unreadable)
    _says(table, report, cut)
    return table


def _keep(table: Table, row: Row, unreadable: bool):
    if row.size == 0:
        table.skipped.append((row.line, "size 0: nothing was sent, so its time is no latency"))
    elif unreadable or not row.halves:
        table.skipped.append((row.line, "its time or bandwidths are no numbers"))
    else:
        table.rows.append(row)


def _says(table: Table, report: dict, cut: bool):
    if table.skipped:
        table.warnings.append("in JSON the numbers of skipped rows count the results")
    if cut:
        table.warnings.append("the JSON is cut: only its complete results were read")
    bounds = report.get("out_of_bounds")
    if isinstance(bounds, dict) and (_whole(bounds.get("count")) or 0) > 0:
        table.warnings.append(
            f"the log itself says FAILED: {_whole(bounds.get('count'))} values out of bounds"
        )
    errors = report.get("errors")
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, str) and error.strip():
            table.troubles.append(error.strip()[:160])


def _records(entries: list) -> list[Table]:
    """The tables of an rccl-tests report: one record for each half of a row, in place or not.

    Its ``ranks`` are MPI processes of ``gpusPerRank`` (without MPI only ``gpus``) NCCL ranks each, and its
    ``size`` is what a rank receives: one rank's share in reduce_scatter and scatter, unlike everywhere else
    (Reporter::addResult and BenchTime in rccl-tests, src/common.cu).
    """
    tables: dict[tuple, Table] = {}
    pairs: dict[tuple, Row] = {}
    for at, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or "algBw" not in entry:
            continue
        name = str(entry.get("name"))
        processes, gpus = (_whole(entry.get(key, 1)) for key in ("ranks", "gpusPerRank"))
        n = (processes or 0) * (gpus or 0) if "ranks" in entry else _whole(entry.get("gpus")) or 0
        table = tables.setdefault((name, n), Table())
        table.name, table.nranks = OPERATIONS.get(name.lower()), {n} if 1 <= n <= MOST_RANKS else set()
        row, half = _row(at, entry), _half(entry, ("time", "algBw", "busBw", "wrong"))
        if isinstance(row, str) or half is None or row.size == 0:
            table.skipped.append(
                (at, row if isinstance(row, str) else "its size, time or bandwidths are no numbers above 0")
            )
            continue
        one_share = table.name in ("reduce_scatter", "scatter") and not rate_agrees(row.size, half)
        if one_share and rate_agrees(row.size * n, half):
            row.size *= n
        side = "inp" if _whole(entry.get("inPlace")) else "out"
        key = (name, n, str(entry.get("numCycle")), row.size, row.type, row.redop)
        if key not in pairs or getattr(pairs[key], side):  # measured again: a new row
            pairs[key] = row
            table.rows.append(row)
        setattr(pairs[key], side, half)
    return list(tables.values())
