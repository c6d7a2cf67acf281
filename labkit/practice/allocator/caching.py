"""PyTorch's caching allocator, simulated: blocks cut from segments, kept when freed, given back too late.

Sizes and rules are those of ``c10/cuda/CUDACachingAllocator.cpp`` (PyTorch 2.x) for one stream, without its
options: requests round up to 512 bytes; up to 1 MiB is cut from segments of 2 MiB, up to 10 MiB from segments
of 20 MiB, above that a segment is made to measure, in steps of 2 MiB. The smallest free block that is large
enough is taken, and its rest stays a block if it is worth it. A freed block joins its free neighbours in the
same segment, which is kept. Only when the device has no room left are whole free segments given back, once,
before the request fails.
"""

from bisect import bisect_left, insort

from labkit.errors import InputRefused
from labkit.spec.checks import noun, whole
from labkit.units import MiB

ROUND = 512
SMALL = MiB  # the largest request of the small pool
SMALL_SEGMENT, MEDIUM_SEGMENT = 2 * MiB, 20 * MiB
MEDIUM = 10 * MiB  # below it a request is cut from a medium segment
ROUND_SEGMENT = 2 * MiB
_MOST = 2**50  # bytes, more than any device has


class Block:
    """A piece of a segment: ``size`` bytes from ``address``; in use, or free with neighbours that are not."""

    __slots__ = ("address", "after", "before", "free", "mapped", "size", "small")

    def __init__(self, address: int, size: int, small: bool):
        self.address, self.size, self.small = address, size, small
        self.free, self.mapped = True, True
        self.before: Block | None = None
        self.after: Block | None = None


class CachingAllocator:
    """A device of ``capacity`` bytes behind the cache.

    ``allocated``: bytes of blocks in use; ``reserved``: bytes taken from the device; ``retries``: how often
    segments had to be given back for a request. Refused: sizes that are not whole or below 1, and
    freeing a block twice.

    >>> cache = CachingAllocator(100 * MiB)
    >>> first = cache.allocate(30 * MiB)
    >>> cache.free(first)
    >>> second = cache.allocate(12 * MiB)  # from the segment that is there
    >>> cache.allocated // MiB, cache.reserved // MiB
    (12, 30)
    """

    def __init__(self, capacity: int):
        self.capacity = whole(capacity, "the memory of a device, in bytes,", most=_MOST)
        self.allocated = self.reserved = self.retries = 0
        self._next = 0  # the next address of the device that was never used
        self._segments: list[Block] = []  # the first block of each
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}

    def allocate(self, size: int) -> Block | None:
        """A block of at least ``size`` bytes; None where the device is out of memory."""
        size = -(-whole(size, "the bytes of a tensor", most=_MOST) // ROUND) * ROUND
        small = size <= SMALL
        block = self._best_fit(size, small) or self._grow(size, small)
        if block is None:
            self.retries += 1
            self.release()
            block = self._grow(size, small)
        if block is None:
            return None
        left = block.size - size
        if left and left >= self._least_rest(small):
            self._split(block, size)
        block.free = False
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Takes a block back; with free neighbours it becomes one block. Nothing goes to the device."""
        noun(block, Block, "what is freed")
        if block.free:
            raise InputRefused("this block is free already; free each block once")
        self.allocated -= block.size
        block.free = True
        self._keep(self._merged(block))

    def release(self) -> None:
        """Gives every segment back that is free as a whole: ``torch.cuda.empty_cache``."""
        for small, kept in self._free.items():
            whole = [block for _, _, block in kept if block.before is None and block.after is None]
            self._free[small] = [one for one in kept if one[2].before or one[2].after]
            self.reserved -= sum(block.size for block in whole)
            gone = {block.address for block in whole}
            self._segments = [first for first in self._segments if first.address not in gone]

    def free_blocks(self) -> list[Block]:
        """The free blocks that are kept, the smallest first."""
        return [block for kept in self._free.values() for _, _, block in kept]

    def layout(self) -> list[tuple[int, bool]]:
        """Every block that has memory, as (bytes, free), segment after segment in order of address."""
        found = []
        for first in sorted(self._segments, key=lambda block: block.address):
            block: Block | None = first
            while block is not None:
                if block.mapped:
                    found.append((block.size, block.free))
                block = block.after
        return found

    # ---- what expandable segments do in another way

    def _least_rest(self, small: bool) -> int:
        return ROUND if small else SMALL + 1

    def _grow(self, size: int, small: bool) -> Block | None:
        """A new segment for the request, or None where the device has no room for it."""
        if small:
            segment = SMALL_SEGMENT
        elif size < MEDIUM:
            segment = MEDIUM_SEGMENT
        else:
            segment = -(-size // ROUND_SEGMENT) * ROUND_SEGMENT
        if self.reserved + segment > self.capacity:
            return None
        self.reserved += segment
        self._next += segment
        block = Block(self._next - segment, segment, small)
        self._segments.append(block)
        return block

    def _best_fit(self, size: int, small: bool) -> Block | None:
        kept = self._free[small]
        place = bisect_left(kept, (size,))
        return kept.pop(place)[2] if place < len(kept) else None

    # ---- neighbours

    def _keep(self, block: Block) -> None:
        insort(self._free[block.small], (block.size, block.address, block))

    def _forget(self, block: Block) -> None:
        kept = self._free[block.small]
        del kept[bisect_left(kept, (block.size, block.address))]

    def _split(self, block: Block, size: int) -> None:
        """Cuts a free block; its rest is kept."""
        rest = Block(block.address + size, block.size - size, block.small)
        rest.before, rest.after, rest.mapped = block, block.after, block.mapped
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        if rest.mapped:
            self._keep(rest)

    def _merged(self, block: Block) -> Block:
        """One block of a free block and those of its neighbours that are free and as mapped as it is."""
        before, after = block.before, block.after
        if after is not None and after.free and after.mapped == block.mapped:
            if after.mapped:
                self._forget(after)
            _swallow(block, after)
        if before is not None and before.free and before.mapped == block.mapped:
            if before.mapped:
                self._forget(before)
            _swallow(before, block)
            return before
        return block


def _swallow(block: Block, after: Block) -> None:
    block.size += after.size
    block.after = after.after
    if after.after is not None:
        after.after.before = block
