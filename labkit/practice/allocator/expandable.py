"""Expandable segments: one range of addresses per pool, behind which pages of memory come and go.

``expandable_segments:True`` of PyTorch's allocator (the note *Expandable Segments* in
``c10/cuda/CUDACachingAllocator.cpp``): the range has room for all of the device and an eighth more; memory is
mapped into it in pages, of 2 MiB for the small pool and 20 MiB for the large one. A new request extends the
free block at the lowest address where it fits, so that blocks of any size lie side by side. When the device
is full, every page without a block in it is unmapped, wherever it lies.
"""

from bisect import bisect_left

from labkit.practice.allocator.caching import MEDIUM_SEGMENT, ROUND, SMALL_SEGMENT, Block, CachingAllocator


class ExpandableAllocator(CachingAllocator):
    """A device of ``capacity`` bytes behind a cache with expandable segments.

    >>> cache = ExpandableAllocator(100 * 2**20)
    >>> blocks = [cache.allocate(size * 2**20) for size in (30, 12)]
    >>> cache.allocated // 2**20, cache.reserved // 2**20
    (42, 60)
    """

    def release(self) -> None:
        """Unmaps every page that has no block in use on it."""
        for block in self.free_blocks():
            page = _page(block.small)
            start = -(-block.address // page) * page
            stop = (block.address + block.size) // page * page
            if start >= stop:
                continue
            self._forget(block)
            block = self._cut_before(block, start)
            if block.address + block.size > stop:
                self._split(block, stop - start)
            self.reserved -= block.size
            block.mapped = False
            self._merged(block)

    def _cut_before(self, block: Block, start: int) -> Block:
        """The part of a free block from ``start`` on; what lies before it is kept."""
        if start == block.address:
            return block
        rest = Block(start, block.address + block.size - start, block.small)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, start - block.address
        self._keep(block)
        return rest

    def _least_rest(self, small: bool) -> int:
        return ROUND

    def _best_fit(self, size: int, small: bool) -> Block | None:
        """The smallest that fits, where a block that can grow counts as large as it can become."""
        kept = self._free[small]
        place = bisect_left(kept, (size,))
        if place == len(kept):
            return None
        while place + 1 < len(kept) and _extent(kept[place + 1][2]) < _extent(kept[place][2]):
            place += 1
        return kept.pop(place)[2]

    def _grow(self, size: int, small: bool) -> Block | None:
        """Maps pages behind the lowest free block that then is large enough; None where memory is short."""
        block = self._candidate(size, small)
        if not block.mapped:
            block = self._mapped(block, min(size, block.size))
        while block is not None and block.size < size:
            block = self._mapped(block.after, min(size - block.size, block.after.size))
        if block is not None:
            self._forget(block)
        return block

    def _candidate(self, size: int, small: bool) -> Block:
        for first in self._segments:
            block = first if first.small == small else None
            while block is not None:
                if not block.mapped:
                    start = block.before if block.before is not None and block.before.free else block
                    if _room(start, size):
                        return start
                block = block.after
        page = _page(small)
        room = -(-(self.capacity + self.capacity // 8) // page) * page
        room = max(room, -(-size // page) * page)
        block = Block(-(-self._next // MEDIUM_SEGMENT) * MEDIUM_SEGMENT, room, small)
        block.mapped = False
        self._next = block.address + room
        self._segments.append(block)
        return block

    def _mapped(self, block: Block, size: int) -> Block | None:
        """Pages for the first ``size`` bytes of an unmapped block, joined with the free blocks beside it."""
        page = _page(block.small)
        pages = min(-(-size // page) * page, block.size)
        if self.reserved + pages > self.capacity:
            return None
        self.reserved += pages
        if pages < block.size:
            self._split(block, pages)
        block.mapped = True
        block = self._merged(block)
        self._keep(block)
        return block


def _page(small: bool) -> int:
    return SMALL_SEGMENT if small else MEDIUM_SEGMENT


def _extent(block: Block) -> int:
    """Bytes of a free block with the unmapped addresses behind it."""
    return block.size + (block.after.size if block.after is not None and not block.after.mapped else 0)


def _room(block: Block | None, size: int) -> bool:
    """Whether free or unmapped addresses from the block on are enough."""
    found = 0
    while block is not None and block.free and found < size:
        found += block.size
        block = block.after
    return found >= size
