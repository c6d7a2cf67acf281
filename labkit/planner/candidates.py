"""The plans that the four-step choice picks from: every legal cut tp x pp of a model over all GPUs."""

from dataclasses import dataclass, field

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.memory import RankMemory, memory
from labkit.spec import Cluster, Plan, Transformer
from labkit.spec.checks import amount, noun, whole
from labkit.spec.rule import IMPOSSIBLE, counted, divisors, listed
from labkit.spec.rules import RULES, check_nouns
from labkit.spec.rules_shape import even_stages
from labkit.units import format_bytes

TIGHT = 4  # layers a stage: "already tight" in the guide's 3.4; fewer are thin


@dataclass(frozen=True, slots=True)
class Candidate:
    """A legal cut with the memory of its fullest rank and the layers of its fullest stage.

    ``whole_batch``: its replicas share the global batch evenly. ``options``: the other fields of its plan.
    """

    tp: int
    pp: int
    dp: int
    memory: RankMemory
    layers: float
    whole_batch: bool
    options: dict = field(repr=False)

    @property
    def thin(self) -> bool:
        """Whether a stage has fewer layers than the guide still calls tight."""
        return self.pp > 1 and self.layers < TIGHT

    @property
    def starved(self) -> bool:
        """Whether there are fewer micro-batches than stages: some stage is idle at any moment."""
        return self.options["global_batch"] < self.dp * self.options["micro_batch"] * self.pp

    @property
    def plan(self) -> Plan:
        """The cut as a plan."""
        return Plan(tp=self.tp, pp=self.pp, dp=self.dp, **self.options)


