"""Signs in a log that a process is gone or busy elsewhere, and that ranks did not come together.

Read off torchrun's report (torch/distributed/elastic/multiprocessing/errors), srun and slurmstepd, Open MPI's
mpirun, CUDA and the kernel on memory, c10d's store and gloo, and progress bars of tqdm.
"""

import re

from labkit.evidence.hang.busy import BusyReader
from labkit.evidence.hang.lines import LONGEST, following, rank_of
from labkit.evidence.hang.records import Evidence, Note

_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU) out of memory|OutOfMemoryError|CUDA error: out of memory|cudaErrorMemoryAllocation"
    r"|oom[-_]kill|[Oo]ut of memory: Kill|[Oo]ut[- ]of[- ]memory handler|can't allocate memory"
)
_EXCEPTION = re.compile(
    r"(?:^|[\s:>\]])((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Iteration))"
    r"(?::\s+(.{0,300}))?\s*$"
)
# Exceptions that a collective's failure itself raises, and those of the launcher: both are consequences.
_CONSEQUENCE = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|DistError|ChildFailedError|SignalException"
    r"|CalledProcessError|Rendezvous\w+Error|[Ww]atchdog|collective operation timeout|gloo|[Tt]imed out"
    r"|NCCL|Socket Timeout|[Cc]onnection (?:closed|reset|refused)|Broken pipe|[Mm]ismatch between collectives"
    r"|monitoredBarrier|store based barrier|ncclUniqueId|^ProcessExitedException|ProcessRaisedException"
)
_RANK = re.compile(r"\brank\s+: (\d{1,7}) \(local_rank: \d{1,5}\)")
_CODE = re.compile(r"\bexitcode\s+: (-?\d{1,5}) \(pid: ")
_SRUN = re.compile(r"srun: error: ([\w.-]{1,253}): tasks? [\d,-]{1,200}: (.{1,100})")
_MPIRUN = re.compile(
    r"process rank (\d{1,7}) with PID \d{1,9} on node ([\w.-]{1,253}) exited on signal "
    r"(\d{1,3} \([^)]{0,40}\))"
)
_CRASH = re.compile(
    r"Fatal Python error: .{1,100}|Segmentation fault|Bus error|CANCELLED AT .{1,100}"
    r"|Test (?:NCCL|CUDA) failure.{0,200}"
)
_HOST = re.compile(r"^\s*([A-Za-z][\w.-]{0,252}): ")
_CLIENTS = re.compile(r"(\d{1,7})/(\d{1,7}) clients joined")
_BARRIER = re.compile(
    r"store based barrier.{0,200}?world_size=(\d{1,7}).{0,40}?(?:worker_count|workers_joined)=(\d{1,7})"
)
_UNIQUE = re.compile(
    r"\[(\d{1,7})\] is setting up NCCL communicator and retrieving \w{1,20} from \[(\d{1,7})\]"
    r".{0,200}?got error:\s?(.{0,120})"
)
_NOT_TOGETHER = re.compile(
    r"connectFullMesh failed|RendezvousTimeoutError|RendezvousConnectionError"
    r"|client socket has timed out after|Timed out initializing process group"
)
_BROKEN = re.compile(
    r"Connection closed by (?:remote )?peer|Connection reset by peer|No route to host|ncclRemoteError"
    r"|[Nn]etwork is unreachable|received errors while waiting for send/recv"
)
_SIZES = re.compile(r"length <= op\.nbytes\. (\d{1,15}) vs (\d{1,15})|Received data size doesn't match")
_NO_INTERFACE = re.compile(r"Unable to (?:find|resolve) (?:address|interface|hostname).{0,100}")
_CAUSES = {-4: "SIGILL", -7: "SIGBUS", -8: "SIGFPE", -9: "SIGKILL", -11: "SIGSEGV"}
_EFFECTS = {-6: "SIGABRT", -13: "SIGPIPE", -15: "SIGTERM"}
_MOST = 10_000


