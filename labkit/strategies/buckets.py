"""Gradient buckets as PyTorch's DistributedDataParallel forms them, and when a bucket is too small.

From torch/csrc/distributed/c10d/reducer.cpp, ``compute_bucket_assignment_by_size`` and ``rebuild_buckets``,
and Li et al. (2020), section 3.2.3. Gradients are taken in the order in which they become ready. The first
backward pass records that order and forms the buckets anew by it; in a model whose layers run in the order of
their registration it is the reverse of the registration. A gradient is never split: a bucket takes whole
gradients until it has **reached** its cap, so it may be larger than the cap by most of a gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.strategies.checks import numbers, shaped, single
from labkit.units import MiB, format_size

CAP = 25.0 * MiB
# The first bucket is small, so that communication starts early. It stayed so whatever cap was set; with pull
# request 121640 (2024) a cap that the user sets is that of the first bucket too.
FIRST_CAP = 1.0 * MiB


@dataclass(frozen=True, slots=True)
class Bucket:
    """``size`` bytes in one all_reduce, of these parameters (counted by registration, as they fill it)."""

    size: float
    parameters: tuple[int, ...]


def ddp_buckets(
    sizes: Sequence[float], cap: float = CAP, first: float = FIRST_CAP, dtypes: Sequence[str] | None = None
) -> list[Bucket]:
    """The buckets of a model, in the order in which they are reduced.

    ``sizes``: bytes of each parameter's gradient in registration order; ``cap``: of every bucket but the
    first, whose cap is ``first``. Gradients of different ``dtypes`` (one name per parameter; None: all alike)
    share no bucket, and each dtype has a first bucket of its own. What is left at the end makes the last
    buckets. Refused: no parameter, sizes or caps that are no numbers above 0, a wrong number of dtypes.

    >>> [bucket.size for bucket in ddp_buckets([4, 8, 2, 2, 1], cap=9, first=2)]
    [3.0, 10.0, 4.0]
    >>> ddp_buckets([4, 8, 2, 2, 1], cap=9, first=2)[0].parameters
    (4, 3)
    """
    sizes = shaped(numbers(sizes, "the size of a gradient"), "the list of sizes", "parameters").tolist()
    dtypes = ["gradient"] * len(sizes) if dtypes is None else dtypes
    if not (isinstance(dtypes, Sequence) and all(isinstance(name, str) for name in dtypes)):
        raise InputRefused("dtypes are names; give a list of texts, one for each parameter")
    if len(dtypes) != len(sizes):
        raise InputRefused(
            f"buckets need one dtype for each parameter, and got {len(sizes)} sizes and {len(dtypes)} dtypes"
        )
    cap, first = check_cap(cap), check_cap(first)
    closed, opened, filled, limits = [], {}, {}, dict.fromkeys(dtypes, first)
    for parameter in reversed(range(len(sizes))):
        dtype = dtypes[parameter]
        opened.setdefault(dtype, []).append(parameter)
        filled[dtype] = filled.get(dtype, 0.0) + sizes[parameter]
        if filled[dtype] >= limits[dtype]:
            closed.append(Bucket(filled.pop(dtype), tuple(opened.pop(dtype))))
            limits[dtype] = cap
    return closed + [Bucket(filled[dtype], tuple(members)) for dtype, members in opened.items()]


def check_cap(cap) -> float:
    """A cap as a float; refused when it is not a number of bytes above 0 (``True`` would count as 1)."""
    return single(cap, "a bucket's cap", endless=True)


def bucket_warnings(cap: float, half: float, first: float = FIRST_CAP) -> list[str]:
    """What is wrong with a bucket size on this machine: a sentence each, none where it is good.

    ``half``: bytes from which an all_reduce reaches half of its largest busbw. On a link that is
    ``bucket_for_share(0.5, n, link)``, from a sweep ``LinkFit.half_power``. A bucket below it spends more
    time on latency than on bytes. Refused: caps not above 0, and a ``half`` that is not a number.

    >>> print(*bucket_warnings(25 * MiB, half=128e6, first=25 * MiB))
    a bucket of 25 MiB is below 128 MB, where an all_reduce reaches half of its largest busbw; use more
    >>> bucket_warnings(200 * MiB, half=128e6, first=200 * MiB)
    []
    """
    cap, first = check_cap(cap), check_cap(first)
    try:
        half = single(half, "the size that reaches half of the busbw", zero=True, endless=True)
    except InputRefused as refused:
        raise InputRefused(f"{refused}: measure smaller messages, or take it from a link") from None
    says = []
    if cap < half:
        says.append(
            f"a bucket of {format_size(cap)} is below {format_size(half)}, where an all_reduce reaches half "
            "of its largest busbw; use more"
        )
    if first < min(half, cap):
        says.append(
            f"the first bucket stays at {format_size(first)}, below {format_size(half)}: it starts early, "
            "for one latency more"
        )
    return says
