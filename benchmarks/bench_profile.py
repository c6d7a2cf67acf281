"""Reading a profiler trace, in a process of its own: its seconds, and the memory that the process took.

``python benchmarks/bench_profile.py 400`` writes a trace of 400 MB, unpacked, and reads it; without a number,
100 MB. Exit status 1: the 100 MB take longer, or any size more memory, than its target.
"""

import gzip
import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from labkit.units import format_bytes, format_time

ROOT = Path(__file__).resolve().parents[1]
SIZE, TARGET, MOST_MEMORY = 100e6, 5.0, 1.5e9
LAYERS = 500  # kernels between two all_reduces
STEP = 20  # all_reduces of a step
GEMM = "void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_bf16_128x256_32x3_nn_align8>(Params)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Found:
    """Bytes of the trace unpacked, seconds to read it, and bytes that its process took at most."""

    size: float
    seconds: float
    memory: float


def measure(size: float) -> Found:
    """Writes a trace of about so many bytes and reads it once, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank-0.json.gz"
        written = write(path, size)
        code = "import benchmarks.bench_profile as bench; bench.run(*__import__('sys').argv[1:])"
        answer = subprocess.check_output([sys.executable, "-c", code, str(path)], cwd=ROOT, text=True)
    return Found(size=written, **json.loads(answer))


def run(path: str) -> None:
    """Prints, as JSON, what ``measure`` reads."""
    from labkit.evidence.profile import read_profile

    start = perf_counter()
    read_profile(path)
    seconds = perf_counter() - start
    peak = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "memory": peak}))


def write(path: Path, size: float) -> int:
    """A trace as PyTorch 2.x writes it: operators, launches, kernels and flows, all_reduces beside them."""
    written = 0
    with gzip.open(path, "wt", compresslevel=1) as file:
        info = {"backend": "nccl", "rank": 0, "world_size": 2}
        head = {"schemaVersion": 1, "distributedInfo": info, "displayTimeUnit": "ms"}
        written += file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        number = 0
        while written < size:
            text = "".join(json.dumps(event) + ",\n" for event in _events(number))
            written, number = written + file.write(text), number + 1
        written += file.write("{}]}")
    return written


def _events(number: int):
    """The rows of one kernel, and of what comes with every so many of them."""
    now, host, args = (
        4458676416788.066 + 25.0 * number,
        {"pid": 2910249, "tid": 2910249},
        {"External id": number},
    )
    if number % (LAYERS * STEP) == 0:
        name = f"ProfilerStep#{number // (LAYERS * STEP)}"
        yield {
            "ph": "X",
            "cat": "user_annotation",
            "name": name,
            **host,
            "ts": now,
            "dur": 25.0 * LAYERS * STEP,
        }
    shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    more = {**args, **shapes, "Record function id": number, "Ev Idx": number}
    yield {"ph": "X", "cat": "cpu_op", "name": "aten::mm", **host, "ts": now, "dur": 21.523, "args": more}
    flow = {"id": number, "cat": "ac2g", "name": "ac2g"}
    called = {**args, "cbid": 211, "correlation": number}
    rows = [(GEMM, 7, 11.231, {})]
    if number % LAYERS == 0:
        group = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2}
        sizes = {"In msg nelems": 6637568, "Out msg nelems": 6637568, "dtype": "BFloat16"}
        rows.append((NCCL, 20, 2636.669, {"Collective name": "allreduce", **group, **sizes}))
    for name, stream, seconds, said in rows:
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **host}
        yield {**launch, "ts": now + 3, "dur": 4.1, "args": called}
        yield {"ph": "s", **flow, **host, "ts": now + 3}
        device = {"device": 0, "context": 1, "stream": stream, "registers per thread": 96, "grid": [8, 1, 1]}
        place = {"pid": 0, "tid": stream, "ts": now + 12}
        kernel = {**called, **device, "block": [544, 1, 1], "est. achieved occupancy %": 31, **said}
        yield {"ph": "X", "cat": "kernel", "name": name, **place, "dur": seconds, "args": kernel}
        yield {"ph": "f", **flow, **place, "bp": "e"}


def main() -> int:
    """Prints the figures; 1 where a target is missed."""
    size = float(sys.argv[1]) * 1e6 if len(sys.argv) > 1 else SIZE
    found = measure(size)
    print(f"{format_bytes(found.size)}: {format_time(found.seconds)}, {format_bytes(found.memory)} at most")
    return int(found.memory > MOST_MEMORY or (size <= SIZE and found.seconds > TARGET))


if __name__ == "__main__":
    sys.exit(main())
