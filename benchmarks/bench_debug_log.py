"""How fast a debug log of NCCL is read: 60 MB of start-up lines, calls and training output, mixed."""

import time

from labkit.evidence.hang.collector import nothing_collected
from labkit.evidence.hang.joined import join
from labkit.evidence.hang.text import read_text

SIZE = 60_000_000  # characters
TARGET = SIZE / 30e6  # seconds: 30 MB/s
_PLACE = "{host}:{pid}:{pid} [{device}] NCCL INFO "
_CALL = (
    _PLACE + "AllReduce: opCount {number:x} sendbuff 0x7f5dd32b2100 recvbuff 0x7f5dd32b2100 count 9984512 "
    "datatype 7 op 0 root 0 comm 0x55bef020137{device} [nranks=32] stream 0x55bef0208bd0\n"
)
_START = (  # as of one rank of 16 channels: most lines are of rings and links
    *(_PLACE + "Channel {channel:02d}/0 : {device}[{device}] -> 7[7] via P2P/CUMEM\n" for _ in range(18)),
    _PLACE + "comm 0x55bef020137{device} rank {rank} nranks 32 cudaDev {device} nvmlDev {device} busId 8d000 "
    "commId 0x753d166fb39e1659 - Init COMPLETE\n",
    _PLACE + "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.{rank}<0>\n",
)
_TRAINING = (
    "0: 2025-06-17 16:24:{second:02d} I [train.py:103] Batch {number} Loss: 11.61653, Speed: 4.9 samples/s\n"
)


def made_log(size: int = SIZE) -> str:
    """About ``size`` characters: a third of the lines of each kind, of 32 ranks on 4 hosts."""
    block = []
    for line in range(3 * 32 * 30):
        rank = line // 3 % 32
        values = {
            "host": f"node{rank // 8:02d}",
            "pid": 45000 + rank,
            "device": rank % 8,
            "rank": rank,
            "number": 1 + line // 96,
            "channel": line // 96 % 16,
            "second": line % 60,
        }
        kind = (_CALL, _START[line // 3 % 20], _TRAINING)[line % 3]
        block.append(kind.format(**values))
    whole = "".join(block)
    return whole * (size // len(whole) + 1)


def seconds() -> float:
    """Seconds of this process for one pass over the log, the best of three."""
    text = made_log()
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        with nothing_collected():  # as read_hang does
            evidence = read_text(text, "job.log")
            join(evidence)
        taken.append((time.perf_counter() - start) * SIZE / len(text))
        assert evidence.calls and len(evidence.communicators) == 32
        del evidence
    return min(taken)
