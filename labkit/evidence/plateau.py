"""Is a plateau of bus bandwidth healthy? A band that knows the algorithm and the size of the message.

busbw counts the bytes of a ring, 2(N-1)/N of the message. What sends fewer may show a busbw above the rate of
its link: reduction in the switch sends (N+1)/N (nccl-tests issues 212 and 238), two trees over two nodes send
the message once each way. A ring cannot pass that rate, and packets take a part of it: of the 25 GB/s of an
NVLink that carries 128 bytes a packet 20 are payload (nccl-tests issue 149).
"""

from dataclasses import dataclass

import numpy as np

from labkit.spec.checks import amount, one_of, together, whole
from labkit.units import digits, format_rate, format_share, format_size, plain

# Published healthy rings reach 76 % (8 A100 at 1 GiB) to 82 % (8 H100) of the one-direction rate.
LEAST_SHARE = 0.75
LARGE_ENOUGH = 0.9  # of the bandwidth: below that, latency is still in the figure
CEILINGS = {
    "ring": lambda n: np.ones_like(n),
    "in_switch": lambda n: 2 * (n - 1) / (n + 1),
    "tree_over_two_nodes": lambda n: 2 * (n - 1) / n,
}


def share_at(size, half_power):
    """Share of its bandwidth that a collective reaches: S/(S + S_half), where T = alpha + S/bandwidth.

    >>> share_at(9e6, 1e6)
    0.9
    """
    together("a share", size=size, half_power=half_power)
    size = amount(size, "the size of a message, in bytes,", endless=True)
    half = amount(half_power, "the half-power size, in bytes,", zero=True)
    with np.errstate(invalid="ignore"):
        return plain(np.where(np.isinf(size), 1.0, size / (size + half)))


def plateau_band(algorithm: str, n_ranks, size=np.inf, half_power=0.0) -> tuple:
    """Lowest and highest healthy busbw of an AllReduce, as shares of the rate of one direction of its link.

    ``algorithm``: ``ring`` (or another that only sends and receives), ``in_switch``, or
    ``tree_over_two_nodes``. ``half_power``: the size in bytes that reaches half the bandwidth, N alpha B of a
    ring; with it the lower edge falls for a small ``size``. Numbers may be arrays.

    >>> plateau_band("ring", 8), [round(edge, 3) for edge in plateau_band("in_switch", 8, 1e9, 1e9)]
    ((0.75, 1.0), [0.375, 1.556])
    """
    one_of(tuple(CEILINGS), algorithm, "the algorithm of a plateau", arrays=False)
    together("a plateau", n_ranks=n_ranks, size=size, half_power=half_power)
    n = np.asarray(whole(n_ranks, "ranks of a plateau", least=2, arrays=True), float)
    low, high = LEAST_SHARE * np.asarray(share_at(size, half_power)), CEILINGS[algorithm](n)
    return plain(low), plain(high)


@dataclass(frozen=True, slots=True)
class PlateauVerdict:
    """``share`` of the nominal rate, the band, and a verdict: ``healthy slow too_small impossible``."""

    share: float
    low: float
    high: float
    verdict: str
    reason: str


def judge_plateau(
    busbw: float, nominal: float, algorithm: str, n_ranks: int, size=np.inf, half_power=0.0
) -> PlateauVerdict:
    """Claim 5.1-f: one measured busbw against the ``nominal`` rate of one direction, both in bytes/s.

    ``too_small``: at this size the fit itself expects less than 90 % of the bandwidth, so that it tells
    nothing of the link. ``impossible``: above what this algorithm can show, so another one ran or the rate is
    not that of one direction. ``slow``: look at network settings, topology and the mapping of ranks.

    >>> judge_plateau(235e9, 300e9, "ring", 8).verdict, judge_plateau(5.4e9, 100e9, "ring", 8).verdict
    ('healthy', 'slow')
    """
    for name, value in (("busbw", busbw), ("the nominal rate", nominal)):
        amount(value, f"{name}, in bytes/s,", arrays=False)
    low, high = plateau_band(algorithm, whole(n_ranks, "ranks of a plateau", 2), size, half_power)
    share, expected = busbw / nominal, share_at(size, half_power)
    facts = f"{format_rate(busbw)} is {format_share(share)} of {format_rate(nominal)}"
    if share > high:
        verdict = "impossible"
        reason = f"{facts}, above {format_share(high)}: another algorithm ran, or the rate is another"
    elif share < low:
        verdict, reason = "slow", f"{facts}, below {format_share(low)}: network settings, topology or mapping"
    elif expected < LARGE_ENOUGH:
        enough = half_power * LARGE_ENOUGH / (1 - LARGE_ENOUGH)
        verdict = "too_small"
        reason = (
            f"{facts}; at {format_size(size)} only {format_share(expected)} of the bandwidth can show, go on "
            f"to {format_size(enough)} ({digits(LARGE_ENOUGH / (1 - LARGE_ENOUGH))} x the half-power size)"
        )
    else:
        verdict, reason = "healthy", f"{facts}, within {format_share(low)} to {format_share(high)}"
    return PlateauVerdict(share, low, high, verdict, reason)