class SignReader:
    """Takes the lines of one log, in order; ``finish`` gives what they say."""

    def __init__(self, path: str, rank: int | None):
        self.path, self.rank = path, rank
        self.notes: dict[tuple, Note] = {}
        self.tracing: set[int | None] = set()
        self.failed: int | None = None
        self.busy = BusyReader(path, rank)

    def marked(self, line: str) -> bool:
        """Whether a line may be of interest here."""
        return (
            "rror" in line
            or "emory" in line
            or "oom" in line
            or "onnect" in line
            or "rank  " in line
            or "exit" in line
            or "joined" in line
            or "imed out" in line
            or "fault" in line
            or "raceback" in line
            or "nable to" in line
            or "CANCELLED" in line
            or "Test " in line
            or "expected size" in line
            or bool(self.tracing)
        )

    def take(self, lines: list[str], at: int) -> None:
        """Sort one marked line."""
        line = lines[at][:LONGEST]
        labelled = rank_of(line)
        rank = self.rank if labelled is None else labelled
        if "Traceback (most recent" in line:
            self.tracing.add(labelled)
        elif found := _RANK.search(line):
            self.failed = int(found[1])
        elif (found := _CODE.search(line)) and self.failed is not None:
            self._exit(int(found[1]), at)
        elif found := _MEMORY.search(line):
            self._note("out of memory", line[max(0, found.start() - 60) :].strip(), at, rank)
            self.tracing.discard(labelled)
        elif found := _SRUN.search(line):
            self._note("exited", found[0], at, host=found[1])
        elif found := _MPIRUN.search(line):
            self._note("exited", f"exited on signal {found[3]}", at, int(found[1]), found[2])
        elif found := _SIZES.search(line):
            sizes = (
                f": {int(found[1]):,} bytes came, its own call takes {int(found[2]):,}" if found[1] else ""
            )
            self._note("sizes", f"gloo received what does not fit{sizes}", at, rank)
        elif found := _CRASH.search(line):
            host = _HOST.match(line)
            self._note("exited", found[0], at, rank, host[1] if host else "")
        elif not self._apart(lines, at, rank):
            self._raised(line, at, labelled, rank)

    def _exit(self, code: int, at: int) -> None:
        name = _CAUSES.get(code) or _EFFECTS.get(code)
        if code != -15:  # the launcher itself ends the others with SIGTERM
            words = f"ended by {name} (exit code {code})" if name else f"ended with exit code {code}"
            self._note("exited", words, at, self.failed)
        self.failed = None

    def _apart(self, lines: list[str], at: int, rank: int | None) -> bool:
        """Whether a line says that ranks did not come together, or lost each other."""
        line = lines[at]
        text = following(lines, at) if "store" in line or "setting up NCCL" in line else line[:LONGEST]
        if found := _CLIENTS.search(text):
            if int(found[1]) < int(found[2]):
                self._note("no rendezvous", f"{found[1]} of {found[2]} clients joined the store", at, rank)
        elif found := _BARRIER.search(text):
            words = f"{found[2]} of {found[1]} ranks reached the barrier that follows the start"
            self._note("no rendezvous", words, at, rank)
        elif found := _UNIQUE.search(text):
            words = f"waited in vain for the id of the communicator from rank {found[2]}: {found[3].strip()}"
            told = int(found[1]) if rank is None else rank
            self._note("no rendezvous", words, at, told, ranks=(int(found[2]),))
        elif found := _NOT_TOGETHER.search(text):
            self._note("no rendezvous", text[found.start() :].strip(), at, rank)
        elif found := _NO_INTERFACE.search(text):
            self._note("no network", found[0], at, rank)
        elif found := _BROKEN.search(text):
            self._note("connection", text[found.start() :].strip(), at, rank)
        else:
            return False
        return True

    def _raised(self, line: str, at: int, labelled: int | None, rank: int | None) -> None:
        """The last line of a traceback, where it is no consequence of what other ranks did."""
        if labelled in self.tracing and (found := _EXCEPTION.search(line)):
            self.tracing.discard(labelled)
            words = found[1] + (f": {found[2]}" if found[2] else "")
            if not _CONSEQUENCE.search(words):
                self._note("exception", words, at, rank)

    def _note(self, kind, words, at, rank=None, host="", ranks=()) -> None:
        if len(self.notes) < _MOST:
            note = Note(kind, words[:300], f"{self.path}:{at + 1}", rank, host, ranks)
            key = (kind, rank, host) if kind == "out of memory" else (kind, words[:300], rank, host)
            self.notes.setdefault(key, note)

    def finish(self, evidence: Evidence) -> None:
        """Add the notes, and what processes were busy with when the log ends."""
        evidence.notes += self.notes.values()
        self.busy.finish(evidence)


def is_consequence(note: Note) -> bool:
    """Whether an exit may be how a timeout ends a process: by abort, or with an exception's exit code."""
    return note.kind == "exited" and bool(re.search(r"SIGABRT|exit code [1-9]", note.words))
