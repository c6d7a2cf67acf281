"""Section 5.3 as tables: the start of a job in order, what rank 0 prints, the price of a hang and of a wrong
interface; and the gloo sweeps recorded here, with what their fits cannot tell.

The runs are files of ``data/launch`` and ``data/sweeps``; each says how it was made.
"""

import ast
import inspect
import re
import textwrap

import numpy as np

from labkit.course.chapter2_bandwidth import sample
from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.evidence.bench_group import start
from labkit.evidence.bench_log import read_p99
from labkit.evidence.bench_options import parse
from labkit.evidence.findings import ODD
from labkit.evidence.sweep import Sweep, read_sweep
from labkit.presets import data_path, sample_sweeps
from labkit.spec.checks import amount, together
from labkit.units import GiB, MiB, digits, format_memory, format_rate, format_size, format_time, plain

ALONE, QUIET, BUSY = "gloo-2ranks-cpu", "gloo-4ranks-cpu", "gloo-4ranks-busy"
GLOO = {
    ALONE: "2 ranks, a core each",
    QUIET: "4 ranks on 2 cores",
    BUSY: "4 ranks on 2 cores, other programs too",
}
DATA, MANAGEMENT = "eth0", "mgmt0"

# ---- the order of the start

# What a step does to the cards. init_process_group touches none unless it is given a device: NCCL waits for
# the first collective (PyTorch; gpt-fast pull request 56). Binding makes a context on the card that is bound.
BIND, GROUP, GATHER, BARRIER, LOAD = "bind", "group", "gather", "barrier", "load weights"
ORDERS = (
    (BIND, GROUP, GATHER, BARRIER, LOAD),
    (GROUP, BIND, GATHER, BARRIER, LOAD),
    (GROUP, LOAD, BIND, GATHER, BARRIER),
    (LOAD, GROUP, GATHER, BIND, BARRIER),
)
# One context with all kernels loaded (PyTorch 2.1, A100-80GB, stas00/ml-engineering; 0.47 before most are).
CONTEXT = 0.92 * GiB


def contexts_of(order, cards: int = 8) -> list[int]:
    """Contexts on each card of a host whose ``cards`` processes take the steps in this order.

    A process's current card is 0 until it binds its own; a step that touches a card makes a context there.

    >>> contexts_of(("bind", "group", "gather"), 4), contexts_of(("load weights", "bind", "gather"), 4)
    ([1, 1, 1, 1], [4, 1, 1, 1])
    """
    if unknown := [step for step in order if step not in ORDERS[0]]:
        raise InputRefused(f"{unknown[0]!r} is no step of the start; use {', '.join(ORDERS[0])}")
    count = [0] * cards
    for local_rank in range(cards):
        current, held = 0, set()
        for step in order:
            current = local_rank if step == BIND else current
            held |= {current} if step != GROUP else set()
        for card in held:
            count[card] += 1
    return count


def contexts_table(cards: int = 8) -> Table:
    """Claim 5.3-h: contexts by the order of the steps, and what the stray ones take of card 0."""
    rows = []
    for order in ORDERS:
        first, *others = contexts_of(order, cards)
        stray = (first - 1) * CONTEXT
        rows.append((", ".join(order), first, others[0], format_memory(stray) if stray else "0 GB"))
    heads = (f"order, on each of {cards} processes", "on card 0", "on each other card", "lost on card 0")
    return table(heads, rows)


def launcher_order() -> list[tuple[str, bool]]:
    """The steps in the order in which labkit's launcher calls them; True for one under a rank condition."""
    steps = ("bind", "init_process_group", "gathered", "say", "barrier")
    code = ast.parse(textwrap.dedent(inspect.getsource(start))).body[0]
    under = {id(node) for branch in ast.walk(code) if isinstance(branch, ast.If) for node in ast.walk(branch)}
    calls = [node for node in ast.walk(code) if isinstance(node, ast.Call)]
    named = [(node.lineno, getattr(node.func, "attr", getattr(node.func, "id", "")), node) for node in calls]
    found: dict[str, bool] = {}
    for _, name, node in sorted(named, key=lambda at: at[0]):
        found.setdefault(name, id(node) in under)
    return [(name, inside) for name, inside in found.items() if name in steps]


