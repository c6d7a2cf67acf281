"""Of several plans the first that a framework can express, as its own settings."""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import InputRefused
from labkit.evidence.launchers import launcher_arguments
from labkit.presets.launchers import launcher
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import noun
from labkit.spec.rules import check_nouns


@dataclass(frozen=True, slots=True, repr=False)
class Written:
    """``text`` runs the plan at ``place``, from 1, of those given; ``cannot``: (place, why) of those before.

    No text and no place where none of them can be expressed. Its repr is what a reader wants to copy.
    """

    place: int | None
    text: str
    cannot: tuple[tuple[int, str], ...] = ()

    def __repr__(self):
        lines = [f"# plan {place}: {why}" for place, why in self.cannot]
        return "\n".join([*lines, f"# plan {self.place}:" if self.text else "# no plan", self.text]).rstrip()


def write_first(framework: str, model: Transformer, cluster: Cluster, plans: Sequence[Plan]) -> Written:
    """The settings of a framework for the first of the plans that it can express, and why not for others.

    Refused: a framework that ``launcher`` does not know, and what is no list of plans.
    """
    framework = launcher(framework).id
    check_nouns(model=model, cluster=cluster)
    noun(plans, Sequence, "the plans to write")
    cannot = []
    for place, plan in enumerate(plans, 1):
        noun(plan, Plan, "a plan to write")
        try:
            text = launcher_arguments(framework, model, cluster, plan)
        except InputRefused as refusal:
            cannot.append((place, str(refusal)))
            continue
        return Written(place, text, tuple(cannot))
    return Written(None, "", tuple(cannot))
