"""Gradient buckets: how many collectives a tensor travels in."""

import numpy as np

from labkit.errors import InputRefused
from labkit.units import plain


def bucket_count(size, bucket):
    """Collectives that ``size`` bytes travel in, cut into buckets of at most ``bucket`` bytes: at least one.

    PyTorch DistributedDataParallel's ``bucket_cap_mb`` (Li et al. 2020, section 3.2.3), without the rounding
    to whole parameters. Both may be arrays. Refused: a negative size, and a bucket of no bytes.

    >>> bucket_count(14e9, 25e6), bucket_count(100e6 + 1, 25e6)
    (560.0, 5.0)
    """
    size, bucket = np.asarray(size, float), np.asarray(bucket, float)
    if not (size >= 0).all():
        raise InputRefused("the bytes to be cut into buckets must be 0 or more; correct the negative number")
    if not (bucket > 0).all():
        raise InputRefused(
            "a bucket must hold more than 0 bytes; use a positive size, or None for no buckets"
        )
    # 1e-9: a quotient that is whole but for rounding is not rounded up.
    return plain(np.maximum(np.ceil(size / bucket - 1e-9), 1.0))
