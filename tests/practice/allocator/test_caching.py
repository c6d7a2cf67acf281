"""The caching allocator: sizes and rules by hand, and what holds for every trace of requests."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.practice.allocator import ALLOCATORS, Block, CachingAllocator, ExpandableAllocator
from labkit.units import GiB, KiB, MiB

PAGE = 20 * MiB
BOTH = pytest.mark.parametrize("kind", ALLOCATORS.values())


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MiB),
        (512, 512, 2 * MiB),
        (513, 1024, 2 * MiB),
        (MiB, MiB, 2 * MiB),
        (MiB + 1, MiB + 512, 20 * MiB),
        (10 * MiB - 512, 10 * MiB - 512, 20 * MiB),
        (10 * MiB, 10 * MiB, 10 * MiB),
        (10 * MiB + 1, 10 * MiB + 512, 12 * MiB),  # what is left is over 1 MiB: a block of its own
        (31 * MiB + 700 * KiB, 32 * MiB, 32 * MiB),  # and here it is not
    ],
)
def test_sizes(size, block, segment):
    cache = CachingAllocator(GiB)
    found = cache.allocate(size)
    assert (found.size, cache.allocated, cache.reserved) == (block, block, segment)


def test_the_smallest_block_that_fits_is_taken_and_its_rest_kept():
    cache = CachingAllocator(GiB)
    blocks = {size: cache.allocate(size * MiB) for size in (100, 1, 40, 2, 60)}
    for size in (100, 40, 60):
        cache.free(blocks[size])
    found = cache.allocate(50 * MiB)
    assert found.address == blocks[60].address
    assert [block.size // MiB for block in cache.free_blocks() if block.size >= 10 * MiB] == [10, 18, 40, 100]
    assert cache.allocate(39 * MiB + 512 * KiB).size == 40 * MiB  # half a MiB is not cut off


def test_neighbours_become_one_block_again():
    cache = CachingAllocator(GiB)
    cache.free(cache.allocate(64 * MiB))
    parts = [cache.allocate(16 * MiB) for _ in range(4)]
    assert cache.reserved == 64 * MiB and not cache.free_blocks()
    for part in (parts[0], parts[2], parts[3], parts[1]):
        cache.free(part)
    assert [block.size for block in cache.free_blocks()] == [64 * MiB]


def test_segments_are_given_back_only_for_a_request_that_fails_and_only_whole():
    cache = CachingAllocator(100 * MiB)
    big, other = cache.allocate(60 * MiB), cache.allocate(40 * MiB)
    cache.free(big)
    piece = cache.allocate(12 * MiB)  # cut from the 60
    cache.free(other)
    assert cache.reserved == 100 * MiB and cache.retries == 0
    assert cache.allocate(52 * MiB) is None  # 88 MiB are free: 48 behind the piece, 40 that can be given back
    assert (cache.retries, cache.reserved, cache.allocated) == (1, 60 * MiB, 12 * MiB)
    cache.free(piece)
    assert cache.allocate(61 * MiB) is not None and cache.reserved == 62 * MiB and cache.retries == 2


def test_expandable_segments_fit_what_segments_cannot():
    cache = ExpandableAllocator(100 * MiB)
    big, other = cache.allocate(60 * MiB), cache.allocate(40 * MiB)
    cache.free(big)
    piece = cache.allocate(12 * MiB)
    cache.free(other)
    assert cache.allocate(52 * MiB).address == piece.address + piece.size and cache.retries == 0


def test_pages_move_to_where_they_are_needed():
    """Three of 40 MiB fill the device; the middle one's pages serve a request that fits no hole."""
    cache = ExpandableAllocator(120 * MiB)
    first, middle, last = (cache.allocate(40 * MiB) for _ in range(3))
    cache.free(first)
    cache.free(last)
    found = cache.allocate(60 * MiB)
    assert found.address == last.address and cache.retries == 1 and cache.reserved == 100 * MiB
    assert cache.layout() == [(40 * MiB, False), (60 * MiB, False)] and not middle.free


@BOTH
def test_refused(kind):
    cache = kind(GiB)
    for size in (0, -1, 1.5, "8", None, [8]):
        with pytest.raises(InputRefused):
            cache.allocate(size)
        with pytest.raises(InputRefused):
            kind(size)
    block = cache.allocate(8)
    cache.free(block)
    with pytest.raises(InputRefused, match="free already"):
        cache.free(block)
    with pytest.raises(InputRefused, match="give a Block"):
        cache.free(8)


# ---- what holds for every trace

sizes = st.one_of(st.integers(1, MiB), st.integers(MiB, 20 * MiB), st.integers(20 * MiB, 300 * MiB))
traces = st.lists(st.tuples(st.booleans(), sizes, st.integers(0, 10**6)), max_size=60)


def run(cache, trace):
    """Plays a trace: (free one of those in use?, bytes otherwise, which).

    Yields after each: the blocks in use, and the bytes that could not be had.
    """
    live: list[Block] = []
    for drop, size, which in trace:
        failed = 0
        if drop and live:
            cache.free(live.pop(which % len(live)))
        elif (block := cache.allocate(size)) is not None:
            live.append(block)
        else:
            failed = size
        yield live, failed


@BOTH
@given(trace=traces, capacity=st.sampled_from([500 * MiB, 2 * GiB, 100 * GiB]))
def test_blocks_never_overlap_and_every_byte_is_accounted_for(kind, trace, capacity):
    cache = kind(capacity)
    for live, _ in run(cache, trace):
        ends = sorted((block.address, block.address + block.size) for block in live)
        assert all(stop <= start for (_, stop), (start, _) in pairwise(ends))
        free = sum(block.size for block in cache.free_blocks())
        assert cache.allocated == sum(block.size for block in live)
        assert cache.allocated + free == cache.reserved <= capacity
        layout = cache.layout()
        assert sum(size for size, free in layout if not free) == cache.allocated
        assert sum(size for size, _ in layout) == cache.reserved
    for block in live if trace else []:
        cache.free(block)
    assert cache.allocated == 0
    cache.release()
    assert cache.reserved == 0 and not cache.layout()


@given(trace=traces)
def test_free_neighbours_are_always_one_block(trace):
    cache = CachingAllocator(100 * GiB)
    for _ in run(cache, trace):
        assert all(block.after is None or not block.after.free for block in cache.free_blocks())


@given(trace=traces, capacity=st.sampled_from([500 * MiB, 2 * GiB]))
def test_expandable_segments_fail_only_where_less_than_two_pages_a_hole_are_missing(trace, capacity):
    """A page without a block is always given back: of a hole between two blocks less than two pages stay.

    So a request can fail only if the free memory is less than it, one page more, and two pages a hole.
    """
    cache = ExpandableAllocator(capacity)
    for live, failed in run(cache, trace):
        if failed:
            assert capacity - cache.allocated < failed + PAGE + 2 * PAGE * (len(live) + 2)


def test_one_tensor_pins_a_segment_of_any_size_but_two_pages_at_most():
    for kind, pinned in ((CachingAllocator, 900 * MiB), (ExpandableAllocator, PAGE)):
        cache = kind(GiB)
        cache.free(cache.allocate(900 * MiB))
        cache.allocate(2 * MiB)
        cache.release()
        assert cache.reserved == pinned


def test_reserved_is_not_always_less_with_expandable_segments():
    """Pages are coarser than segments made to measure: 12 MiB against one page of 20."""
    plain, pages = CachingAllocator(GiB), ExpandableAllocator(GiB)
    for cache in (plain, pages):
        cache.allocate(12 * MiB)
    assert (plain.reserved, pages.reserved) == (12 * MiB, 20 * MiB)
