"""Section 6.1 on debug logs: what each setting prints, and how the ranks are connected (claim 6.1-d)."""

from labkit.course.table import Table, table
from labkit.evidence.hang.files import read_files
from labkit.evidence.hang.joined import join
from labkit.evidence.hang.records import Evidence
from labkit.evidence.hang.text import read_text
from labkit.evidence.hang.topology import Topology, read_topology
from labkit.evidence.hang_jobs import recorded_hang
from labkit.presets import data_path
from labkit.spec.rule import counted

# Setting, and the sample log made with its traits.
SAMPLES = {
    "NCCL_DEBUG unset": "off",
    "WARN": "warn",
    "INFO": "info",
    "INFO, SUBSYS=INIT,COLL": "info_coll",
}
RECORDER = "flight recorder"


def sample(name: str) -> Evidence:
    """What the reader makes of a sample log."""
    evidence = read_text(_text(name), f"{name}.txt")
    join(evidence)
    return evidence


def _text(name: str) -> str:
    return data_path(f"debug_logs/{name}.txt").read_text("utf-8")


def _lines(name: str) -> int:
    """Lines that NCCL printed, not the training."""
    return sum("NCCL" in line and not line.startswith("#") for line in _text(name).splitlines())


def levels_table() -> Table:
    """Claim 6.1-d: what each setting prints of the same job, as the reader finds it."""
    rows = []
    for setting, name in SAMPLES.items():
        found = sample(name)
        calls, start = len(found.calls), _lines(name) - len(found.calls)
        warned = next((one.split(": ", 1)[1].split(";")[0] for one in found.warnings), "")
        rows.append((setting, str(start), str(calls), warned or ("calls compared" if calls else "nothing")))
    dump = read_files(recorded_hang("branch"))
    rows.append((RECORDER, "0", str(len(dump.calls)), "calls compared, with the lines that made them"))
    return table(("setting", "lines on the start", "calls", "the reader"), rows)


def levels_said() -> str:
    """The same in a sentence."""
    calls = {setting: len(sample(name).calls) for setting, name in SAMPLES.items()}
    warned = next(one.split(": ", 1)[1].split(";")[0] for one in sample("info").warnings)
    named = ", ".join(f"{setting} {counted(number, 'call')}" for setting, number in calls.items())
    made = max(calls.values())
    return f"logs of one job that makes {made} calls: {named}; of the third the reader says '{warned}'"


def topology_view() -> Topology:
    """How the ranks of the sample job are connected, read from its log at INFO."""
    return read_topology(data_path("debug_logs/info.txt"))
