"""The parts of a card's memory as pictures show them: one colour and one name each, in every lab.

States are blue, red and purple, pink at the ends; activations and logits green; what is there for a moment
has the hue of what it is a piece of; what the libraries take is grey.
"""

from matplotlib.patches import Patch

from labkit.planner.memory import PARTS
from labkit.show import theme
from labkit.units import words

# Parts, and the sums of ``RankMemory``, each in the colour of its largest part.
SUMS = ("states", "activations", "others")
COLOURS = {part: theme.COLOURS[part] for part in (*PARTS, "other")}
COLOURS |= {"states": COLOURS["optimizer_states"], "others": COLOURS["other"]}
WORDS = {name: words(name) for name in COLOURS} | {"others": "besides"}


def key(names) -> list[Patch]:
    """Patches for a legend of some parts or sums, in their order."""
    return [Patch(color=COLOURS[name], label=WORDS[name]) for name in names]
