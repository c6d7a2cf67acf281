"""Finds ranks, hosts and devices in what launchers and benchmarks print, between whatever else they print.

Open MPI's map is that of ``mpirun --display-map``: "Data for node: NAME" and under it "Process OMPI jobid ...
Process rank: N" in 1.3 to 4.1 (1.3 and 1.4 write "Name: NAME"), "Process jobid ..." in 5.0, and "Data for
proc: [..., N]" in the developer's form of each; read off the maps in Open MPI issues 4449, 9647, 11541 and
11570. ``srun -l`` puts the number of the task before each line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.evidence.sweep_text import DEVICE, MOST_RANKS

MOST_NAME = 253  # characters of a host's name, as in the domain name system
_LONGEST = 2000  # characters of a line that are looked at
_MOST_LINES = 1_000_000
_NAME = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_NAME - 1}}}"
_RANK = r"0*(\d{1,7})"

_BENCH = re.compile(
    rf"\brank {_RANK}: host ({_NAME})(?:, local rank {_RANK})?(?:, device ([\w:]{{1,40}}))?(?:,|\s|$)"
)
_NODE = re.compile(rf"Data for node: +(?:Name: +)?({_NAME})\s")
_PROCESS = re.compile(rf"Process (?:OMPI )?jobid: \S+ (?:App: \d+ )?Process rank: {_RANK}\b")
_PROC = re.compile(rf"Data for proc: \[.{{1,200}},{_RANK}\]")
_SRUN = re.compile(rf"^\s*{_RANK}:\s+({_NAME})\s*$")
_HEADS = {
    **dict.fromkeys(("host", "hostname", "node"), "host"),
    **dict.fromkeys(("device", "gpu", "local_rank", "local"), "device"),
    "rank": "rank",
}


@dataclass(frozen=True, slots=True)
class Seat:
    """One rank as one line names it: its host, and its device where that is told.

    ``local``: the index of the process on its host; ``device``: the number of a GPU.
    """

    rank: int
    host: str
    local: int | None
    device: int | None
    line: int


def read_seats(text: str) -> tuple[str, list[Seat]]:
    """What kind of listing a text holds, and its seats line by line; ("", []) without any.

    Of several kinds in one text the one counts that says most of devices, in the order of ``_READERS``.
    """
    lines = [(at, line[:_LONGEST]) for at, line in enumerate(text.split("\n"), 1) if line]
    if len(lines) > _MOST_LINES:
        raise InputRefused(f"a listing in {len(lines):,} lines is not looked for; cut it out of the log")
    for kind, reader in _READERS.items():
        seats = []
        for seat in reader(lines):
            if seat.rank >= MOST_RANKS or len(seats) >= 2 * MOST_RANKS:  # a map may be printed twice
                raise InputRefused(
                    f"line {seat.line} is one rank too many: at most {MOST_RANKS:,} are read; cut out the "
                    "listing of one launch"
                )
            seats.append(seat)
        if seats:
            return kind, seats
    return "", []


def _bench(lines) -> Iterator[Seat]:
    for at, line in lines:
        for rank, host, local, device in _BENCH.findall(line):
            gpu = re.search(r":(\d{1,4})$", device)
            yield Seat(int(rank), host, int(local) if local else None, int(gpu[1]) if gpu else None, at)


def _nccl_tests(lines) -> Iterator[Seat]:
    for at, line in lines:
        if found := DEVICE.search(line):
            yield Seat(int(found[1]), found[4][:MOST_NAME], None, int(found[5]), at)


def _open_mpi(lines) -> Iterator[Seat]:
    host = None
    for at, line in lines:
        if node := _NODE.search(line + " "):
            host = node[1]
        elif host and (found := _PROCESS.search(line) or _PROC.search(line)):
            yield Seat(int(found[1]), host, None, None, at)


def _srun(lines) -> Iterator[Seat]:
    for at, line in lines:
        if (found := _SRUN.match(line)) and _is_host(found[2]):
            yield Seat(int(found[1]), found[2], None, None, at)


def _table(lines) -> Iterator[Seat]:
    """Rows under a head that names rank and host; without a head, rows of just rank, host and device."""
    columns, separator = {"rank": 0, "host": 1, "device": 2}, None
    width = 3
    for at, line in lines:
        if "rank" in (lowered := line.lower()):
            mark = next((one for one in ",;\t" if one in line), None)
            heads = [_HEADS.get(cell, "") for cell in _cells(lowered.strip(" #\r"), mark)]
            if "rank" in heads and "host" in heads:
                columns = {name: heads.index(name) for name in heads if name}
                separator, width = mark, len(heads)
                continue
        cells = _cells(line, separator or next((one for one in ",;" if one in line), None))
        if len(cells) == width and (seat := _row(cells, columns, at)):
            yield seat


def _cells(line: str, separator: str | None) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(separator)]


def _row(cells: list[str], columns: dict[str, int], at: int) -> Seat | None:
    rank, host = (cells[columns[name]] for name in ("rank", "host"))
    told = cells[columns["device"]] if "device" in columns else ""
    device = re.fullmatch(r"(?:[A-Za-z]+:)?(\d{1,4})", told)
    if not (re.fullmatch(r"\d{1,7}", rank) and re.fullmatch(_NAME, host) and _is_host(host)):
        return None
    if told and not device:
        return None
    return Seat(int(rank), host, None, int(device[1]) if device else None, at)


def _is_host(name: str) -> bool:
    """Whether it can be a host: it has a letter, or is an address of four numbers."""
    return bool(re.search(r"[A-Za-z]", name) or re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", name))


_READERS = {
    "the print of labkit's bench": _bench,
    "the device list of nccl-tests": _nccl_tests,
    "a table": _table,
    "an Open MPI map": _open_mpi,
    "srun -l hostname": _srun,
}
