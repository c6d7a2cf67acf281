"""Parameter prefetch of stage 3 as a layer timeline: which gathers hide, how deep to look, what that needs.

One rank and one micro-batch: L equal layers forward, then backward. Before a layer computes, its parameters
are gathered (all_gather), and they are freed after it; after a layer's backward its full gradient is reduced
and scattered (reduce_scatter). All collectives share one stream and run in the order of their issue, and a
layer's gather is issued before the scatter of the layer just done: the order of PyTorch's FSDP (Zhao et al.
2023, section 3.3). "ZeRO" (Rajbhandari et al. 2020, section 7.2) counts the same collectives.

The prefetch depth d is how many layers ahead a gather may be. It is bounded by memory: d + 1 gathered layers
are alive, so a gather waits until the one d + 1 before it has been freed. With d = 0 a layer is gathered when
it is reached, and none of that hides. Of full gradients two are alive: one is computed, one is scattered.

``prefetch_timeline`` follows the events one by one; ``prefetched`` is a recurrence over layers that takes the
seconds of many plans at once. Tests hold the two equal. Computing is as fast beside a collective as alone; a
GPU does not quite reach that, and both take a ``slow_down`` (``contention.py``).
"""

from dataclasses import dataclass

import numpy as np

from labkit.collectives.place import check_ranks
from labkit.spec.checks import amount, together, whole
from labkit.strategies.checks import flag, numbers, single
from labkit.strategies.contention import slow_down_factor
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline
from labkit.strategies.two_streams import Task, two_streams
from labkit.units import plain

MOST = 10_000  # layers
GRADIENTS = 2  # full gradients of layers that are alive at once
# What the four times are called, and whether they may be 0.
_TIMES = (
    ("the forward of a layer", False),
    ("the backward of a layer", False),
    ("the gather of a layer", True),
    ("the reduce_scatter of a layer", True),
)


def prefetch_timeline(
    layers: int,
    forward: float,
    backward: float,
    gather: float,
    scatter: float,
    depth=1,
    keep_last=False,
    slow_down: float = 1.0,
) -> Timeline:
    """One micro-batch, event by event, from the first gather to the last reduce_scatter.

    Seconds of **one layer**: its ``forward``, its ``backward``, its ``gather``, its ``scatter``. ``depth``:
    layers gathered ahead; ``keep_last``: the last layer, first in the backward, is not freed in between.
    Items: what is computed is numbered from 0 (first forward) to 2 L - 1 (last backward); a gather has the
    number of what it is for, a reduce_scatter L more than the backward it follows. Computing is ``slow_down``
    times slower beside a collective. Refused: layers and depth that are not whole, layers that take no time
    to compute, and negative times.

    >>> t = prefetch_timeline(3, forward=1, backward=2, gather=0.5, scatter=0.25)
    >>> t.span, t.exposed.tolist()  # 9 s of compute; the first gather and the last scatter show
    (9.75, [0.75])
    >>> prefetch_timeline(3, forward=1, backward=2, gather=0.5, scatter=0.25, depth=0).exposed.tolist()
    [3.25]
    """
    layers, depth = _shape(layers, depth, keep_last)
    times = zip((forward, backward, gather, scatter), _TIMES, strict=True)
    forward, backward, gather, scatter = (single(each, what, zero=zero) for each, (what, zero) in times)
    reads = _reads(layers, keep_last)
    tasks: list[Task] = []
    # Where each of them stands in the list of tasks.
    gathers: list[int] = []
    scatters: list[int] = []

    def gather_next(after: tuple[int, ...]) -> None:
        if len(gathers) <= reads[-1]:
            needed_for = len(gathers) + (keep_last and len(gathers) >= layers)
            tasks.append(Task(TRANSFER, needed_for, gather, after))
            gathers.append(len(tasks) - 1)

    for _ in range(depth + 1):
        gather_next(())
    for number, read in enumerate(reads):
        back = number >= layers
        waits = (gathers[read], *scatters[-GRADIENTS : 1 - GRADIENTS])
        tasks.append(Task(*((BACKWARD, number, backward) if back else (FORWARD, number, forward)), waits))
        done = (len(tasks) - 1,)
        if read not in reads[number + 1 : number + 2]:  # freed: there is room for one more
            gather_next(done)
        if back:
            scatters.append(len(tasks))
            tasks.append(Task(TRANSFER, layers + number, scatter, done))
    return two_streams(tasks, slow_down)