def candidates(
    model: Transformer,
    cluster: Cluster,
    *,
    global_batch: int,
    micro_batch: int = 1,
    zero: int = 0,
    recompute: str = "none",
    fused_attention: bool = True,
    sequence_parallel: bool = False,
) -> list[Candidate]:
    """All cuts of the model over the whole cluster, tp from the domain's divisors, the rest to dp.

    The options are those of ``Plan``. Layers that do not divide are split as evenly as they can be; experts
    are spread over the neighbours in the domain. A plan that a rule calls impossible is left out, unless it
    is the batch that does not come out whole. Refused: a model or cluster of another type, a cluster of
    arrays, and options that are no single values of a plan.
    """
    check_nouns(model=model, cluster=cluster)
    options = {
        "global_batch": whole(global_batch, "global_batch of a plan"),
        "micro_batch": whole(micro_batch, "micro_batch of a plan"),
        "zero": zero,
        "recompute": recompute,
        "fused_attention": fused_attention,
        "sequence_parallel": sequence_parallel,
    }
    if not Plan(**options).single or np.ndim(cluster.n_gpus) or np.ndim(cluster.domain):
        raise InputRefused("cuts are of one cluster with one batch and one choice of options; give no arrays")
    cuts = np.array(
        [
            (tp, pp, cluster.n_gpus // (tp * pp))
            for tp in divisors(cluster.domain)
            if cluster.n_gpus % tp == 0
            for pp in divisors(cluster.n_gpus // tp)
            if pp <= model.layers
        ]
    )
    tp, pp, dp = cuts.T
    own = {
        **options,
        "ep": np.array([_spread(model, cluster, *cut) for cut in cuts.tolist()]),
        "sequence_parallel": (tp > 1) & sequence_parallel,
        "replicate_kv": tp > model.kv_heads,
    }
    plans = Plan(tp=tp, pp=pp, dp=dp, **own)  # all of them at once
    broken = {
        rule.name: np.broadcast_to(rule.mask(model, cluster, plans), tp.shape)
        for rule in RULES
        if rule.severity == IMPOSSIBLE
    }
    legal = ~np.any([mask for name, mask in broken.items() if name not in ("batch", "layers")], axis=0)
    fullest = memory(model, cluster, plans).at_peak
    sums = fullest.states, fullest.activations, fullest.others
    found = []
    for i in np.flatnonzero(legal).tolist():
        fields = {name: value[i].item() if np.ndim(value) else value for name, value in own.items()}
        one = Candidate(
            *cuts[i].tolist(),
            RankMemory(*(float(np.asarray(part)[i]) for part in sums)),
            model.layers / float(pp[i]),
            not broken["batch"][i],
            fields,
        )
        found.append(_uneven(model, cluster, one) if broken["layers"][i] else one)
    return found


def _spread(model, cluster, tp, pp, dp) -> int:
    """Ranks to spread the experts over: as many as divide them and dp, and are neighbours in the domain."""
    return max(e for e in divisors(max(1, model.experts)) if dp % e == 0 and e * tp <= cluster.domain)


def _uneven(model, cluster, one: Candidate) -> Candidate:
    """The same cut with the layers split as evenly as they can be."""
    layers = even_stages(model.layers, one.pp)
    options = {**one.options, "stage_layers": layers}
    plan = Plan(tp=one.tp, pp=one.pp, dp=one.dp, **options)
    held = memory(model, cluster, plan).at_peak
    return Candidate(one.tp, one.pp, one.dp, held, max(layers), one.whole_batch, options)


def choose(model: Transformer, cluster: Cluster, tried: list[Candidate], capacity: float) -> Candidate:
    """The first of these cuts that fits in ``capacity`` bytes a card: smallest tp, then fewest stages.

    Stages of fewer than 4 layers come last, and before them stages that outnumber the micro-batches.
    Refused, with what is missing: where nothing fits, and where no number of replicas that fits shares the
    batch evenly.
    """
    check_nouns(model=model, cluster=cluster)
    noun(tried, list, "the list of cuts")
    for one in tried:
        noun(one, Candidate, "a cut")
    amount(capacity, "the capacity of a card, in bytes,", endless=True, arrays=False)
    if not tried:
        raise InputRefused(
            f"no cut of {model.name} over {cluster.n_gpus} GPUs is legal; change the number of nodes"
        )
    fits = [one for one in tried if one.memory.total <= capacity]
    if not fits:
        best = min(tried, key=lambda one: one.memory.total)
        cards = f"{counted(cluster.n_gpus, 'card')} of {format_bytes(capacity)}"
        raise InputRefused(
            f"{model.name} does not fit {cards}: tp {best.tp} x pp {best.pp} x dp {best.dp} still needs "
            f"{worded(best.memory)}; {_ways_to_fit(best, capacity)}"
        )
    usable = [one for one in fits if one.whole_batch]
    if not usable:
        batch, micro = (fits[0].options[name] for name in ("global_batch", "micro_batch"))
        degrees = ", ".join(str(dp) for dp in sorted({one.dp for one in fits}))
        raise InputRefused(
            f"a global batch of {batch} in micro-batches of {micro} cannot be shared evenly by any number of "
            f"replicas that fits ({degrees}); use a multiple of one of them"
        )
    return min(usable, key=preference)


def _ways_to_fit(best: Candidate, capacity: float) -> str:
    """What makes the leanest cut leaner: of the options, those that can do something here."""
    ways = ["more GPUs"]
    if best.dp > 1 and best.options["zero"] < 3:
        ways.append("a higher stage of zero")
    if best.memory.states < capacity:  # otherwise no activation saved is enough
        if best.options["micro_batch"] > 1:
            ways.append("a smaller micro-batch")
        if best.options["recompute"] != "full":
            ways.append("recompute='full'")
    return f"take {listed(ways)}"


def preference(cut: Candidate) -> tuple:
    """What the four steps prefer among cuts that fit: the least of these, compared in order."""
    return cut.thin, cut.starved, cut.tp, cut.pp


def worded(memory: RankMemory) -> str:
    """Memory as a sum in words.

    >>> worded(RankMemory(5e9, 1e9)), worded(RankMemory(5e9, 1e9, 2e9))[-33:]
    ('5 GB of states + 1 GB of activations = 6 GB', 'activations + 2 GB besides = 8 GB')
    """
    besides = f" + {format_bytes(memory.others)} besides" if memory.others else ""
    return (
        f"{format_bytes(memory.states)} of states + {format_bytes(memory.activations)} of activations"
        f"{besides} = {format_bytes(memory.total)}"
    )
