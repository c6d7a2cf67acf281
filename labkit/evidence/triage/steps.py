"""A triage: questions in a fixed order, each with what was seen, up to the first that explains.

The steps come from a generator, so what stands behind the first cause is not even asked.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from labkit.units import wrapped

EXPLAINS, DIFFERS, CLEAR, UNKNOWN = ANSWERS = "explains it", "differs", "clear", "cannot be told"


@dataclass(frozen=True, slots=True)
class Step:
    """One question and its answer.

    ``answer``: ``explains it``; ``differs``, a symptom whose cause later steps may find; ``clear``; ``cannot
    be told``. ``evidence``: what was seen, or what is missing; ``next_step``: what to do, where it explains,
    or what to measure. ``kind``: the cause for programs, where one step has several; ``cost``: what asking
    costs, in words.
    """

    name: str
    question: str
    answer: str
    evidence: str
    next_step: str = ""
    kind: str = ""
    cost: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Triage:
    """The steps that were asked, in order; the last one explains, unless nothing did."""

    steps: tuple[Step, ...]

    @property
    def cause(self) -> Step | None:
        """The first step that explains; without one the first that differs; None where neither is there."""
        for answer in (EXPLAINS, DIFFERS):
            for step in self.steps:
                if step.answer == answer:
                    return step
        return None

    @property
    def unknown(self) -> tuple[Step, ...]:
        """The steps that could not be told, in order: something was not measured."""
        return tuple(step for step in self.steps if step.answer == UNKNOWN)

    def __repr__(self):
        widths = [max(len(getattr(step, name)) for step in self.steps) for name in ("name", "answer")]
        lines = []
        for number, step in enumerate(self.steps, 1):
            head = f"{number} {step.name:<{widths[0]}}  {step.answer:<{widths[1]}}  "
            lines += wrapped(step.evidence, head, " " * len(head))
        cause = self.cause
        end = f"stopped at {cause.name}: {cause.next_step}" if cause else "nothing here explains it"
        asked = [f"to tell {step.name}: {step.next_step}" for step in self.unknown if step.next_step]
        return "\n".join([*lines, *(part for line in (end, *asked) for part in wrapped(line, indent="  "))])


def walk(steps: Iterable[Step]) -> Triage:
    """Asks in order and stops at the first step that explains.

    >>> first = Step("alive", "all there?", CLEAR, "2 of 2"), Step("counts", "alike?", EXPLAINS, "5, 6")
    >>> asked = (*first, Step("order", "alike?", CLEAR, "not asked"))
    >>> [step.name for step in walk(asked).steps], walk(asked).cause.name
    (['alive', 'counts'], 'counts')
    """
    asked = []
    for step in steps:
        asked.append(step)
        if step.answer == EXPLAINS:
            break
    return Triage(tuple(asked))
