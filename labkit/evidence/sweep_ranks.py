"""How many ranks a table was measured with: everything that tells is compared."""

from collections import Counter
from dataclasses import dataclass

from labkit.collectives import busbw_factor
from labkit.evidence.sweep_rows import Number, Row
from labkit.evidence.sweep_text import Table


@dataclass(frozen=True)
class RatioRanks:
    """The numbers of ranks that the printed busbw / algbw allows, row by row."""

    spans: list[tuple[float, float]]

    def fits(self, n: int) -> bool:
        """Whether ``n`` lies within what nearly every row allows."""
        hits = sum(low * (1 - 1e-9) <= n <= high * (1 + 1e-9) for low, high in self.spans)
        return hits >= 0.8 * len(self.spans)

    def allowed(self) -> list[int]:
        """Every number of ranks that fits, at most 1000 of them."""
        low, high = min(self.spans, key=lambda span: span[1] - span[0])
        return [n for n in range(max(1, int(low)), min(int(high) + 2, int(low) + 1000)) if self.fits(n)]


def from_ratio(rows: list[Row], collective: str | None, share: float) -> RatioRanks | None:
    """Ranks from busbw / algbw = 2(n-1)/n or (n-1)/n; None where the ratio tells nothing."""
    if collective is None or (collective != "all_reduce" and busbw_factor(collective, 2) == 1):
        return None
    scale = 2.0 if collective == "all_reduce" else 1.0
    spans = []
    for row in rows:
        for half in row.halves:
            rate, bus = half.algbw, half.busbw
            if share != 1:  # the printed algbw follows another convention
                rate = Number(
                    row.size / half.time.value / 1e3, half.time.rounding * row.size / half.time.value**2 / 1e3
                )
            if rate.value <= 20 * rate.rounding:
                continue
            low = (bus.value - bus.rounding) / (rate.value + rate.rounding) / scale
            high = (bus.value + bus.rounding) / (rate.value - rate.rounding) / scale
            if low < 1:
                spans.append((1 / (1 - low), 1 / (1 - high) if high < 1 else 1e9))
    return RatioRanks(sorted(spans, key=lambda span: span[1] - span[0])[:200]) if spans else None


def from_devices(table: Table) -> tuple[int | None, bool, list[str]]:
    """Ranks of the device list, whether it is cut, and what to say about it.

    Highest rank + 1, since long lists are cut in the middle; one group's where the run was split. None where
    runs of different lengths are mixed.
    """
    says = []
    groups: dict[int, set[int]] = {}
    for rank, group, *_ in table.devices:
        groups.setdefault(group, set()).add(rank)
    ranks = set.union(*groups.values())
    times = set(Counter(device[:2] for device in table.devices).values())
    if times != {1}:
        says.append(
            "ranks stand more than once in the device list: separate runs are mixed in this log, or one run "
            "was logged twice; let every run write a log of its own"
        )
    if len(times) > 1:
        return None, True, says
    if len(groups) > 1:
        says.append(f"the run was split into {len(groups)} groups: the number of ranks is that of one group")
        return max(map(len, groups.values())), False, says
    n, process = max(ranks) + 1, table.threads * table.gpus
    cut = len(ranks) < n or table.devices_cut
    if cut:
        says.append(f"the device list is cut: {len(ranks)} devices, highest rank {n - 1}")
    return -(-n // process) * process, cut, says


def decide_ranks(
    table: Table, collective: str | None, count: int | None, share: float, caller: int | None
) -> tuple[int | None, list[str]]:
    """The number of ranks and what to say about it.

    The caller counts most, then the device list (unless its end may be missing), NCCL's nranks, the count
    column, the busbw / algbw ratio, and the launch line; a conflict among them is said.
    """
    found = []
    says: list[str] = []
    if len(table.nranks) == 1:
        found.append(("nranks in the log", *table.nranks))
    if count is not None and count > 1:
        found.append(("the count column", count))
    ratio = from_ratio(table.rows, collective, share)
    allowed = ratio.allowed() if ratio else []
    if len(allowed) == 1:
        found.append(("the busbw/algbw ratio", allowed[0]))
    if table.devices:
        n, cut, says = from_devices(table)
        if n is None and caller is None:
            return None, [*says, "the number of ranks is unknown: give n_ranks"]
        more = cut and found and n and found[0][1] > n  # the end of a cut list may be missing
        found[len(found) if more else 0 : 0] = [("the device list", n)] if n else []
    if caller is not None:
        found.insert(0, ("the caller", caller))
    process = table.threads * table.gpus
    if not found and table.processes:
        found.append(("the launch line", table.processes * process))
    if not found and process > 1:
        found.append(("nThread x nGpus", process))
        says.append(f"the number of ranks is nThread x nGpus = {process}, right only if a single process ran")
    eights = [n for n in allowed if n % 8 == 0]
    if not found and len(eights) == 1:
        found.append(("the busbw/algbw ratio", eights[0]))
        says.append(
            f"the busbw/algbw ratio allows {allowed[0]} to {allowed[-1]} ranks: {eights[0]}, the only "
            "multiple of 8, is used; give n_ranks if it is another"
        )
    if not found:
        between = f"; the busbw/algbw ratio allows {allowed[0]} to {allowed[-1]}" if allowed else ""
        return None, [*says, f"the number of ranks is unknown{between}: give n_ranks"]
    source, used = found[0]
    others = [f"{name} says {n}" for name, n in found[1:] if n != used]
    if len(allowed) > 1 and not ratio.fits(used):
        others.append(f"the busbw/algbw ratio says {allowed[0]} to {allowed[-1]}")
    if used % process and source != "the device list":
        others.append(f"nThread x nGpus is {process}")
    if others:
        says.append(
            f"the number of ranks is in conflict: {source} says {used}, {', '.join(others)}; {used} is used"
        )
    if used == 1:
        says.append("one rank only: no communication was measured")
    return used, says