@dataclass(frozen=True, slots=True)
class Prefetched:
    """Seconds of one micro-batch: its ``span``, what it computes and what it communicates; or arrays."""

    span: float
    compute: float
    communication: float

    @property
    def exposed(self):
        """Seconds in which the rank communicates and does not compute: what the span has beyond compute."""
        return plain(np.asarray(self.span) - self.compute)

    @property
    def coverage(self):
        """Hidden share of the communication; NaN where there is none."""
        with np.errstate(invalid="ignore"):
            return plain(1 - np.asarray(self.exposed) / self.communication)

    @property
    def compute_idle(self):
        """Idle share of the compute stream: what a missing prefetch shows as."""
        return plain(np.asarray(self.exposed) / self.span)

    @property
    def network_idle(self):
        """Idle share of the communication stream: high where prefetch is good and the network fast."""
        return plain(1 - np.asarray(self.communication) / self.span)


def prefetched(
    layers: int, forward, backward, gather, scatter, depth=1, keep_last=False, slow_down: float = 1.0
) -> Prefetched:
    """What ``prefetch_timeline`` adds up to, for one plan or many: the four times of a layer may be arrays.

    >>> many = prefetched(3, forward=1, backward=2, gather=np.array([0.5, 1, 2]), scatter=0.25)
    >>> many.exposed.tolist()
    [0.75, 1.25, 5.5]
    """
    layers, depth = _shape(layers, depth, keep_last)
    times = zip((forward, backward, gather, scatter), _TIMES, strict=True)
    forward, backward, gather, scatter = (numbers(each, what, zero=zero) for each, (what, zero) in times)
    together("the times of a layer", forward=forward, backward=backward, gather=gather, scatter=scatter)
    slow_down = slow_down_factor(slow_down)
    times = (forward, backward, gather, scatter)
    span, compute = _recurrence(_reads(layers, keep_last), layers, *times, depth, slow_down)
    communication = (2 * layers - keep_last) * gather + layers * scatter
    return Prefetched(*map(plain, np.broadcast_arrays(span, compute, communication)))


def _recurrence(reads, layers, forward, backward, gather, scatter, depth, slow_down):
    """When the last collective ends, and seconds of computing.

    ``now``: end of computing so far; ``wire``: start and stop of each collective.
    """
    now, compute, wire = np.zeros(()), np.zeros(()), [(0.0, np.zeros(()))]

    def send(seconds):
        start = np.maximum(wire[-1][1], now)
        wire.append((start, start + seconds))
        return wire[-1][1]

    gathered = [send(gather) for _ in range(min(depth, reads[-1]) + 1)]
    scattered = []
    for number, read in enumerate(reads):
        back = number >= layers
        for end in (gathered[read], *scattered[-GRADIENTS : 1 - GRADIENTS]):
            now = np.maximum(now, end)
        # Older collectives are over: what is computed had to wait for them.
        begun, beside = now, wire[-depth - GRADIENTS + 1 :] if slow_down > 1 else []
        now = _computed(now, backward if back else forward, beside, slow_down)
        compute = compute + (now - begun)
        if len(gathered) <= min(read + depth + 1, reads[-1]) and read not in reads[number + 1 : number + 2]:
            gathered.append(send(gather))
        if back:
            scattered.append(send(scatter))
    return wire[-1][1], compute


def _computed(now, seconds, beside, slow_down):
    """When ``seconds`` of computing from ``now`` on are done, slowed beside collectives (start, stop)."""
    for start, stop in beside:
        alone = np.minimum(np.maximum(start - now, 0), seconds)
        now, seconds = now + alone, seconds - alone
        slowed = np.minimum(np.maximum(stop - np.maximum(start, now), 0), seconds * slow_down)
        # Where the work ended before the collective starts, nothing is left, and nothing is added.
        now, seconds = now + slowed, seconds - slowed / slow_down
    return now + seconds


