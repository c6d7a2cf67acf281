"""Section 6.3's claims on saving a checkpoint."""

from labkit.course import chapter6_saving as tables
from labkit.course.chapter3_data import GUIDE_PARAMETERS
from labkit.course.claims import claim
from labkit.practice import failures, saving
from labkit.units import GB, digits, format_bytes, format_time

_SIZE = saving.checkpoint_bytes(GUIDE_PARAMETERS)


@claim(
    "6.3-b",
    "Save asynchronously: copy to host memory, go on, write behind 异步保存",
    guide="copy, return at once, a thread writes",
    why="the job waits for the copy, or for nothing where that runs beside the next step; but a save waits "
    "for "
    "the write of the one before it, and what is not yet written does not survive a failure",
)
def behind():
    copy, write = tables.seconds_of(tables.BEHIND, _SIZE, tables.CARDS)

    def stall(way, every):
        return format_time(saving.stall_seconds(way, tables.STEP, every, copy, write))

    mtbf = failures.job_mtbf(failures.reported_failures(), 1024)
    often = tables.format_clock(failures.daly_interval(copy, mtbf))
    seldom = tables.format_clock(failures.daly_interval(_SIZE / tables.ONE_WRITER, mtbf))
    return (
        f"13B on {tables.CARDS} cards, write {format_time(write)}: each save stops it "
        f"{stall(saving.SYNCHRONOUS, 60)} synchronous, {stall(saving.ASYNCHRONOUS, 60)} asynchronous, "
        f"{stall(saving.OVERLAPPED, 60)} with the copy beside a step; saved every 5 s "
        f"{stall(saving.ASYNCHRONOUS, 5)}; best interval on 1,024 cards {often} instead of {seldom}"
    )


@claim(
    "6.3-j",
    "A save can take tens of seconds, all wait for the main process 所有卡都在等主进程写完",
    guide="tens of seconds",
    verdict="approximately",
    why="holds for one writer; where every rank writes its own shard, as frameworks do today, it is seconds",
)
def one_writer():
    alone = saving.write_seconds(_SIZE, tables.ONE_WRITER)
    shared = saving.write_seconds(_SIZE, tables.A_WRITER, tables.WRITERS)
    each = saving.checkpoint_bytes(1.0)
    return (
        f"13B: {digits(each)} B each = {format_bytes(_SIZE)}; one writer at {tables.ONE_WRITER / GB:g} GB/s "
        f"{digits(alone)} s; {tables.WRITERS} writers at {tables.A_WRITER / GB:g} GB/s each "
        f"{digits(shared)} s"
    )


@claim(
    "6.3-k",
    "The copy to the CPU is synchronous too, best with pinned memory 拷到 CPU 这一步本身也是同步的",
    guide="pinned memory",
    why="the update must wait for the copy of what it changes, never for the write; forward and backward "
    "may go "
    "on beside it, so it stops the job only where it is longer than they are",
)
def pinned():
    cards = tables.CARDS
    fast, slow = (saving.copy_seconds(_SIZE, cards, rate) for rate in (tables.PINNED, tables.PAGEABLE))
    stall = saving.stall_seconds(saving.OVERLAPPED, tables.STEP, tables.EVERY, slow, 0.0)
    return (
        f"13B over {cards}: {format_bytes(_SIZE / cards)} a card, {digits(fast)} s at "
        f"{tables.PINNED / GB:g} GB/s "
        f"pinned, {digits(slow)} s at {tables.PAGEABLE / GB:g} pageable, of which a step of "
        f"{format_time(tables.STEP)} hides all but {format_time(stall)}; host memory "
        f"{format_bytes(saving.host_bytes(_SIZE, cards))} per 8 cards"
    )
