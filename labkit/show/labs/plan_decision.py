"""The four-step choice as a map: every cut tp x pp with its memory, and the first that fits."""

from dataclasses import dataclass

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from labkit.errors import InputRefused
from labkit.planner.activations import layer_on_plan
from labkit.planner.candidates import Candidate, candidates, choose
from labkit.presets import cluster as load_cluster
from labkit.presets import model as load_model
from labkit.show import blocks, memory_parts, theme
from labkit.show.lab import Lab
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.rule import counted
from labkit.spec.rules_batch import ENOUGH_MICRO_BATCHES
from labkit.strategies.pipeline import bubble_share
from labkit.units import digits, format_bytes, format_share

CLUSTERS = (
    "v100",
    "a100-40",
    "a100",
    "h100",
    "h200",
    "b200",
)  # nodes of at most 8 cards, which are the domain
TP, PP = (1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64)
CUT, WIDE = 1.4, 2.5  # the bars end here, and the axis, which has room for numbers, in multiples of a card
PALE = {name: 0.35 * np.array(to_rgb(theme.COLOURS[name])) + 0.65 for name in ("good", "warning", "idle")}
KINDS = {"fits": PALE["good"], "too much": PALE["warning"], "no": PALE["idle"]}


@dataclass(frozen=True)
class Result:
    """The cuts by (tp, pp), the chosen one (None where nothing fits), and the leanest of each tp."""

    model: Transformer
    machine: Cluster
    cuts: dict[tuple[int, int], Candidate]
    chosen: Candidate | None
    leanest: dict[int, Candidate]
    batch: tuple[int, int]

    def kind(self, cut: Candidate | None) -> str:
        """Whether a cut fits, takes too much, or cannot be (no such cut, or a batch that is not shared)."""
        if cut is None or not cut.whole_batch:
            return "no"
        return "fits" if cut.memory.total <= self.machine.gpu.usable else "too much"


def compute(
    model="llama2-70b",
    cluster="a100",
    nodes=8,
    micro_batch=1,
    global_batch=512,
    recompute="selective",
    zero=0,
) -> Result:
    """All cuts of a preset model over the nodes of a preset cluster, and the four steps' choice."""
    if cluster not in CLUSTERS:
        raise InputRefused(f"this map is for nodes of up to 8 cards; choose one of {', '.join(CLUSTERS)}")
    shape, machine = load_model(model), load_cluster(cluster, nodes=nodes)
    options = {"micro_batch": micro_batch, "global_batch": global_batch, "recompute": recompute, "zero": zero}
    tried = candidates(shape, machine, sequence_parallel=True, **options)
    try:
        chosen = choose(shape, machine, tried, machine.gpu.usable)
    except InputRefused:
        chosen = None
    cuts = {(one.tp, one.pp): one for one in tried}
    leanest = {}
    for one in tried:
        best = leanest.get(one.tp)
        if not one.thin and (best is None or one.memory.total < best.memory.total):
            leanest[one.tp] = one
    return Result(shape, machine, cuts, chosen, leanest, (micro_batch, global_batch))


def build(figure):
    """Left: the map; right, in the same rows: memory of the leanest cut of each degree."""
    left = theme.axes(figure, left=0.075, right=0.615, bottom=0.13, top=0.8)
    right = theme.axes(figure, left=0.665, right=0.975, bottom=0.13, top=0.8)
    left.set(xlim=(0, len(PP)), ylim=(len(TP), 0), xlabel="pipeline stages pp")
    left.set_xticks(np.arange(len(PP)) + 0.5, PP)
    left.set_yticks(np.arange(len(TP)) + 0.5, [f"tp {tp}" for tp in TP])
    left.set_title("fullest card's memory, GB", pad=24)
    right.set(xlim=(0, WIDE), ylim=(len(TP), 0), xlabel="of a card's memory")
    right.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    right.set_yticks([])
    right.set_title("leanest cut with ≥ 4 layers a stage", pad=24)
    for ax in (left, right):
        ax.grid(False)
        ax.tick_params(length=0)
    left.spines[["left", "bottom"]].set_visible(False)
    right.axvline(1, color=theme.COLOURS["text"], lw=1.4, zorder=3)
    for x, text, colour in KEY:
        where = dict(transform=left.transAxes, ha="left", va="bottom", fontsize=10)
        left.text(x, 1.02, text, color=theme.COLOURS[colour], **where)
    key = memory_parts.key(memory_parts.SUMS)
    right.legend(handles=key, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0), **_LEGEND)
    edge = dict(facecolor="none", edgecolor=theme.COLOURS["text"])
    rows, none = np.arange(len(TP)) + 0.5, np.zeros(len(TP))
    bars = {
        part: right.barh(rows, none, height=0.52, color=memory_parts.COLOURS[part])
        for part in memory_parts.SUMS
    }
    return dict(
        cells=left.add_collection(PolyCollection([], edgecolor="white", lw=1.5)),
        chosen=left.add_collection(PolyCollection([], lw=2.4, **edge)),
        words=blocks.Numbers(left, fontsize=11),
        bars=bars,
        says=[right.text(0, i + 0.5, "", va="center", ha="left", fontsize=10) for i in range(len(TP))],
        subject=figure.text(0.02, 0.975, "", ha="left", va="top", fontsize=12, weight="bold"),
        title=figure.text(0.975, 0.975, "", ha="right", va="top", fontsize=12, weight="bold"),
    )


