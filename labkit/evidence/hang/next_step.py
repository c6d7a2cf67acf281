"""The next command to run, by verdict, with the ranks of the case in it."""

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.findings import Finding
from labkit.evidence.hang.signature import ranks_said

_KEEP = "keep the recorder on (TORCH_FR_BUFFER_SIZE=2000)"
# NCCL_LAUNCH_ORDER_IMPLICIT: NCCL 2.26 release notes.
_STEPS = {
    f.MISMATCH: "compare the lines that make this call{on}: start the job again with "
    "TORCH_DISTRIBUTED_DEBUG=DETAIL, which stops at it with a stack",
    f.ORDER: "give both calls one order on all ranks; with TORCH_DISTRIBUTED_DEBUG=DETAIL the job stops at "
    "the first of them with a stack",
    f.MISSING: "py-spy dump --pid PID{of}: is it in a loader, in a save, in a branch on the rank, out of "
    "batches (then drop_last=True or Join), or gone",
    f.STALL: "run nccl-tests (all_reduce_perf -b 8 -e 1G -f 2 -g 1) over the same hosts; ibstat and "
    "dmesg on each of them",
    f.TOO_SHORT: "give the group that fired a longer limit (timeout= of init_process_group or of new_group), "
    "or load before the first collective",
    f.INTERFACE: "ip -br address on each host; then set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to the "
    "interface that they share",
    f.NEVER: "from each host nc -vz $MASTER_ADDR $MASTER_PORT; count the processes that were started, and "
    "read the first error of those that did not join",
    f.CIRCULAR: "issue the calls of both groups in one order on all ranks, from one thread (or set "
    "NCCL_LAUNCH_ORDER_IMPLICIT=1, NCCL 2.26 and newer), and see that no rank leaves one out",
    f.HEALTHY: f"nothing; for the next time {_KEEP}",
    f.UNDECIDED: f"{_KEEP} and collect the dumps of all ranks",
}


def next_step(finding: Finding) -> str:
    """What to run, to change, or to fetch next."""
    ranks = finding.suspects or finding.absent
    on, of = (f" {word} {ranks_said(ranks)}" if ranks else "" for word in ("on", "of"))
    if finding.gone:
        return f"read the log{of} from its end, and dmesg of the host: why a process ended stands there"
    step = _STEPS[finding.verdict].format(on=on, of=of)
    if not finding.decide:
        return step
    if finding.verdict == f.UNDECIDED:
        return f"fetch {finding.decide}"
    return f"{step}; to tell whose fault it is, fetch {finding.decide}"
