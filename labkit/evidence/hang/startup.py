"""Before the first collective: communicators that did not come up, interfaces that reach nobody."""

from collections import defaultdict

from labkit.evidence.hang import findings as f
from labkit.evidence.hang.findings import Finding, First, name_of
from labkit.evidence.hang.records import Communicator, Evidence, Group, Interface, Note
from labkit.evidence.hang.signature import ranks_said
from labkit.spec.rule import counted, listed

_SAYS_TROUBLE = ("connection", "no rendezvous", "no network")


def wrong_interface(evidence: Evidence) -> Finding | None:
    """The finding for interfaces through which hosts cannot reach each other; None where none shows.

    A virtual interface is one only if the job spans hosts, and if something went wrong or two hosts have the
    same address on it.
    """
    chosen = [one for one in evidence.interfaces if one.purpose != "ib"]
    hosts = sorted({one.host for one in chosen if one.host})
    if len(hosts) < 2 and not _beyond_one_host(evidence, chosen):
        return None
    virtual = [one for one in chosen if one.virtual]
    shared = _shared(virtual)
    if virtual and (shared or _trouble(evidence)):
        names = sorted({one.name for one in virtual})
        on = sorted({one.host or "a host" for one in virtual})
        reason = (
            f"{listed(on, 'and')} chose the interface {listed(names, 'and')}, which ends at the host itself"
        )
        reason += f" (address {shared} on more than one host)" if shared else ""
        return Finding(Group(""), f.INTERFACE, f"{reason}: the others cannot reach it")
    networks = {host: {_network(one) for one in chosen if one.host == host} - {""} for host in hosts}
    alone = [host for host in hosts if networks[host]]
    if len(alone) > 1 and not set.intersection(*(networks[host] for host in alone)) and _trouble(evidence):
        each = "; ".join(f"{host} {_addresses(chosen, host)}" for host in alone[:4])
        return Finding(
            Group(""),
            f.INTERFACE,
            f"hosts chose interfaces of different networks and did not connect: {each}",
        )
    return None


def _addresses(chosen: list[Interface], host: str) -> str:
    return listed(sorted({f"{one.name} {one.address}" for one in chosen if one.host == host})[:2], "and")


def _beyond_one_host(evidence: Evidence, chosen: list[Interface]) -> bool:
    """Whether communicators have more ranks than the log's one host shows."""
    began = defaultdict(set)
    for one in evidence.communicators:
        began[one.group.name, one.host].add(one.rank)
    sizes = {one.group.name: one.group.members for one in evidence.communicators}
    return any((sizes[name] or 0) > len(ranks) for (name, _), ranks in began.items()) and bool(chosen)


def _shared(interfaces: list[Interface]) -> str:
    """An address that two hosts have on a virtual interface; the loopback's is everywhere by nature."""
    hosts = defaultdict(set)
    for one in interfaces:
        if one.address:
            hosts[one.address].add(one.host)
    return next((address for address, on in sorted(hosts.items()) if len(on) > 1), "")


def _network(interface: Interface) -> str:
    """The first two numbers of a private IPv4 address: what hosts of one network share at least."""
    parts = interface.address.split(".")
    private = len(parts) == 4 and (
        parts[0] in ("10", "127") or parts[:2] == ["192", "168"] or parts[0] == "172"
    )
    return ".".join(parts[:2]) if private else ""


def _trouble(evidence: Evidence) -> bool:
    """Whether anything says that the ranks did not come together."""
    if any(note.kind in _SAYS_TROUBLE for note in evidence.notes) or evidence.waits:
        return True
    return any(one.began and not one.completed for one in evidence.communicators)


def never_formed(evidence: Evidence) -> list[Finding]:
    """A finding for each communicator that did not come up, or of which the log shows the start only."""
    found = []
    notes = [note for note in evidence.notes if note.kind in ("no rendezvous", "no network")]
    groups: dict[Group, list[Communicator]] = defaultdict(list)
    for one in evidence.communicators:
        groups[one.group].append(one)
    for group, parts in groups.items():
        waiting = sorted({one.rank for one in parts if not one.completed and one.rank is not None})
        if any(not one.completed for one in parts):
            found.append(_not_complete(group, parts, waiting, bool(notes), evidence))
    formed = any(one.completed for one in evidence.communicators)
    if notes and not found and not formed:
        found.append(_no_rendezvous(notes))
    return found


def _not_complete(group, parts, waiting, told: bool, evidence: Evidence) -> Finding:
    began = sorted({one.rank for one in parts if one.rank is not None})
    absent = sorted(set(range(group.members or 0)) - set(began))
    done = [one for one in parts if one.completed]
    says = f"communicator {name_of(group)}: {ranks_said(began)} began to set it up"
    says += f", {ranks_said(absent)} did not" if absent else ""
    says += f", {counted(len(done), 'rank')} finished" if done else ", none finished"
    certain = told or evidence.waits or any(note.kind == "connection" for note in evidence.notes)
    first = First(name_of(group), None, {})
    if certain:
        return Finding(group, f.NEVER, says, first, tuple(absent), tuple(waiting))
    return Finding(
        group,
        f.UNDECIDED,
        f"{says}: either it never formed, or the log ends before it did",
        first,
        tuple(absent),
        tuple(waiting),
        decide="the rest of the log, or one taken some minutes later",
    )


def _no_rendezvous(notes: list[Note]) -> Finding:
    absent = sorted({rank for note in notes for rank in note.ranks})
    note = notes[0]
    reason = f"the ranks did not come together: {note.words} ({note.where})"
    return Finding(Group(""), f.NEVER, reason, absent=tuple(absent))
