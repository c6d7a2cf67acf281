"""Everything that a reader claims, as short lines: what a table of expected facts is held against."""

from dataclasses import fields

from labkit.evidence.hang.joined import join
from labkit.evidence.hang.records import Evidence
from labkit.evidence.hang.text import read_text

TOLD = {field.name for field in fields(Evidence)}


def read(text, path="job.log"):
    """The evidence of one text, joined."""
    evidence = read_text(text, path)
    join(evidence)
    return evidence


def group(one):
    """Name, description, ranks and size of a group; ``?`` where the source names none."""
    description = f"({one.description})" if one.description else ""
    return f"{one.name or '?'}{description}" + (f" of {one.members}" if one.members else "")


def call(one):
    """Operation, number, sizes, dtype, root or peer, limit."""
    words = [one.operation, "-" if one.sequence is None else f"#{one.sequence}"]
    words += [str(list(map(list, one.sizes_in)))] if one.sizes_in is not None else []
    words += [f"x{one.count}"] if one.count is not None else []
    words += [f"-> {sum(size for (size,) in one.sizes_out)}"] if one.sizes_out is not None else []
    words += [one.dtype] if one.dtype else []
    words += [f"root {one.root}"] if one.root is not None else []
    words += [f"peer {one.peer}"] if one.peer is not None else []
    words += [f"limit {one.limit:g}"] if one.limit is not None else []
    words += [f"at {frame.function} {frame.file.split('/')[-1]}:{frame.line}" for frame in one.frames]
    return " ".join(words)


def wait(one):
    """What one rank says of its progress."""
    words = [f"{one.rank} in {group(one.group)}:"]
    words += [call(one.call)] if one.call else []
    words += [f"waited {one.waited:g}"] if one.waited is not None else []
    for name in ("enqueued", "started", "completed", "pending"):
        value = getattr(one, name)
        words += [f"{name} {value}"] if value is not None else []
    return " ".join(words)


def note(one):
    """Kind, whose, which ranks, how long, first words."""
    words = [one.kind] + ([f"of {one.rank}"] if one.rank is not None else [])
    words += [f"on {one.host}"] if one.host else []
    words += [f"names {list(one.ranks)}"] if one.ranks else []
    words += [f"{one.elapsed:g} s passed, {one.seconds:g} left"] if one.seconds is not None else []
    return " ".join([*words, f"| {one.words[:24]}"])


def communicator(one):
    """Whose it is, and how far it came."""
    states = [name for name in ("began", "completed", "destroyed") if getattr(one, name)]
    return f"{one.rank} {one.host}[{one.device}] {group(one.group)} {' '.join(states)}"


def told(evidence):
    """All facts by kind; kinds without any are left out."""
    facts = {
        "calls": [f"{one.rank} in {group(one.group)}: {call(one)}" for one in evidence.calls],
        "waits": [wait(one) for one in evidence.waits],
        "pairs": [" / ".join(f"{one.rank} {call(one)}" for one in pair) for pair in evidence.pairs],
        "notes": [note(one) for one in evidence.notes],
        "communicators": [communicator(one) for one in evidence.communicators],
        "interfaces": sorted(
            {
                f"{one.purpose} {one.name} {one.address} {one.host}".replace("  ", " ")
                for one in evidence.interfaces
            }
        ),
        "warnings": [one.split(": ")[1] if one.startswith("job.log") else one for one in evidence.warnings],
        "ranks": sorted(evidence.ranks),
        "groups": [group(one) for one in evidence.groups],
        "calls_recorded": evidence.calls_recorded,
        "states_recorded": evidence.states_recorded,
    }
    assert set(facts) | {"sources"} == TOLD, "a new kind of evidence belongs into the table"
    return {kind: value for kind, value in facts.items() if value}
