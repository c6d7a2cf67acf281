"""Real jobs with one mistake each, which hang or go wrong, and recordings to read without PyTorch."""

from labkit.evidence.hang_jobs.overhead import log_overhead, measure_log_overhead
from labkit.evidence.hang_jobs.run import HangJob, run_hang
from labkit.evidence.hang_jobs.shipped import abort_said, recorded_hang, silences, sums, weights_received
from labkit.evidence.hang_jobs.table import JOBS

__all__ = [
    "JOBS",
    "HangJob",
    "abort_said",
    "log_overhead",
    "measure_log_overhead",
    "recorded_hang",
    "run_hang",
    "silences",
    "sums",
    "weights_received",
]
