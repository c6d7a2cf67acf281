"""The terms of a step as pictures show them: one colour and one name each, in every lab."""

from matplotlib.patches import Patch

from labkit.show import theme
from labkit.spec.step_time import TERMS

WORDS = {
    "compute": "compute",
    "tp": "tensor",
    "cp": "context",
    "ep": "expert",
    "pp": "pipeline",
    "dp": "data parallel",
    "optimizer": "optimizer",
    "launch": "launches",
    "bubble": "bubble",
    "data": "input",
    "idle": "other waiting",
}
_MEANING = {"tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline", "dp": "data", "data": "input"}
COLOURS = {term: theme.COLOURS[_MEANING.get(term, term)] for term in TERMS}


def key(names=TERMS) -> list[Patch]:
    """Patches for a legend of some terms, in their order."""
    return [Patch(color=COLOURS[name], label=WORDS[name]) for name in names]