KEY = ((0.0, "fits", "good"), (0.085, "too much", "warning"), (0.245, "(thin: < 4 layers a stage)", "muted"))
KEY += ((0.66, "framed: chosen", "text"),)
_LEGEND = {"fontsize": 10, "handlelength": 1, "columnspacing": 1, "handletextpad": 0.4, "borderpad": 0}


def update(artists, result: Result):
    """Fills the map and the bars."""
    row, column = np.divmod(np.arange(len(TP) * len(PP)), len(PP))
    cuts = [result.cuts.get((TP[i], PP[j])) for i, j in zip(row, column, strict=True)]
    kinds = [result.kind(cut) for cut in cuts]
    artists["cells"].set_verts([_box(i, j) for i, j in zip(row, column, strict=True)])
    artists["cells"].set_facecolor([KINDS[kind] for kind in kinds])
    words = [_in_cell(cut, kind) for cut, kind in zip(cuts, kinds, strict=True)]
    colours = [theme.COLOURS["muted" if kind == "no" else "text"] for kind in kinds]
    artists["words"].set_numbers(row + 0.5, column, column + 1.0, words, colours)
    one = result.chosen
    artists["chosen"].set_verts([_box(TP.index(one.tp), PP.index(one.pp), 0.035)] if one else [])
    for i, tp in enumerate(TP):
        _fill(artists, i, result.leanest.get(tp), result.machine.gpu.usable)
    artists["subject"].set_text(_subject(result))
    artists["title"].set_text(_choice(result))
    rectangles = [bar for bars in artists["bars"].values() for bar in bars]
    names = ("cells", "chosen", "words", "subject", "title")
    return [*(artists[name] for name in names), *rectangles, *artists["says"]]


def _fill(artists, i, cut: Candidate | None, capacity) -> None:
    """The three bars of one degree, end to end, and the words beside them; an arrow where they are cut."""
    start = 0.0
    for part, bars in artists["bars"].items():
        size = 0.0 if cut is None else getattr(cut.memory, part) / capacity
        bars[i].set(x=min(start, CUT), width=min(start + size, CUT) - min(start, CUT))
        start += size
    says = artists["says"][i]
    if cut is None:
        says.set(text="no such cut", x=0.03, color=theme.COLOURS["muted"])
        return
    mark = "→ " if start > CUT else ""
    says.set(text=f"{mark}pp {cut.pp}: {format_bytes(cut.memory.total)}", color=theme.COLOURS["text"])
    says.set_x(np.clip(start, 1.0, CUT) + 0.04)  # right of the line that marks the card's memory


def _box(i, j, inset=0.0):
    low, high = inset, 1 - inset
    return [(j + low, i + low), (j + high, i + low), (j + high, i + high), (j + low, i + high)]


def _in_cell(cut: Candidate | None, kind: str) -> str:
    """Memory in GB, in brackets where stages are thin; or why there is none."""
    if kind == "no":
        return "batch" if cut else "–"
    text = digits(cut.memory.total / 1e9)
    return f"({text})" if cut.thin else text


def _subject(result: Result) -> str:
    cards = f"{result.machine.n_gpus:,} × {result.machine.gpu.name}"
    return f"{result.model.name}, {digits(result.model.parameters / 1e9)} B, on {cards}"


def _choice(result: Result) -> str:
    one = result.chosen
    if one is None:
        return "no cut will do"
    m = one.plan.accumulation
    return f"TP {one.tp} × PP {one.pp} × DP {one.dp}, m = {m}, bubble {format_share(bubble_share(one.pp, m))}"


def readout(result: Result) -> list[str]:
    """The choice, one layer and all layers, the fullest stage, and the batch."""
    shape, capacity = result.model, result.machine.gpu.usable
    micro, whole = result.batch
    tp = np.array(sorted({tp for tp, _ in result.cuts}))
    options = next(iter(result.cuts.values())).options
    plans = Plan(tp=tp, micro_batch=micro, sequence_parallel=tp > 1, recompute=options["recompute"])
    of_all = shape.layers * np.asarray(layer_on_plan(shape, plans))
    kept = ", ".join(f"tp {each} {format_bytes(size)}" for each, size in zip(tp, of_all, strict=True))
    lines = [
        f"{_subject(result)}: {_choice(result)}",
        f"the first stage keeps a micro-batch of all {shape.layers} layers: {kept}",
    ]
    one = result.chosen or min(result.cuts.values(), key=lambda cut: cut.memory.total)
    name = "fullest stage" if result.chosen else f"leanest, tp {one.tp} x pp {one.pp}"
    states, activations, besides, total = map(
        format_bytes, (one.memory.states, one.memory.activations, one.memory.others, one.memory.total)
    )
    lines.append(
        f"{name}, {counted(one.layers, 'layer')}: states {states} + activations {activations} + {besides} "
        f"besides = {total} of {format_bytes(capacity)}"
    )
    wanted = ENOUGH_MICRO_BATCHES * one.pp * one.dp * micro if one.pp > 1 else one.dp * micro
    each = counted(whole / one.dp, "sequence")
    lines.append(f"a global batch of {whole:,} gives {each} a replica; this cut asks for at least {wanted:,}")
    return lines


def alt(result: Result) -> str:
    """What a reader who cannot see the picture needs."""
    found = sum(result.kind(cut) == "fits" for cut in result.cuts.values())
    return (
        f"A map of tensor-parallel degrees against pipeline stages for {result.model.name}: {found} of "
        f"{len(result.cuts)} cuts fit; beside it the memory of the leanest cut of each degree, split into "
        "states, activations and what libraries and buffers take besides, against one card."
    )


plan_decision = Lab("plan_decision", compute, build, update, readout, alt, size=(9.4, 4.1))
