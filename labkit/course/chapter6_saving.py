"""Section 6.3 on saving: how long a checkpoint stops the job, and how often to save."""

import numpy as np

from labkit.course.chapter3_data import GUIDE_PARAMETERS
from labkit.course.table import Table, table
from labkit.practice import failures, saving
from labkit.units import GB, digits, format_bytes, format_share, format_time

CARDS = 16  # of claim 6.3-k; eight a host
ONE_WRITER, A_WRITER, WRITERS = 5 * GB, 1 * GB, 32  # of claim 6.3-j
PINNED, PAGEABLE = 25 * GB, 5 * GB  # PCIe 4 x16 in practice; through the driver's own small pinned buffer
STEP, EVERY = 1.0, 500
HOUR = 3600.0
RESTART = 600.0  # seconds until a job has been scheduled, loaded and is back at its speed

ONE, ALL, BEHIND, BESIDE = (
    "one writer, all wait",
    "every card writes, all wait",
    "copy, then write behind",
    "copy beside the step",
)
WAYS = {
    ONE: saving.SYNCHRONOUS,
    ALL: saving.SYNCHRONOUS,
    BEHIND: saving.ASYNCHRONOUS,
    BESIDE: saving.OVERLAPPED,
}


def seconds_of(way: str, size, cards, writer=A_WRITER, one=ONE_WRITER, copy=PINNED) -> tuple:
    """Seconds of the copy to the host and of the write in one of ``WAYS``, of ``size`` bytes in all."""
    write = saving.write_seconds(size, one) if way == ONE else saving.write_seconds(size, writer, cards)
    copied = saving.copy_seconds(size, cards, copy) if way in (BEHIND, BESIDE) else 0.0
    return copied, write


def saves_table(cards=WRITERS, step=STEP, every=EVERY) -> Table:
    """Claims 6.3-b and 6.3-j: the guide's 13B saved in four ways, every ``every`` steps."""
    size = saving.checkpoint_bytes(GUIDE_PARAMETERS)
    rows = []
    for name, way in WAYS.items():
        copy, write = seconds_of(name, size, cards)
        stall = saving.stall_seconds(way, step, every, copy, write)
        share = saving.stall_share(way, step, every, copy, write)
        rows.append((name, format_time(copy), format_time(write), format_time(stall), format_share(share)))
    return table(("way of saving", "copy", "write", "the job stands still", "of its time"), rows)


def copies_table(cards=CARDS) -> Table:
    """Claim 6.3-k: the copy into pinned and into pageable host memory."""
    size = saving.checkpoint_bytes(GUIDE_PARAMETERS)
    rows = []
    for name, rate in (("pinned 锁页", PINNED), ("pageable", PAGEABLE)):
        seconds = format_time(saving.copy_seconds(size, cards, rate))
        held = format_bytes(saving.host_bytes(size, cards))
        rows.append((name, format_bytes(size / cards), f"{rate / GB:g} GB/s", seconds, held))
    return table(("host memory", "a card copies", "at", "takes", "held by 8 cards' host"), rows)


def interval_table(cards=(64, 1024, 16384), stall=36.4, restart=RESTART) -> Table:
    """The best interval by Young and by Daly, and what the job loses there, for clusters of several sizes."""
    rows = []
    for n in cards:
        mtbf = failures.job_mtbf(failures.reported_failures(), n)
        for name, save in (("all wait for one writer", stall), ("asynchronous", 0.5)):
            young, daly = failures.young_interval(save, mtbf), failures.daly_interval(save, mtbf)
            late = stall if save < stall else 0.0
            lost = failures.lost_share(daly, save, mtbf, restart, late)
            every = (format_clock(young), format_clock(daly))
            rows.append((f"{n:,}", format_clock(mtbf), name, *every, format_share(lost)))
    heads = ("cards", "a failure every", "saving", "Young", "Daly", "lost there")
    return table(heads, rows)


def optimum(save: float, mtbf: float, restart: float = 0.0) -> float:
    """The interval of least cost, found by trying: what the formulas are held against."""
    tried = np.geomspace(save / 100 + 1e-3, 20 * mtbf, 400_001)
    return float(tried[np.argmin(failures.lost_share(tried, save, mtbf, restart))])


def format_clock(seconds: float) -> str:
    """Seconds as seconds, minutes, hours or days, whichever reads best.

    >>> format_clock(90), format_clock(11 * 3600), format_clock(30)
    ('1.5 min', '11 h', '30 s')
    """
    for size, unit in ((86400.0, "days"), (HOUR, "h"), (60.0, "min")):
        if seconds >= (2 * size if unit == "days" else size):
            return f"{digits(seconds / size)} {unit}"
    return format_time(seconds)
