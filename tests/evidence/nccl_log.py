"""Writes logs in the layouts of nccl-tests, one for each generation of its columns, and checks sweeps."""

import numpy as np

from labkit import read_sweep
from labkit.collectives import busbw_factor

FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda n: 1,
    "reduce": lambda n: 1,
    "send_recv": lambda n: 1,
}
PROGRAMS = {"all_to_all": "alltoall_perf", "send_recv": "sendrecv_perf"}
# redop and root cells of each collective; the old tests left columns out
CELLS = {
    "all_reduce": ("sum", "-1"), "reduce_scatter": ("sum", "-1"), "all_gather": ("none", "-1"),
    "all_to_all": ("none", "-1"),
    "broadcast": ("none", "0"), "reduce": ("sum", "0"), "gather": ("none", "0"), "scatter": ("none", "0"),
    "send_recv": ("sum", "-1"),
}  # fmt: skip
OLD_COLUMNS = {
    "all_reduce": ("redop",), "reduce_scatter": ("redop",), "all_gather": (), "all_to_all": ("redop",),
    "send_recv": (),
    "broadcast": ("root",), "reduce": ("redop", "root"), "gather": ("root",), "scatter": ("root",),
}  # fmt: skip
SIZES = [2**k for k in range(10, 31)]


def straight(n, alpha=20.0, rate=50e3, sizes=SIZES):
    """Rows (size, out-of-place µs, in-place µs) on T = alpha + S / rate, rate in bytes/µs."""
    return [(size, alpha + size / rate, 1.01 * alpha + size / rate) for size in sizes]


def fixed(value, width):
    """A number in so many columns with as many decimals as fit, two at most."""
    for decimals in (2, 1, 0):
        if len(text := f"{value:{width}.{decimals}f}") <= width:
            return text
    return f"{value:{width}.1e}"


def time_cell(value):
    """Microseconds as the tests print them."""
    return f"{value:7.2f}" if value < 100 else f"{value:7.1f}" if value < 10000 else f"{value:7.0f}"


def half(op, n, size, time, wrong, old):
    rate = size / time / 1e3
    bus = rate * FACTORS.get(op, lambda n: (n - 1) / n)(n)
    cells = time_cell(time), f"{rate:6.2f}", f"{bus:6.2f}"
    return "  {:>7}  {:>6}  {:>6}  {:>{}}".format(*cells, wrong, 5 if old else 6)


def row(
    op, n, size, time, in_place, generation="new", wrong="0", in_place_wrong=None, data_type="float", width=4
):
    """One row as the tests of a generation print it."""
    old = generation == "old"
    shared = op in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    redop, root = CELLS[op]
    if old:
        redop = "" if op == "all_to_all" else redop
        cells = "".join(f"  {(redop if name == 'redop' else root):>6}" for name in OLD_COLUMNS[op])
    else:
        cells = f"  {redop:>6}  {root:>6}"
    count = size // (width * (n if shared else 1))
    return (
        f"{size:12d}  {count:12d}  {data_type:>{6 if old else 8}}{cells}"
        + half(op, n, size, time, wrong, old)
        + half(op, n, size, in_place, wrong if in_place_wrong is None else in_place_wrong, old)
    )


def head(op, generation="new"):
    """The three lines above the rows."""
    names = OLD_COLUMNS[op] if generation == "old" else ("redop", "root")
    last = {"old": "  error", "middle": " #wrong", "new": "  #wrong"}[generation]
    cells = "".join(f"  {name:>6}" for name in names)
    side = "     time   algbw   busbw" + last
    return [
        "#" + " " * 60 + "out-of-place                       in-place",
        f"#       size         count    type{cells}{side}{side}",
        "#        (B)    (elements)    (us)  (GB/s)  (GB/s)    (us)  (GB/s)  (GB/s)",
    ]


def devices(n, per_node=8, group=True):
    """The device list."""
    middle = " Group  0" if group else ""
    return [
        f"#  Rank {rank:2d}{middle} Pid {4000 + rank:6d} on node{rank // per_node + 1:02d} "
        f"device {rank % per_node:2d} [0x07] GPU"
        for rank in range(n)
    ]


