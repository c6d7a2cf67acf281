"""Whether the host prepares samples as fast as its cards take them, and what each remedy does (guide, 6.2).

A card takes samples at its own rate, so a **host** must supply cards x rate: linear in the cards of a host,
and the same for each host however many there are. Only what hosts share, such as storage, feels all of them.
Workers prepare samples while the step before runs; a step is as long as the slower of the two.
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import LARGEST, amount, noun, one_of, shown, together, whole
from labkit.strategies.checks import share
from labkit.units import format_bytes, format_time, plain

LEAST = 1e-6  # seconds that handing over a sample takes at least


def host_demand(cards, rate):
    """Samples a second that the ``cards`` of one host take, each ``rate`` of them a second.

    >>> host_demand(8, 25.0)
    200.0
    """
    cards, rate = whole(cards, "the cards of a host", arrays=True), amount(rate, "the rate of a card")
    together("a host", cards=cards, rate=rate)
    return plain(cards * rate)


def storage_demand(hosts, cards, rate, sample_bytes):
    """Bytes a second that ``hosts`` together read from storage that they share: here hosts do count.

    >>> storage_demand(32, 8, 25.0, 1e6) / 1e9
    6.4
    """
    hosts = whole(hosts, "the number of hosts", arrays=True)
    sample_bytes = amount(sample_bytes, "the bytes of a sample")
    together("shared storage", hosts=hosts, cards=cards, rate=rate, sample_bytes=sample_bytes)
    return plain(hosts * host_demand(cards, rate) * sample_bytes)


def supply(workers, seconds, cores=np.inf):
    """Samples a second that the loader ``workers`` of a host prepare, each sample in ``seconds`` of a core.

    Beyond the ``cores`` of the host more workers take turns. No worker: the training process loads itself,
    one sample at a time.

    >>> supply(16, 0.04), supply(128, 0.04, cores=64)
    (400.0, 1600.0)
    """
    workers, seconds, cores = _loader(workers, seconds, cores)
    return plain(np.minimum(np.maximum(workers, 1), cores) / seconds)


def workers_needed(cards, rate, seconds):
    """The fewest loader workers of a host that keep up with its cards.

    >>> workers_needed(1, 25.0, 0.04), workers_needed(8, 25.0, 0.04)
    (1, 8)
    """
    demand = np.asarray(host_demand(cards, rate))
    seconds = amount(seconds, "the seconds of a sample")
    together("a loader", demand=demand, seconds=seconds)
    # A demand of exactly so many workers must not become one more by rounding.
    busy = np.ceil(demand * seconds * (1 - 1e-12))
    if np.any(busy > LARGEST):
        raise InputRefused("it takes more than 10^9 workers; check the rate and the seconds of a sample")
    return plain(busy.astype(np.int64))


def loader_wait(step, samples, workers, seconds, cores=np.inf):
    """Seconds of each step that cards wait for input: what preparing takes more than the step.

    ``step``: seconds of a step that never waits; ``samples``: of all cards of a host in a step. With workers
    the samples of the next step are prepared during this one; without (0), all of it is waiting.

    >>> round(loader_wait(0.32, 64, 4, 0.04), 3), round(loader_wait(0.32, 64, 0, 0.04), 3)
    (0.32, 2.56)
    """
    step = amount(step, "the seconds of a step")
    samples = whole(samples, "the samples of a step", arrays=True)
    workers, seconds, cores = _loader(workers, seconds, cores)
    together("a loader", step=step, samples=samples, workers=workers, seconds=seconds, cores=cores)
    prepares = samples * seconds / np.minimum(np.maximum(workers, 1), cores)
    return plain(np.where(workers > 0, np.maximum(prepares - step, 0.0), prepares))


def _loader(workers, seconds, cores):
    workers = np.asarray(whole(workers, "the loader workers of a host", least=0, arrays=True), float)
    seconds = amount(seconds, "the seconds of a sample")
    cores = amount(cores, "the cores of a host", endless=True)
    together("a loader", workers=workers, seconds=seconds, cores=cores)
    return workers, seconds, cores


@dataclass(frozen=True, slots=True)
class Host:
    """A host and its loader: what the remedies start from. Single numbers.

    ``cards``, each with ``samples`` a step of ``step`` seconds; ``workers`` of the whole host on ``cores``;
    ``seconds`` of a core for each sample, of which the share ``decode`` goes into decoding and ``transform``
    into what a card could do as well (resizing, normalising); ``sample_bytes`` as stored. The shares differ
    from task to task: profile a worker.
    """

    cards: int = 8
    samples: int = 8
    step: float = 0.32
    workers: int = 8
    cores: int = 64
    seconds: float = 0.06
    decode: float = 0.5
    transform: float = 0.4
    sample_bytes: float = 1.5e5

    def __post_init__(self):
        for name in ("cards", "samples", "cores"):
            whole(getattr(self, name), f"{name} of a host")
        whole(self.workers, "the loader workers of a host", least=0)
        for name in ("step", "seconds", "sample_bytes"):
            amount(getattr(self, name), f"{name} of a host", arrays=False)
        if share(self.decode, "the share of decoding") + share(self.transform, "that of transforming") > 1:
            raise InputRefused(
                f"decode {shown(self.decode)} and transform {shown(self.transform)} are shares of one "
                "sample; together they are at most 1"
            )

    @property
    def wait(self) -> float:
        """Seconds of each step that its cards wait for input."""
        return loader_wait(self.step, self.cards * self.samples, self.workers, self.seconds, self.cores)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy: the ``host`` with it, its seconds a step, waiting included, and the price in words."""

    name: str
    host: Host
    step: float
    price: str


REMEDIES = ("more workers", "preprocessing on the card", "fixed-length encoded data")


def remedy(host: Host, name: str, card_seconds: float = 1e-3, growth: float = 4.0) -> Remedy:
    """What one of the guide's three remedies does to a host.

    ``more workers``: as many as keep up, at most its cores. ``preprocessing on the card``: the share
    ``transform`` leaves the host and takes ``card_seconds`` of a card for each sample. ``fixed-length encoded
    data``: decoded and transformed once, before training; stored samples are ``growth`` times as large.

    >>> remedy(Host(workers=8), "more workers").price, round(Host(workers=8).wait, 2)
    ('4 more cores', 0.16)
    """
    noun(host, Host, "the host")
    one_of(REMEDIES, name, "the remedy", arrays=False)
    card_seconds = amount(card_seconds, "the seconds of a card for a sample", zero=True, arrays=False).item()
    growth = amount(growth, "the growth of a stored sample", arrays=False).item()
    if name == "more workers":
        needed = workers_needed(host.cards, host.samples / host.step, host.seconds)
        more = max(host.workers, min(needed, host.cores)) - host.workers
        better, price = replace(host, workers=host.workers + more), f"{more} more cores"
    elif name == "preprocessing on the card":
        takes = host.samples * card_seconds
        seconds = max(host.seconds * (1 - host.transform), LEAST)
        better = replace(host, seconds=seconds, step=host.step + takes)
        price = f"{format_time(takes)} of each card a step"
    else:
        seconds = max(host.seconds * (1 - host.decode - host.transform), LEAST)
        better = replace(host, seconds=seconds, sample_bytes=growth * host.sample_bytes)
        price = f"samples of {format_bytes(better.sample_bytes)}, not {format_bytes(host.sample_bytes)}"
    return Remedy(name, better, better.step + better.wait, price)
