"""Traces made row by row, with the traits of those that profilers write."""

import gzip
import json

CORE = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm>(Params)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def row(name, ts, dur, cat="kernel", pid=0, tid=7, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def compute(ts, dur, **args):
    return row(CORE, ts, dur, **args)


def comm(ts, dur, name=NCCL, tid=20, **args):
    return row(name, ts, dur, tid=tid, **args)


def step(number, ts, dur):
    return row(f"ProfilerStep#{number}", ts, dur, cat="user_annotation", pid=99, tid=99)


def launch(correlation, ts, dur=2.0, name="cudaLaunchKernel", tid=99):
    return row(name, ts, dur, cat="cuda_runtime", pid=99, tid=tid, correlation=correlation)


def described(op="allreduce", elements=1000, group="0", ranks=(0, 1), desc="default_pg", seq=None, **more):
    said = {
        "Collective name": op,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": len(ranks),
        "dtype": "Float",
        "Process Group Name": group,
        "Process Group Description": desc,
        "Process Group Ranks": str(list(ranks)),
    }
    return {**said, **({} if seq is None else {"Seq": seq}), **more}


def write(path, events, rank=0, world=2, **head):
    info = {"backend": "nccl", "rank": rank, "world_size": world}
    info = {key: value for key, value in info.items() if value is not None}
    text = json.dumps({"schemaVersion": 1, "distributedInfo": info, **head, "traceEvents": events})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path