def log(op="all_reduce", n=8, rows=None, generation="new", gpus=1, **cells):
    """A whole log as text."""
    old = generation == "old"
    program = PROGRAMS.get(op, f"{op}_perf")
    lines = [f"# Collective test starting: {program}"] if generation == "new" else []
    lines += [
        f"# nThread 1 nGpus {gpus} minBytes 1024 maxBytes 1073741824 step: 2(factor) "
        "warmup iters: 5 iters: 20 validation: 1"
    ]
    lines += ["#", "# Using devices", *devices(n, group=not old), "#", *head(op, generation)]
    lines += [row(op, n, *entry, generation, **cells) for entry in rows or straight(n)]
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 42.5 ", "#"]
    lines += [f"# Collective test concluded: {program}"] if generation == "new" else []
    return "\n".join(lines) + "\n"


def report(op="all_reduce", processes=2, ngpus=1, rows=None, **changes):
    """The object that ``-J`` writes; ``changes`` replace keys of it."""
    n = processes * ngpus
    results = []
    for size, out, inp in rows or straight(n):
        halves = {}
        for name, time in (("out_of_place", out), ("in_place", inp)):
            rate = size / time / 1e3
            bus = rate * FACTORS.get(op, lambda n: (n - 1) / n)(n)
            halves[name] = {
                "time": round(time, 6),
                "alg_bw": round(rate, 6),
                "bus_bw": round(bus, 6),
                "nwrong": 0.0,
            }
        shared = op in ("all_gather", "reduce_scatter", "all_to_all")
        redop, root = CELLS[op]
        cells = {"size": size, "count": size // (4 * (n if shared else 1)), "type": "float", "redop": redop}
        results.append(
            {**cells, "root": f"{root:>6}", **halves, "actual_iterations": 20, "experiment_name": ""}
        )
    listed = [
        {"rank": process * ngpus, "group": 0, "pid": 40 + process, "hostname": "node01", "device": 0}
        for process in range(processes)
    ]
    return {
        "version": 3,
        "args": [f"/opt/nccl-tests/build/{PROGRAMS.get(op, op + '_perf')}", "-b", "1K"],
        "env": ["PATH=/usr/bin", "SECRET=do-not-show"],
        "nccl_version": 23007,
        "config": {"nthreads": 1, "ngpus": ngpus, "parallel_init": "false", "devices": listed},
        "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 14.9, "okay": "unchecked"},
        "errors": [""],
        **changes,
    }


def rccl_records(op, processes, gpus):
    """The records of rccl-tests for ``processes`` of ``gpus`` each, None for a build without MPI."""
    n, records = (processes or 1) * gpus, []
    if processes:
        run = {"nodes": 1, "ranks": processes, "ranksPerNode": processes, "gpusPerRank": gpus}
    else:
        run = {"gpus": gpus}
    name = {"all_to_all": "AlltoAll"}.get(op, op.title().replace("_", ""))
    for size, *times in straight(n):
        for place, time in enumerate(times):
            rate = size / time / 1e3
            bus = rate * FACTORS.get(op, lambda n: (n - 1) / n)(n)
            received = size // n if op == "reduce_scatter" else size
            cells = {"size": received, "type": "float", "redop": CELLS[op][0], "inPlace": place}
            printed = {"time": round(time, 6), "algBw": round(rate, 6), "busBw": round(bus, 6), "wrong": "0"}
            records.append({"numCycle": 0, "name": name, **run, **cells, **printed})
    return records


LINES = log().split("\n")
FIRST = next(at for at, line in enumerate(LINES) if line[:1] == " ")  # the line of the first row, from 0
BARE = "\n".join(line for line in LINES if line[:1] == " ") + "\n"


def one(text, n_ranks=None):
    """The only sweep of a text."""
    (sweep,) = read_sweep(text, n_ranks)
    return sweep


def check(sweep, op="all_reduce", n=8, rows=None):
    """The sweep carries these rows whole."""
    expected = rows or straight(n)
    assert (sweep.collective, sweep.n_ranks) == (op, n)
    assert sweep.size.tolist() == [entry[0] for entry in expected]
    np.testing.assert_allclose(sweep.time, [entry[1] * 1e-6 for entry in expected], rtol=6e-4)
    np.testing.assert_allclose(sweep.in_place.time, [entry[2] * 1e-6 for entry in expected], rtol=6e-4)
    np.testing.assert_allclose(sweep.algbw, sweep.size / sweep.time)
    np.testing.assert_allclose(sweep.busbw, sweep.algbw * busbw_factor(op, n))
