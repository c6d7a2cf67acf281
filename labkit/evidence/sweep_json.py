"""Tables in the JSON that nccl-tests (``-J``) and rccl-tests (``-Z json``) write.

nccl-tests writes one object whose numbers may be strings (``"nan"``), whose booleans are strings and whose
``env`` holds the whole process environment: it is never looked at.
"""

import json
import math
import re

from labkit.evidence.sweep_rows import REDOPS, TYPE_BYTES, Half, Number, Row, number
from labkit.evidence.sweep_text import OPERATIONS, Table


def read_json(text: str) -> list[Table]:
    """The tables of a JSON report; none when the text is no such report.

    A report that is cut keeps its complete results and says so.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        cut = _cut_report(text)
        return [_report(cut, cut=True)] if cut else []
    if isinstance(whole, list):
        return _records(whole)
    return [_report(whole)] if isinstance(whole, dict) and isinstance(whole.get("results"), list) else []


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
                result, at = decoder.raw_decode(text, re.compile(r"[\s,]*").match(text, at).end())
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
    if not (math.isfinite(time.value) and time.value > 0 and algbw.value >= 0 and busbw.value >= 0):
        return None
    wrong = _cell(result.get(keys[3])).value
    if not (math.isfinite(algbw.value) and math.isfinite(busbw.value)):
        return None
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
    table.threads = min(_whole(config.get("nthreads")) or 1, 10**6)
    table.gpus = min(_whole(config.get("ngpus")) or 1, 10**6)
    devices = config.get("devices") if isinstance(config.get("devices"), list) else []
    each = table.threads * table.gpus  # one entry a process, each with so many ranks
    for process, device in enumerate(devices[:1_000_000]):
        device = device if isinstance(device, dict) else {}
        group = _whole(device.get("group")) or 0
        first = _whole(device.get("rank"))
        first = process * each if first is None or first > 10**7 else first
        last = first + each - 1
        for rank in {first, last}:
            table.devices.append((rank, group, str(device.get("hostname")), str(device.get("pid"))))
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
            key = "cpu_time" if isinstance(part, dict) and "cpu_time" in part else "time"
            setattr(row, side, _half(part, (key, "alg_bw", "bus_bw", "nwrong")))
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
    """The tables of an rccl-tests report: one record for each half of a row, in place or not."""
    tables: dict[tuple, Table] = {}
    pairs: dict[tuple, Row] = {}
    for at, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or "algBw" not in entry:
            continue
        name, n = str(entry.get("name")), _whole(entry.get("ranks", entry.get("gpus")))
        table = tables.setdefault((name, n), Table())
        table.name, table.processes = OPERATIONS.get(name.lower()), n
        row, half = _row(at, entry), _half(entry, ("time", "algBw", "busBw", "wrong"))
        if isinstance(row, str) or half is None or row.size == 0:
            table.skipped.append(
                (at, row if isinstance(row, str) else "its size, time or bandwidths are no numbers above 0")
            )
            continue
        key = (name, n, str(entry.get("numCycle")), row.size, row.type, row.redop)
        if key not in pairs:
            pairs[key] = row
            table.rows.append(row)
        setattr(pairs[key], "inp" if _whole(entry.get("inPlace")) else "out", half)
    return list(tables.values())
