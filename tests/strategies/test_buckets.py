"""Gradient buckets: those of ResNet-18 as PyTorch printed them, and the rule on any sizes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.collectives import bandwidth_share, bucket_for_share, collective_cost
from labkit.errors import InputRefused
from labkit.spec import Link
from labkit.strategies.buckets import CAP, FIRST_CAP, bucket_warnings, ddp_buckets
from labkit.units import MiB


def basic_block(before, width):
    """Two 3 x 3 convolutions with batch norm, and a 1 x 1 convolution past them where the width changes."""
    shapes = [(width, before, 3, 3), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
    return shapes + ([(width, before, 1, 1), (width,), (width,)] if before != width else [])


# ResNet-18 (He et al. 2015, table 1), its parameters in the order of registration.
RESNET_18 = [(64, 3, 7, 7), (64,), (64,)]
for before, width in ((64, 64), (64, 128), (128, 256), (256, 512)):
    RESNET_18 += basic_block(before, width) + basic_block(width, width)
RESNET_18 += [(1000, 512), (1000,)]
SIZES = [4 * math.prod(shape) for shape in RESNET_18]


def sizes_of(*arguments, **more):
    return [bucket.size for bucket in ddp_buckets(*arguments, **more)]


def test_resnet_18_has_its_published_parameters():
    assert sum(SIZES) == 4 * 11_689_512
    assert len(SIZES) == 62


def test_all_reduces_of_resnet_18_as_pytorch_ran_them():
    """pytorch/pytorch issue 48880: the sizes printed by NCCL with the default cap and with one of 35 MiB."""
    assert sizes_of(SIZES) == [2_052_000, 28_852_224, 15_853_824]
    assert sizes_of(SIZES, cap=35 * MiB) == [2_052_000, 38_297_600, 6_408_448]


def test_the_first_bucket_holds_the_last_layer_and_no_more():
    """Bias 4,000 B is below 1 MiB, the matrix of 2,048,000 B goes beyond it and is not split."""
    assert ddp_buckets(SIZES)[0].parameters == (61, 60)
    assert (CAP, FIRST_CAP) == (26_214_400, 1_048_576)


def test_a_cap_for_the_first_bucket_too_as_in_later_releases():
    """2,052,000 + 28,852,224 + a norm, a convolution of 4,718,592 B, a norm and one of 2,359,296 B."""
    assert sizes_of(SIZES, cap=35 * MiB, first=35 * MiB) == [37_988_256, 8_769_792]


def test_a_bucket_closes_when_it_reaches_its_cap_exactly():
    assert sizes_of([5, 5, 5, 5], cap=10, first=5) == [5, 10, 5]


def test_each_dtype_fills_its_own_buckets_with_a_first_one_of_its_own():
    buckets = ddp_buckets([8, 2, 8, 2, 8, 2], cap=16, first=2, dtypes=["a", "b"] * 3)
    assert [(b.size, b.parameters) for b in buckets] == [
        (2, (5,)),
        (8, (4,)),
        (16, (2, 0)),
        (4, (3, 1)),
    ]


sizes = st.lists(st.integers(1, 100), min_size=1, max_size=40)


@given(sizes, st.integers(1, 300), st.integers(1, 100))
def test_every_gradient_travels_once_whole_and_in_order(given_sizes, cap, first):
    buckets = ddp_buckets(given_sizes, cap, first)
    order = [parameter for bucket in buckets for parameter in bucket.parameters]
    assert order == list(reversed(range(len(given_sizes))))
    for number, bucket in enumerate(buckets):
        members = [given_sizes[parameter] for parameter in bucket.parameters]
        limit = cap if number else first
        assert bucket.size == sum(members)
        assert bucket.size - members[-1] < limit  # it was still open before its last gradient
        assert bucket.size >= limit or number == len(buckets) - 1


@given(sizes, st.data())
def test_bytes_are_conserved_for_each_dtype(given_sizes, data):
    dtypes = data.draw(st.lists(st.sampled_from("ab"), min_size=len(given_sizes), max_size=len(given_sizes)))
    buckets = ddp_buckets(given_sizes, 50, 10, dtypes)
    assert all(len({dtypes[i] for i in bucket.parameters}) == 1 for bucket in buckets)
    assert sorted(i for bucket in buckets for i in bucket.parameters) == list(range(len(given_sizes)))


# ---- too small (case E17) and the closed form of claim 3.1-j


def test_share_of_the_bandwidth_is_that_of_the_ring():
    """5 us x 50 GB/s: alpha B = 250 kB. b / (b + N alpha B), and the ring's own cost."""
    link, n = Link(5e-6, 50e9), np.array([8, 64, 512])
    assert bandwidth_share(25e6, n, link) == pytest.approx([25 / 27, 25 / 41, 25 / 153])
    assert bucket_for_share(0.9, n, link) == pytest.approx([18e6, 144e6, 1152e6])
    cost = collective_cost("all_reduce", "ring", 25e6, n, link).seconds
    limit = collective_cost("all_reduce", "ring", 25e6, n, Link(0.0, 50e9)).seconds
    assert bandwidth_share(25e6, n, link) == pytest.approx(limit / cost)


@given(st.floats(0.01, 0.99), st.integers(2, 4096), st.floats(1e-7, 1e-4))
def test_bucket_for_share_is_the_inverse(share, n, alpha):
    link = Link(alpha, 25e9)
    assert bandwidth_share(bucket_for_share(share, n, link), n, link) == pytest.approx(share)


def test_warnings_of_case_e17():
    half = bucket_for_share(0.5, 512, Link(5e-6, 50e9))  # 128 MB
    both = bucket_warnings(CAP, half)
    assert len(both) == 2
    assert "25 MiB is below 128 MB" in both[0] and "half of its largest busbw" in both[0]
    assert "first bucket stays at 1 MiB, below 128 MB" in both[1]
    assert len(bucket_warnings(100 * MiB, half)) == 2
    assert len(bucket_warnings(200 * MiB, half)) == 1  # the first bucket alone
    assert bucket_warnings(200 * MiB, half, first=200 * MiB) == []
    assert bucket_warnings(CAP, 0.5 * MiB) == []


def test_warnings_from_a_fitted_sweep(line_fit_half_power=28e-6 * 80e9):
    """A sweep of 28 us + S / (80 GB/s) reaches half at 2.24 MB: the default cap is fine, 1 MiB is not."""
    assert len(bucket_warnings(CAP, line_fit_half_power)) == 1
    assert len(bucket_warnings(MiB, line_fit_half_power)) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ddp_buckets([]), "size of a gradient is an empty list"),
        (lambda: ddp_buckets([1, 0]), "size of a gradient .* above 0"),
        (lambda: ddp_buckets([1, 2], dtypes=["a"]), "1 dtypes"),
        (lambda: ddp_buckets([1], cap=0), "cap is 0"),
        (lambda: ddp_buckets([1], cap=True), "cap is True"),
        (lambda: ddp_buckets([1], first=-1), "cap is -1"),
        (lambda: bucket_warnings(True, 1e6), "cap is True"),
        (lambda: bucket_warnings(CAP, float("nan")), "measure smaller messages"),
        (lambda: bandwidth_share(0, 8, Link(1e-6, 1e9)), "size of a bucket, in bytes, is 0"),
        (lambda: bucket_for_share(1.0, 8, Link(1e-6, 1e9)), "less than 1"),
        (lambda: bucket_for_share(0.5, 0, Link(1e-6, 1e9)), "number of ranks"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
