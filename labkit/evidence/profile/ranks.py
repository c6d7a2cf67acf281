"""The same collective on several ranks: what of it is transfer, what is waiting, and for whom.

Nobody leaves an all_reduce before the last has come, so the last to come has the shortest kernel: its time
is the transfer, and what the others take beyond it is waiting. This compares durations alone; the clocks of
ranks are not aligned, and ranking by the longest communication blames those that wait.
"""

from collections import Counter
from dataclasses import dataclass

from labkit.evidence.hang.records import Group
from labkit.evidence.limits import GUIDE
from labkit.evidence.profile.calls import Call, busbw_of
from labkit.evidence.profile.steps import RankProfile
from labkit.spec.rule import counted
from labkit.units import format_share, format_time

# Nobody leaves these before all have come. A root may leave a broadcast early, a sender a send.
TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
MOSTLY = 0.5  # share of all waiting from which one rank stands for it
APART = 3.0  # times the waiting for any other rank: two equal ranks are last in turns


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective, on each rank whose trace has it, as its kernels show it: waiting included.

    ``op``: labkit's name; ``step``: number of the ``ProfilerStep``; ``sequence``: its number in the group,
    where the trace has it; ``seconds``: by rank; ``size``: bytes as nccl-tests counts them; ``cause``: a term
    of a StepTime; ``told_by``: what names the operation; ``exposed``: seconds by rank that nothing hides.
    """

    op: str
    group: Group
    step: int | None
    sequence: int | None
    seconds: dict[int, float]
    exposed: dict[int, float]
    size: float | None
    cause: str
    told_by: str

    @property
    def transfer(self) -> float | None:
        """Seconds of the shortest kernel; None where fewer than two ranks are known or it proves nothing."""
        return min(self.seconds.values()) if len(self.seconds) > 1 and self.op in TOGETHER else None

    @property
    def waiting(self) -> dict[int, float] | None:
        """Seconds beyond the transfer, by rank; None where the transfer is not known."""
        transfer = self.transfer
        return None if transfer is None else {rank: one - transfer for rank, one in self.seconds.items()}

    @property
    def skew(self) -> float | None:
        """Seconds between the first and the last rank to come: all leave together, so the longest wait."""
        return None if self.transfer is None else max(self.waiting.values())

    @property
    def last(self) -> int | None:
        """The rank for which the others wait; None where none waits or two come last together."""
        if not self.skew:
            return None
        latest = [rank for rank, waited in self.waiting.items() if waited == 0]
        return latest[0] if len(latest) == 1 else None

    @property
    def lost(self) -> float:
        """Seconds that the rank which waits longest loses: of its waiting, what nothing hides."""
        waiting = self.waiting or {}
        return max((min(waited, self.exposed[rank]) for rank, waited in waiting.items()), default=0.0)

    @property
    def busbw(self) -> float | None:
        """Bytes/s of the transfer as nccl-tests counts them (of the shortest kernel: at least so much)."""
        return busbw_of(self.op, self.size, min(self.seconds.values()), self.group.members)


_Known = tuple[Call, int | None, float]  # a call, the number of its step, its seconds that nothing hides


def collectives_of(ranks: dict[int, RankProfile]) -> tuple[list[Collective], list[str]]:
    """The collectives of all ranks, each once, and what could not be matched, in sentences.

    Two calls are one collective when their groups are, and their sequence numbers where all have one; else
    their step and place in it: the host of each rank calls in the order of the program. Calls of one place
    that differ in operation or size are left apart.
    """
    places: dict[tuple, dict[int, _Known]] = {}
    by_group: dict[tuple, dict[int, list]] = {}
    for rank, profile in ranks.items():
        for (call, place), exposed in zip(profile.calls, profile.exposures, strict=True):
            step = None if place is None else profile.numbers[place]
            # Jobs of other size have other groups; where no group is told, operations stand for them. Threads
            # of the host begin calls in about the order of the program: what differs in size is told apart.
            part = (call.operation, call.size) if profile.host_time else (call.operation,)
            key = (profile.trace.world, call.group, part if profile.host_time or not call.group.name else ())
            by_group.setdefault(key, {}).setdefault(rank, []).append((call, step, exposed))
    unequal: dict[str, list[str]] = {}
    for (world, group, part), calls in by_group.items():
        keyed, why = _keyed(group, calls)
        if why and len(calls) > 1:
            unequal.setdefault(why, []).append(_named(group, *part[:1]))
        for key, (rank, found) in keyed:
            places.setdefault((world, group, part, *key), {})[rank] = found
    collectives, apart = [], 0
    for found in places.values():
        alike = Counter((call.operation, call.size) for call, *_ in found.values())
        apart += len(alike) > 1
        for operation, size in alike:
            same = {
                r: one for r, one in found.items() if (one[0].operation, one[0].size) == (operation, size)
            }
            collectives.append(_collective(same))
    warnings = [f"{', '.join(names)}: {why}" for why, names in unequal.items()]
    if apart:
        warnings.append(
            f"at {counted(apart, 'place')} of a group its ranks' calls differ in operation or size, and are "
            "not compared"
        )
    return collectives, warnings


def _named(group: Group, operation: str = "") -> str:
    return f"group {group.name} {group.description}".strip() if group.name else f"{operation} of no group"


def _keyed(group: Group, calls: dict[int, list]) -> tuple[list, str]:
    """Each call under what it shares with the same call of other ranks, and why it shares nothing."""
    known = [(rank, one) for rank, found in calls.items() for one in found]
    if all(call.sequence is not None for _, (call, *_) in known):
        return [((one[0].sequence, _role(one[0]), n), (r, one)) for r, one, n in _repeated(known)], ""
    several_pairs = group.members is None or group.members > 2
    keyed, counts, ordered = [], {}, {}
    for rank, one in sorted(known, key=lambda pair: (pair[0], _called(pair[1][0]))):
        call, step, _ = one
        if call.operation == "send_recv" and several_pairs:  # each is of two ranks that are not named
            keyed.append((("apart", rank, len(keyed)), (rank, one)))
            continue
        number = counts[rank, step] = counts.get((rank, step), -1) + 1
        ordered[rank] = ordered.get(rank, 0) + 1
        keyed.append(((step, number), (rank, one)))
    if any(step is None for _, (_, step, _) in known) and len(set(ordered.values())) > 1:
        many = ", ".join(f"{n} on rank {rank}" for rank, n in sorted(ordered.items())[:4])
        why = (
            f"its calls are not compared between ranks, which recorded unequal numbers ({many}) and no steps"
        )
        return [((rank, *key), (rank, found)) for key, (rank, found) in keyed], why
    if not group.name and ordered:
        return keyed, "compared by their order within a step, as if all ranks were in one group"
    return keyed, ""


def _called(call: Call) -> float:
    return call.start if call.launch != call.launch else call.launch


def _role(call: Call) -> str:
    """Point-to-point calls have sequence numbers of their own."""
    return "pair" if call.operation == "send_recv" else ""


def _repeated(known: list) -> list:
    """Calls with their place among those of the same rank and sequence number (coalesced ones share it)."""
    counts, found = Counter(), []
    for rank, one in sorted(known, key=lambda pair: (pair[0], pair[1][0].start)):
        key = (rank, one[0].sequence, _role(one[0]))
        found.append((rank, one, counts[key]))
        counts[key] += 1
    return found


def _collective(found: dict[int, _Known]) -> Collective:
    call, step, _ = next(iter(found.values()))
    return Collective(
        op=call.operation,
        group=call.group,
        step=step,
        sequence=call.sequence,
        seconds={rank: one.seconds for rank, (one, *_) in found.items()},
        exposed={rank: exposed for rank, (_, _, exposed) in found.items()},
        size=call.size,
        cause=call.cause,
        told_by=call.told_by,
    )


def straggler_of(ranks: dict[int, RankProfile], collectives: list[Collective]) -> tuple[int | None, str]:
    """The rank for which the others wait, or None, and the reason in one sentence.

    Only waiting that nothing hides counts. Named is the rank that is last where the others lose most, when
    that is more than half of all they lose, more than three times what they lose to any other rank, and more
    than 5 % of their time, the guide's limit for ranks that lie apart (5.4).
    """
    compared = [one for one in collectives if one.transfer is not None]
    if not compared:
        several = len(ranks) > 1
        return None, "no collective is on two ranks' traces" if several else "one rank cannot tell who waits"
    lost = Counter()
    for one in compared:
        if one.last is not None:
            lost[one.last] += one.lost
    whole = sum(one.lost for one in compared)
    span = max(sum(stop - start for start, stop in profile.windows) for profile in ranks.values())
    if not span or whole <= GUIDE.spread * span:
        return None, f"waiting for each other takes {format_share(whole / span if span else 0)} of their time"
    (rank, most), *others = [*lost.most_common(2), (None, 0.0)][:2]
    if most <= MOSTLY * whole or most <= APART * others[0][1]:
        return None, f"the ranks lose {format_time(whole)} by waiting, but not for the same one"
    last = sum(one.last == rank for one in compared)
    return rank, (
        f"rank {rank} comes last in {last} of {counted(len(compared), 'collective')}, where its own kernels "
        f"are the shortest; the others lose {format_time(most)} by it, {format_share(most / span)}"
    )