# ---- what a run of it said


def recorded(name: str) -> str:
    """The text of a file of ``data/launch``."""
    return (data_path("launch") / name).read_text("utf-8")


def topology_print() -> str:
    """What rank 0 printed at the start of a job of two hosts with two ranks each."""
    lines = recorded(f"two-hosts-{DATA}.txt").splitlines()
    return "\n".join(line for line in lines if re.match(r"# (rank \d|network|contexts|seconds)", line))


def start_seconds() -> dict[str, str]:
    """What the steps of that start took on rank 0."""
    said = re.search(r"# seconds of the start, on rank 0: (.*)", topology_print())[1]
    return {step: took for step, took in re.findall(r"([a-z ]+) ([\d.]+ [µm]?s)(?:, |$)", said)}


def waits() -> list[tuple[int, float, str, str]]:
    """Claim 5.3-d, the gather inside the branch as run: rank, seconds waited, where, and what torch said."""
    found = re.findall(
        r"^rank (\d+) waited ([\d.]+) s in the (\w+): (.*)$", recorded("gather_in_branch.txt"), re.MULTILINE
    )
    return [(int(rank), float(seconds), where, said) for rank, seconds, where, said in found]


def waits_table() -> Table:
    """Claim 5.3-d: every rank of the wrong version, where it waited, and for how long."""
    rows = ((rank, where, format_time(seconds), said) for rank, seconds, where, said in waits())
    return table(("rank", "waited in its", "for", "and said"), rows)


# ---- limits

# Minutes: torch.distributed.constants, and PyTorch pull request 110947 for NCCL (since 2.2).
DEFAULT_LIMITS = {"NCCL": 10.0, "gloo and others": 30.0}
GUIDE_LIMIT, CARDS = 30.0, 64
RUN_LIMIT = parse(["all_reduce"]).run_timeout
# A line of NCCL's watchdog, from NVIDIA/Megatron-LM issue 1207.
_WATCHDOG = (
    "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) "
    "ran for 600013 milliseconds"
)


def card_hours(minutes, cards, hangs=1.0):
    """Hours that all cards together wait until ``hangs`` hangs have reached a limit in minutes; broadcasts.

    >>> card_hours(30, 64), card_hours(np.array([10.0, 30.0]), 1024).round(1).tolist()
    (32.0, [170.7, 512.0])
    """
    together("the price of a hang", minutes=minutes, cards=cards, hangs=hangs)
    minutes = amount(minutes, "the limit in minutes")
    return plain(minutes / 60 * amount(cards, "the number of cards") * amount(hangs, "the hangs", zero=True))


def price_table(cards=(8, CARDS, 1024, 16384)) -> Table:
    """Claim 5.3-f: card-hours that one hang costs, by limit and number of cards."""
    limits = {
        "default of NCCL": DEFAULT_LIMITS["NCCL"],
        "the guide's; default of gloo": GUIDE_LIMIT,
        "labkit's, once all ranks are there": RUN_LIMIT,
    }
    rows = (
        (name, f"{minutes:g} min", *(f"{card_hours(minutes, n):,.4g}" for n in cards))
        for name, minutes in limits.items()
    )
    return table(("limit", "", *(f"card-hours, {n:,} cards" for n in cards)), rows)


