"""A timeline as Chrome's trace format, which Perfetto draws and labkit's own reader of profiles takes back.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format), with the
categories and names of PyTorch's profiler.
"""

import numpy as np

from labkit.units import us

_HOST, _COMPUTING, _COMMUNICATING = 0, 1, 2  # the rows of a lane


def chrome_trace(lane, start, stop, kind, item, transfers: np.ndarray, cause: str) -> dict:
    """The columns of a timeline as a trace: a process ``rank N`` for each lane, times in microseconds.

    ``transfers``: which blocks are communication; they belong to a process group named ``cause``. Each lane
    has a ``ProfilerStep#1`` from the first start to the last stop of all lanes.
    """
    origin, span = start.min(), stop.max() - start.min()
    events = []
    for rank in range(int(lane.max()) + 1):
        events.append(_named(rank, "process_name", _HOST, f"rank {rank}"))
        rows = ((_HOST, "step"), (_COMPUTING, "computing"), (_COMMUNICATING, "communication"))
        events += [_named(rank, "thread_name", row, name) for row, name in rows]
        events.append(_block(rank, _HOST, "user_annotation", "ProfilerStep#1", 0.0, span, {}))
    columns = (lane, start - origin, stop - start, kind, item, transfers)
    for rank, begin, seconds, what, which, travels in zip(*(one.tolist() for one in columns), strict=True):
        args, name, row = {"item": which}, f"{what} {which}", _COMPUTING
        if travels:
            operation = "send" if cause == "pp" else what
            args |= {"Collective name": operation, "Process Group Name": cause}
            name, row = f"nccl {name}", _COMMUNICATING
        events.append(_block(rank, row, "kernel", name, begin, seconds, args))
    return {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events}


def _named(rank: int, what: str, row: int, name: str) -> dict:
    return {"ph": "M", "pid": rank, "tid": row, "name": what, "args": {"name": name}}


def _block(rank: int, row: int, category: str, name: str, begin: float, seconds: float, args: dict) -> dict:
    times = {"ts": float(begin) / us, "dur": float(seconds) / us}
    return {"ph": "X", "pid": rank, "tid": row, "cat": category, "name": name, **times, "args": args}
