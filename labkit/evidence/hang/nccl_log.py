"""What NCCL and RCCL say of communicators, calls, networks and troubles in a log of NCCL_DEBUG.

Formats were read in src/init.cc, src/enqueue.cc, src/transport/net*.cc and src/debug.cc of NCCL 2.2 to 2.29
and of RCCL. One line for a call: ``AllReduce: opCount 28c ... count N datatype 7 ... comm 0x... [nranks=4]``;
``opCount`` is hexadecimal, and for sends and receives ``root`` is the peer. It carries no name of the
communicator that other processes would know, only an address in this process: ``joined`` puts those together.
"""

import re
from dataclasses import dataclass, field

from labkit.evidence.hang.lines import LONGEST, following, operation, task_of
from labkit.evidence.hang.records import Communicator, Evidence, Group, Interface, Note
from labkit.evidence.hang.troubles import kind_of_warning, wanted_plugin

_PLACE = r"([A-Za-z0-9][\w.-]{0,252}):(\d{1,9}):\d{1,9} \[(-?\d{1,4})\] "
# Until 2.2 without "NCCL"; a warning has the place in NCCL's source before that word.
_HEAD = re.compile(_PLACE + r"(?:[\d.]+ )?(?:[\w./-]{1,100}:\d{1,7} )?(?:NCCL )?(INFO|WARN|TRACE) ")
_CALL = re.compile(
    r"([A-Za-z0-9][\w.-]{0,252}:\d{1,9}:\d{1,9} \[-?\d{1,4}\]) NCCL INFO (\w{1,40}): "
    r"opCount ([0-9a-f]{1,16}) "
    r"sendbuff \S{1,20} recvbuff \S{1,20} (?:acc \S{1,20} )?count (\d{1,19}) datatype (\d{1,3}) op \d{1,3} "
    r"root (-?\d{1,7}) comm (0x[0-9a-f]{1,16} \[nranks=\d{1,7}\])"
    r"(?: stream \S{1,20} task \d{1,19} globalrank (\d{1,7}))?"
)
_INIT = re.compile(
    r"comm (0x[0-9a-f]{1,16}) rank (\d{1,7}) n[rR]anks (\d{1,7})\b([^-]{0,200}(?:-\d[^-]{0,200}){0,4})- ?"
    r"(?:(Init|Destroy|Abort|Finalize|Revoke) )?(START|COMPLETE)"
)
_IDENT = re.compile(r"commId (0x[0-9a-f]{1,16})")
_SPLIT = re.compile(r"parent (0x[0-9a-f]{1,16}) (?:(?:split|child)Count (\d{1,9}) )?color (-?\d{1,10})")
_ADDRESSED = re.compile(r"(?:\[\d{1,3}\])?([^\s:\[\]]{1,64}):([\w.:%]{2,80})<\d{1,5}>")
_CARD = re.compile(r"\[\d{1,3}\]([\w.-]{1,64}(?::\d{1,3})?)/(?:IB|RoCE)")
_USING = re.compile(r"(Bootstrap|NET/Socket|NET/IB[\w/]*|NET) ?: Using (?:interface )?(.*)")
_PURPOSE = {"Bootstrap": "bootstrap", "NET/Socket": "socket", "NET": "socket"}
# ncclDataType_t in nccl.h
_DTYPES = dict(
    zip(
        map(str, range(12)),
        (
            *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
            *("half", "float", "double", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        ),
        strict=True,
    )
)
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_TOO_MANY = 2_000_000  # calls; 500 MB of log lines
_MOST_NOTES = 1000
_AFTER = 40  # characters that may follow what is read of a call, such as its stream
_LONGEST_GLUED = 1_000_000  # characters of a line without an end in which calls are looked for


@dataclass(slots=True)
class _Comm:
    """A communicator of one process, found by its address there; ``life``: the how manieth at that address.

    ``calls``: line, number, operation, elements, dtype, root, peer and place among all calls of the process.
    """

    host: str
    pid: int
    device: int
    address: str
    size: int
    where: str
    process: list[int]  # calls of this process so far, over all its communicators
    life: int
    label: int | None = None
    rank: int | None = None
    ident: str = ""
    began: bool = False
    completed: bool = False
    destroyed: bool = False
    calls: list[tuple] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its address, which says nothing to other processes, and which of several at that address it is."""
        life = f" ({self.life})" if self.life > 1 else ""
        return f"{self.address} of {self.host}:{self.pid}{life}"


class NcclReader:
    """Takes the lines of one log, in order; ``finish`` gives what they say."""

    def __init__(self, path: str):
        self.path = path
        self.comms: dict[tuple, _Comm] = {}
        self.gone: list[_Comm] = []
        self.known: dict[tuple[str, str], _Comm] = {}
        self.processes: dict[tuple[str, str], list[int]] = {}
        self.interfaces: dict[tuple, Interface] = {}
        self.notes: dict[tuple, Note] = {}
        self.levels: set[str] = set()
        self.calls = 0
        self.spelled: dict[str, tuple[str, bool, bool]] = {}
        self.filtered = ""

    def take(self, lines: list[str], at: int) -> bool:
        """Sort one line that has NCCL's head in it; whether it is a call and nothing else."""
        line = lines[at]
        calls = "opCount " in line
        if calls and (found := _CALL.match(line)) and line.find("opCount ", found.end()) < 0:
            self._call(found, at)
            return len(line) - found.end() < _AFTER
        if calls and self._calls(line, at):
            return False
        if (
            calls
            or "comm 0x" in line
            or "Using " in line
            or "WARN " in line
            or "Could not find" in line
            or "NCCL_DEBUG_SUBSYS" in line
            or line.rstrip().endswith(":")  # of a call that a terminal wrapped
        ):
            self._others(lines, at)
        else:  # most lines of a start: channels, rings, settings
            self.levels.add("INFO")
        return False

    def _calls(self, text: str, at: int) -> bool:
        """Take all calls in a text; whether there was one."""
        found = False
        for call in _CALL.finditer(text[:_LONGEST_GLUED]):
            self._call(call, at)
            found = True
        return found

    def _others(self, lines: list[str], at: int) -> None:
        line = lines[at][:LONGEST]
        head = _HEAD.search(line)
        if head is None and "- Init COMPLETE" in line and (init := _INIT.search(line)):
            self._headless(init)
        while head:
            # The search goes on only where there may be another: it is slow over the rest of a line.
            after = _HEAD.search(line, head.end()) if line.find("NCCL ", head.end()) >= 0 else None
            message = line[head.end() : after.start() if after else len(line)].rstrip()
            calls = "opCount " in message or (len(message) < 20 and message.rstrip(": ").isalpha())
            if not (calls and self._calls(following(lines, at), at)):
                self._message(head, message, at)
            head = after

    def _call(self, found: re.Match, at: int) -> None:
        place, name, number, count, dtype, root, named, rank = found.groups()
        self.calls += 1
        if self.calls > _TOO_MANY:
            return
        comm = self.known.get((place, named))
        if comm is None or (number == "0" and comm.calls and comm.calls[-1][1]):
            comm = self._called(found, at)
        if rank is not None and comm.rank is None:
            comm.rank = int(rank)
        order = comm.process[0]
        comm.process[0] = order + 1
        spelled = self.spelled.get(name)
        if spelled is None:
            own = operation(name)
            spelled = self.spelled[name] = (own, own in _ROOTED, own in ("send", "recv"))
        own, rooted, pair = spelled
        root, peer = int(root) if rooted else None, int(root) if pair else None
        dtype = _DTYPES.get(dtype) or f"type {dtype}"
        comm.calls.append((at + 1, int(number, 16), own, int(count), dtype, root, peer, order))

    def _called(self, found: re.Match, at: int) -> _Comm:
        """The communicator of a call: its address in the process that the head of the line names.

        Numbers that begin anew, and calls after its end, are those of another one at the same address.
        """
        place, named = found[1], found[7]
        host, pid, rest = place.split(":")
        address, size = named[:-1].split(" [nranks=")
        comm = self.comms.get((host, pid, address))
        anew = comm is not None and comm.calls and comm.calls[-1][1] and found[3] == "0"
        if comm is None or comm.size != int(size) or comm.destroyed or anew:
            comm = self._comm(host, pid, rest.split("[")[1][:-1], address, size, at)
        if comm.label is None:
            comm.label = task_of(found.string[: found.start()])
        self.known[place, named] = comm
        return comm

    def _comm(self, host: str, pid: str, device: str, address: str, size: str, at: int) -> _Comm:
        key = (host, pid, address)
        before = self.comms.get(key)
        if before is not None:
            self.gone.append(before)
        where = f"{self.path}:{at + 1}"
        process = self.processes.setdefault((host, pid), [0])
        life = before.life + 1 if before else 1
        comm = _Comm(host, int(pid), int(device), address, int(size), where, process, life)
        self.comms[key] = comm
        self.known.clear()
        return comm

    def _message(self, head: re.Match, message: str, at: int) -> None:
        host, pid, device, level = head.groups()
        self.levels.add(level)
        if level == "WARN":
            self._note(kind_of_warning(message), message, host, pid, at)
        elif "comm 0x" in message:
            if init := _INIT.search(message):
                comm = self._init(init, host, pid, device, at)
                if comm.label is None:
                    comm.label = task_of(head.string[: head.start()])
        elif "Could not find" in message and wanted_plugin(message):
            self._note("no network", message, host, pid, at)
        elif "Using " in message:
            if using := _USING.match(message):
                self._using(using, host, pid, at)
        elif "NCCL_DEBUG_SUBSYS set by environment to " in message:
            self.filtered = message.rpartition(" ")[2].upper()

    def _init(self, found: re.Match, host: str, pid: str, device: str, at: int) -> _Comm:
        address, rank, size, rest, what, step = found.groups()
        ident = self._ident(rest, host, pid)
        comm = self.comms.get((host, pid, address))
        begins = step == "START" and what in ("Init", None)
        other = comm and (comm.size != int(size) or (comm.rank, comm.ident) != (int(rank), ident))
        if comm is None or (other and comm.rank is not None) or (begins and comm.destroyed):
            comm = self._comm(host, pid, device, address, size, at)
        comm.rank = int(rank)
        comm.ident = ident or comm.ident
        if what in ("Init", None):
            comm.began = True
            comm.completed |= step == "COMPLETE"
        elif step == "COMPLETE":
            comm.destroyed = True
            self.known.clear()
        return comm

    def _ident(self, rest: str, host: str, pid: str) -> str:
        """A name that all members print: the id, or of a part of a communicator its parent's."""
        if found := _IDENT.search(rest):
            return found[1]
        split = _SPLIT.search(rest)
        parent = split and self.comms.get((host, pid, split[1]))
        if not parent or not parent.ident:
            return ""
        return f"{parent.ident} split {split[2] or ''} color {split[3]}".replace("  ", " ")

    def _headless(self, found: re.Match) -> None:
        """A line of which the beginning was lost completes the communicator that it can only belong to."""
        ident = _IDENT.search(found[4])
        for comm in self.comms.values():
            if ident and (comm.ident, comm.rank) == (ident[1], int(found[2])) and comm.address == found[1]:
                comm.completed = True

    def _using(self, found: re.Match, host: str, pid: str, at: int) -> None:
        what, words = found.groups()
        purpose = _PURPOSE.get(what)
        if purpose is None:
            cards, _, oob = words.partition("OOB")
            for name in _CARD.findall(cards):
                self._interface("ib", name, "", host, pid, at)
            words, purpose = oob, "bootstrap"
        for name, address in _ADDRESSED.findall(words):
            self._interface(purpose, name, address, host, pid, at)

    def _interface(self, purpose: str, name: str, address: str, host: str, pid: str, at: int) -> None:
        key = (purpose, name, address, host, pid)
        if key not in self.interfaces:
            where = f"{self.path}:{at + 1}"
            self.interfaces[key] = Interface(purpose, name, address, host, int(pid), where)

    def _note(self, kind: str, words: str, host: str, pid: str, at: int) -> None:
        named = re.search(r"at and around rank (\d{1,7})", words)
        ranks = (int(named[1]),) if named else ()
        if len(self.notes) < _MOST_NOTES:
            note = Note(kind, words[:300], f"{self.path}:{at + 1}", host=host, ranks=ranks)
            self.notes.setdefault((kind, words, host, pid), note)

    def finish(self, evidence: Evidence) -> None:
        """Add communicators, their calls, interfaces and notes; say it where the log can hold no calls."""
        for comm in (*self.gone, *self.comms.values()):
            group = Group(comm.name, size=comm.size, description=comm.ident)
            formed = comm.completed or comm.destroyed or bool(comm.calls)  # no call goes before it is up
            states = (comm.began, formed, comm.destroyed, comm.where, comm.label, comm.calls)
            evidence.communicators.append(
                Communicator(group, comm.host, comm.pid, comm.device, comm.rank, *states)
            )
        evidence.interfaces += self.interfaces.values()
        evidence.notes += self.notes.values()
        evidence.calls_recorded |= bool(self.calls) or any(
            part in ("ALL", "COLL") for part in self.filtered.split(",")
        )
        if self.calls > _TOO_MANY:
            evidence.warnings.append(
                f"{self.path}: {self.calls:,} calls, of which the first {_TOO_MANY:,} are compared; cut out "
                "the last part of the log"
            )
        if self.levels and not evidence.calls_recorded:
            evidence.warnings.append(f"{self.path}: no calls in this log: wrong filter; {self._filter()}")

    def _filter(self) -> str:
        more = "; set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL"
        if self.levels == {"WARN"}:
            return f"NCCL_DEBUG=WARN prints warnings alone{more}"
        return f"NCCL_DEBUG=INFO covers start-up alone unless COLL is named{more}"