def message_fields() -> dict[str, str]:
    """What the watchdog's line names: operation, sequence number, elements, limit and time."""
    number, op, elements, limit, ran = re.search(
        r"SeqNum=(\d+), OpType=(\w+), NumelIn=(\d+),.*Timeout\(ms\)=(\d+)\) ran for (\d+)", _WATCHDOG
    ).groups()
    return {
        "operation": op,
        "its number in the group": number,
        "elements sent": elements,
        "limit": format_time(int(limit) / 1e3),
        "time waited": f"{int(ran) / 1e3:.2f} s",
    }


def message_table() -> Table:
    """Claim 5.3-f: what the error of a timeout names, from NCCL's watchdog and from gloo, both as logged."""
    _, _, _, gloo = waits()[0]
    limit = format_time(int(re.search(r"(\d+)ms", gloo)[1]) / 1e3)
    rows = [
        (what, value, limit if what == "limit" else "not named") for what, value in message_fields().items()
    ]
    return table(("the error names", "NCCL", "gloo"), rows)


# ---- the interface

PORT_RATES = (100.0, 200.0, 400.0)  # Gb/s of an RDMA port, as built since 2015
MANAGEMENT_RATE = 10.0


def interface_sweep(interface: str) -> Sweep:
    """The recorded job of two hosts over one of their interfaces."""
    (sweep,) = read_sweep(recorded(f"two-hosts-{interface}.txt"))
    return sweep


def interface_table() -> Table:
    """Claim 5.3-g: one job of two hosts, over their data interface and over their management interface."""
    fast, slow = interface_sweep(DATA), interface_sweep(MANAGEMENT)
    rows = (
        (
            format_size(size),
            format_time(quick),
            format_time(late),
            f"{late / quick:.1f}x",
            *map(format_rate, rates),
        )
        for size, quick, late, *rates in zip(
            fast.size, fast.time, slow.time, fast.busbw, slow.busbw, strict=True
        )
    )
    names = (f"{DATA}, 1 Gb/s", f"{MANAGEMENT}, 100 Mb/s")
    return table(("size", *names, "longer", *(f"busbw {name}" for name in (DATA, MANAGEMENT))), rows)


def interface_ratio() -> float:
    """How much longer the recorded job takes over the management interface: the median of its sizes."""
    return float(np.median(interface_sweep(MANAGEMENT).time / interface_sweep(DATA).time))


# ---- the gloo sweeps


def gloo_table() -> Table:
    """One program on the same two cores three times: what its fits say, and how far single rows are off."""
    rows = []
    for name, words in GLOO.items():
        sweep, fit = sample(name)
        p99 = read_p99(sample_sweeps()[name].read_text("utf-8"))
        late = max(p99[int(size)] / time for size, time in zip(sweep.size, sweep.time, strict=True))
        off = np.abs(np.log(sweep.time / fit.predict(sweep.size)))
        rows.append(
            (
                words,
                f"{format_time(fit.alpha)} ± {format_time(fit.alpha_error)}",
                format_time(fit.link("ring").alpha),
                f"{format_rate(fit.bandwidth)} ± {format_rate(fit.bandwidth_error)}",
                f"{np.count_nonzero(off > np.log(ODD))} of {off.size}",
                f"{late:.1f}x",
            )
        )
    heads = ("gloo", "alpha", "of a hop", "bandwidth (algbw)", "rows off by a quarter", "worst P99 / median")
    return table(heads, rows)


def gloo_sizes_table(sizes=(2**10, 2**16, MiB, 2 * MiB, 4 * MiB, 8 * MiB, 64 * MiB)) -> Table:
    """Median and P99 of some sizes of both sweeps."""
    rows = []
    for size in sizes:
        cells = []
        for name in (QUIET, BUSY):
            sweep, _ = sample(name)
            (median,) = sweep.time[sweep.size == size]
            p99 = read_p99(sample_sweeps()[name].read_text("utf-8"))[size]
            cells += [f"{digits(1e3 * seconds)} ms" for seconds in (median, p99)]
        rows.append((format_size(size), *cells))
    return table(("size", "quiet: median", "P99", "busy: median", "P99"), rows)
