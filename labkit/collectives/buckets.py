"""Gradient buckets: how many collectives a tensor travels in, and what share of the bandwidth each gets."""

import numpy as np

from labkit.collectives.place import check_ranks
from labkit.errors import InputRefused
from labkit.spec import Link
from labkit.spec.checks import amount, floats, shown
from labkit.units import plain


def bucket_count(size, bucket):
    """Collectives that ``size`` bytes travel in, cut into buckets of at most ``bucket`` bytes: at least one.

    PyTorch DistributedDataParallel's ``bucket_cap_mb`` (Li et al. 2020, section 3.2.3), without the rounding
    to whole parameters (``strategies.buckets`` forms the real ones). Both may be arrays. Refused: a negative
    size, and a bucket of no bytes.

    >>> bucket_count(14e9, 25e6), bucket_count(100e6 + 1, 25e6)
    (560.0, 5.0)
    """
    size, bucket = amount(size, "the size to be cut into buckets, in bytes,", zero=True), _bucket(bucket)
    # 1e-9: a quotient that is whole but for rounding is not rounded up.
    return plain(np.maximum(np.ceil(size / bucket - 1e-9), 1.0))


def bandwidth_share(bucket, n, link: Link):
    """Share of its bandwidth limit that a ring all_reduce of ``bucket`` bytes over ``n`` ranks reaches.

    b / (b + N alpha B): of the 2(N-1) (alpha + b / (N B)) seconds of the ring (Patarasuk and Yuan 2009), the
    part that moves bytes. It is also the share of its largest busbw. All may be arrays (claim 3.1-j).

    >>> [round(bandwidth_share(25e6, n, Link(5e-6, 50e9)), 3) for n in (8, 64, 512)]
    [0.926, 0.61, 0.163]
    """
    bucket = _bucket(bucket)
    return plain(bucket / (bucket + _half(n, link)))


def bucket_for_share(share, n, link: Link):
    """Bytes of the bucket with which a ring all_reduce reaches ``share`` of its bandwidth limit.

    The inverse of ``bandwidth_share``: N alpha B x share / (1 - share); half the limit takes N alpha B.
    Refused: a share that is not between 0 and 1.

    >>> [round(bucket_for_share(0.9, n, Link(5e-6, 50e9)) / 1e6) for n in (8, 64, 512)]
    [18, 144, 1152]
    """
    share = floats(share)
    if not ((share > 0) & (share < 1)).all():
        raise InputRefused(f"the share of the bandwidth is {shown(share)}; use more than 0 and less than 1")
    return plain(_half(n, link) * share / (1 - share))


def _bucket(size) -> np.ndarray:
    return amount(size, "the size of a bucket, in bytes,", endless=True)


def _half(n, link: Link):
    """N alpha B: the bytes at which a ring spends as long on latency as on bytes."""
    return check_ranks(n) * np.asarray(link.alpha, float) * np.asarray(link.bandwidth, float)
