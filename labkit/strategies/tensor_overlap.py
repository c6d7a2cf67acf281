"""What of tensor parallel's communication can be hidden: small timelines of one rank's two streams.

A block's all_reduce needs its product, and the next block needs the all_reduce: forward, the data dependence
alone leaves nothing to run beside it. Work that does not depend on it must be made: by cutting the product
and the all_reduce in chunks, or by taking two halves of the micro-batch in turn. Backward there is some: the
weight gradient needs nothing of the all_reduce of the input gradient (Shoeybi et al. 2019; Narayanan et al.
2021, section 4.2; Wang et al. 2023, ASPLOS, for cutting the product).

Times are seconds; ``all_reduce`` is a function of the share of the tensor that it carries, from 0 to 1, so
that latency is paid for each piece. Computing beside an all_reduce takes ``slow_down`` times as long
(``contention.py``). The products are taken to be as fast per element in pieces as in one: a bound that a GPU
does not quite reach.
"""

from collections.abc import Callable

from labkit.spec.checks import whole
from labkit.strategies.checks import function, single
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline
from labkit.strategies.two_streams import Task, two_streams

MOST = 10_000  # chunks or blocks


def in_turn(compute: float, all_reduce: Callable[[float], float], blocks: int = 4) -> Timeline:
    """Forward as it stands: a block computes, its all_reduce runs, then the next block may start.

    >>> t = in_turn(3.0, lambda share: share, blocks=2)
    >>> t.span, t.coverage
    (8.0, 0.0)
    """
    return in_chunks(compute, 0.0, all_reduce, 1, blocks)


def in_chunks(
    before: float,
    product: float,
    all_reduce: Callable[[float], float],
    chunks: int,
    blocks: int = 4,
    slow_down: float = 1.0,
) -> Timeline:
    """Forward with a block's last product cut by tokens: chunk i travels while chunk i + 1 is computed.

    ``before``: seconds of the block's work before that product. The next block's norm and product would need
    a chunk's rows only, but its attention all of them: it waits for the last chunk.

    >>> t = in_chunks(2.0, 1.0, lambda share: share, chunks=4, blocks=1)
    >>> t.span, t.coverage
    (3.25, 0.75)
    """
    function(all_reduce, "the all_reduce")
    chunks, blocks = _count(chunks, "chunks"), _count(blocks, "blocks")
    before, product = (single(part, "the seconds of a block", zero=True) for part in (before, product))
    tasks: list[Task] = []
    travels = all_reduce(1 / chunks)
    for block in range(blocks):
        waits = (len(tasks) - 1,) if tasks else ()
        tasks.append(Task(FORWARD, block, before, waits))
        for _ in range(chunks):
            tasks.append(Task(FORWARD, block, product / chunks))
            tasks.append(Task(TRANSFER, block, travels, (len(tasks) - 1,)))
    return two_streams(tasks, slow_down)


def half_batches(
    compute: float, all_reduce: Callable[[float], float], blocks: int = 4, slow_down: float = 1.0
) -> Timeline:
    """Forward with the micro-batch in two halves taken in turn: one computes while the other communicates.

    >>> t = half_batches(2.0, lambda share: share, blocks=4)
    >>> t.span, t.coverage  # only the last all_reduce, of half the tensor, shows
    (8.5, 0.875)
    """
    function(all_reduce, "the all_reduce")
    blocks = _count(blocks, "blocks")
    compute = single(compute, "the seconds of a block", zero=True)
    tasks: list[Task] = []
    travels = all_reduce(1 / 2)
    for block in range(blocks):
        for _ in range(2):
            # The half's own all_reduce of the block before is the third task back.
            waits = (len(tasks) - 3,) if block else ()
            tasks.append(Task(FORWARD, block, compute / 2, waits))
            tasks.append(Task(TRANSFER, block, travels, (len(tasks) - 1,)))
    return two_streams(tasks, slow_down)


def beside_weight_gradients(
    input_gradient: float,
    weight_gradient: float,
    all_reduce: Callable[[float], float],
    blocks: int = 4,
    slow_down: float = 1.0,
) -> Timeline:
    """Backward: a block's all_reduce of the input gradient runs beside ``weight_gradient`` s of products.

    The block before it needs the all_reduce, so it hides for as long as those products last.

    >>> t = beside_weight_gradients(2.0, 0.75, lambda share: share, blocks=1)
    >>> t.span, t.coverage
    (3.0, 0.75)
    """
    function(all_reduce, "the all_reduce")
    blocks = _count(blocks, "blocks")
    tasks: list[Task] = []
    travels = all_reduce(1.0)
    for block in range(blocks):
        waits = (len(tasks) - 2,) if tasks else ()
        tasks.append(Task(BACKWARD, block, input_gradient, waits))
        tasks.append(Task(TRANSFER, block, travels, (len(tasks) - 1,)))
        tasks.append(Task(BACKWARD, block, weight_gradient))
    return two_streams(tasks, slow_down)


def _count(value, what: str) -> int:
    return whole(value, f"the number of {what}", most=MOST)