def gathered_layers(layers, depth=1):
    """Layers whose weights are whole at once, of ``layers`` on a rank: d + 1, or all where there are fewer.

    ``layers`` may have a fraction (layers / pp), or be 0. Both may be arrays.

    >>> gathered_layers(40, np.array([0, 1, 4])).tolist(), gathered_layers(2.5, 4)
    ([1.0, 2.0, 5.0], 2.5)
    """
    together("prefetched layers", layers=layers, depth=depth)
    depth = np.asarray(whole(depth, "the prefetch depth", 0, arrays=True))
    return plain(np.minimum(depth + 1, amount(layers, "the number of layers", zero=True)))


def whole_gradients(layers):
    """Layers whose gradients are whole at once, of ``layers`` on a rank: two, or all where there are fewer.

    >>> whole_gradients(np.array([0, 1, 40])).tolist()
    [0.0, 1.0, 2.0]
    """
    return plain(np.minimum(GRADIENTS, amount(layers, "the number of layers", zero=True)))


def prefetch_bytes(layers, weights, gradients, depth=1):
    """Bytes beside the shards: d + 1 gathered layers of ``weights`` bytes, two layers' full ``gradients``.

    Two, because a layer's gradient is scattered while the next one's is computed; where nothing overlaps it
    is one. A model with fewer layers has as many. All may be arrays.

    >>> prefetch_bytes(40, 0.63e9, 0.63e9) / 1e9
    2.52
    """
    together("prefetched layers", layers=layers, weights=weights, gradients=gradients, depth=depth)
    layers = whole(layers, "the number of layers", arrays=True)
    weights = amount(weights, "the bytes of a layer's weights", zero=True)
    gradients = amount(gradients, "the bytes of a layer's gradients", zero=True)
    return plain(gathered_layers(layers, depth) * weights + whole_gradients(layers) * gradients)


def break_even_bandwidth(forward, backward, weights, gradients, n, alpha=0.0):
    """Bytes/s that a ring of ``n`` ranks needs so that a prefetched layer hides; infinity: no bandwidth does.

    A gather of ``weights`` bytes takes (n - 1)(alpha + W / (n B)) and must fit under the ``forward`` of a
    layer; a gather and the reduce_scatter of ``gradients`` bytes must fit under its ``backward`` (seconds).
    The larger of the two bandwidths is the answer. From there on one layer ahead is enough: all but the first
    gather and the last scatter of a micro-batch hides. All may be arrays.

    >>> round(break_even_bandwidth(33e-3, 66e-3, 0.63e9, 0.63e9, 64) / 1e9, 2)
    18.79
    """
    given = {"forward": forward, "backward": backward, "weights": weights, "gradients": gradients}
    together("the break-even", **given, n=n, alpha=alpha)
    forward, backward = (
        amount(each, f"the seconds of a layer's {name}")
        for each, name in ((forward, "forward"), (backward, "backward"))
    )
    weights = amount(weights, "the bytes of a layer's weights")
    gradients = amount(gradients, "the bytes of a layer's gradients", zero=True)
    alpha = amount(alpha, "alpha of a link, in seconds,", zero=True)
    n = check_ranks(n)
    rounds = n - 1
    needs = (
        _rate(weights * rounds / n, forward - rounds * alpha),
        _rate((weights + gradients) * rounds / n, backward - 2 * rounds * alpha),
    )
    return plain(np.maximum(*needs))


def _rate(size, seconds):
    """Bytes/s that move ``size`` bytes in the ``seconds`` that latency leaves; infinity where none are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(size == 0, 0.0, np.where(seconds > 0, size / seconds, np.inf))


def _shape(layers, depth, keep_last) -> tuple[int, int]:
    flag(keep_last, "keep_last")
    return whole(layers, "the number of layers", most=MOST), whole(depth, "the prefetch depth", 0, MOST)


def _reads(layers: int, keep_last: bool) -> list[int]:
    """Which gather each of 2 L forwards and backwards needs; the last layer's serves both where kept."""
    return [number - (keep_last and number >= layers) for number in range(2 * layers)]
