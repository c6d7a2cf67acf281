"""What debug logging costs: step times of a real data-parallel job at each level (claims 6.1-b, 6.1-g).

A small network on gloo: forward, backward, an all_reduce for each tensor of gradients, and the sum of the
loss. NCCL's own levels cost time on GPUs and cannot be measured without one.
"""

import csv
import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.evidence.hang_jobs.table import MOST_RANKS
from labkit.evidence.hang_jobs.torchrun import need_torch, run_torchrun
from labkit.presets.published import recorded
from labkit.spec.checks import whole

AGENT = "labkit.evidence.hang_jobs.overhead_agent"
RING = "2000"  # entries of the recorder, as production keeps it

# The settings, that of no logging first.
SETTINGS = {
    "off": {"TORCH_DISTRIBUTED_DEBUG": "OFF", "TORCH_FR_BUFFER_SIZE": "0"},
    "flight recorder": {"TORCH_DISTRIBUTED_DEBUG": "OFF", "TORCH_FR_BUFFER_SIZE": RING},
    "INFO": {"TORCH_DISTRIBUTED_DEBUG": "INFO", "TORCH_FR_BUFFER_SIZE": "0"},
    "DETAIL": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_FR_BUFFER_SIZE": "0"},
}


@dataclass(frozen=True, slots=True)
class Overhead:
    """A setting, the step time with it, in seconds, and that as a multiple of ``off``.

    ``rounds``: the median step of each round, seconds; ``step`` is their median. ``told``: whether every
    round is slower than all of those without logging; where it is not, the ratio is within what rounds
    differ by anyway.
    """

    setting: str
    step: float
    ratio: float
    rounds: tuple[float, ...]
    told: bool


def log_overhead() -> list[Overhead]:
    """The shipped measurement, ``data/recorded/log_overhead.csv``: one row for each setting, ``off`` first.

    >>> [one.setting for one in log_overhead()]
    ['off', 'flight recorder', 'INFO', 'DETAIL']
    """
    rounds: dict[str, list[float]] = {}
    for row in recorded("log_overhead"):
        rounds.setdefault(row["setting"], []).append(row["step_ms"] / 1e3)
    return _compared(rounds)


def _compared(rounds: dict[str, list[float]]) -> list[Overhead]:
    off = rounds["off"]
    found = []
    for setting, times in rounds.items():
        step = float(np.median(times))
        ratio = step / float(np.median(off))
        found.append(Overhead(setting, step, ratio, tuple(times), min(times) > max(off)))
    return found


def measure_log_overhead(rounds: int = 5, steps: int = 100, ranks: int = 2) -> list[Overhead]:
    """Measures it now, on this machine's CPUs: every setting once in each round, so that all share its moods.

    ``steps`` of a round are timed after 10 that warm up; about 10 s for each setting and round. Refused:
    more than 20 rounds, 1,000 steps or 4 ranks, and a Python without PyTorch.
    """
    rounds, steps = whole(rounds, "the number of rounds", most=20), whole(steps, "the steps", most=1000)
    ranks = whole(ranks, "the number of ranks", 2, MOST_RANKS)
    need_torch()
    found: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
    for _ in range(rounds):
        for setting, more in SETTINGS.items():
            with tempfile.TemporaryDirectory() as folder:
                words = ("-m", AGENT, folder, str(steps))
                run_torchrun(ranks, Path(folder), words, more)
                found[setting].append(float(np.median(json.loads((Path(folder) / "steps.json").read_text()))))
    return _compared(found)


def as_csv(found: list[Overhead]) -> str:
    """The measurement as the shipped file has it."""
    out = io.StringIO()
    out.write(
        "# source: recorded by this project, labkit.evidence.hang_jobs.overhead.measure_log_overhead()\n"
        "# Two processes on two cores, PyTorch with gloo: 16 linear layers of 128 x 128\n"
        "# (overhead_agent.py), an all_reduce for each of their 32 tensors of gradients.\n"
        "# step_ms: median of 100 steps, in milliseconds; off: TORCH_DISTRIBUTED_DEBUG=OFF, no recorder;\n"
        f"# flight recorder: the same with TORCH_FR_BUFFER_SIZE={RING}; INFO, DETAIL: of\n"
        "# TORCH_DISTRIBUTED_DEBUG, without the recorder.\n"
    )
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("round", "setting", "step_ms"))
    for at, row in enumerate(zip(*(one.rounds for one in found), strict=True)):
        for one, seconds in zip(found, row, strict=True):
            writer.writerow((at, one.setting, f"{seconds * 1e3:.3f}"))
    return out.getvalue()
