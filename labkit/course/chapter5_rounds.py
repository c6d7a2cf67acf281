"""Section 5.5's case: the guide's three rounds of 13B on 32 cards as plans, timed, and in one run table."""

from dataclasses import dataclass
from functools import cache

from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.planner.step import BUCKET, step_time
from labkit.presets import cluster, model
from labkit.spec import Cluster, Plan, StepTime, problems
from labkit.spec.rule import IMPOSSIBLE, Problem
from labkit.spec.step_time import TERMS
from labkit.strategies.pipeline import bubble_share
from labkit.units import MB, digits, format_bytes, format_share, format_time

MODEL, MACHINE, NODES = "guide-13b", "a100", 4
CARDS = 32
BATCH = 64  # sequences a step, the guide's until its third round
SAID = 1.8, 1.2  # the guide's seconds of a step, before and after
LARGER_BUCKET = 32 * MB
_CUT = dict(tp=4, pp=4, dp=2)
_WAYS_OUT = 6  # that are taken one after the other


@dataclass(frozen=True, slots=True)
class Round:
    """One row of a run table: its name, the plan, and bytes of gradients that travel together."""

    name: str
    plan: Plan
    bucket: float = BUCKET

    def step(self, machine: Cluster, shape=None) -> StepTime:
        """The step of the round on a cluster; of the guide's 13B unless another model is given."""
        return step_time(shape or model(MODEL), machine, self.plan, bucket=self.bucket)


def cards(name: str = MACHINE) -> Cluster:
    """The 32 cards: four nodes of eight, of a preset cluster."""
    return cluster(name, nodes=NODES)


def cut(**more) -> Plan:
    """A plan with the guide's cut, tensor 4 x pipeline 4 x data 2; ``more`` as ``Plan`` takes it."""
    return Plan(**_CUT, **more)


FIRST = Round("1", cut(global_batch=BATCH, accumulation=16))
SECOND = Round("2", cut(global_batch=BATCH, accumulation=32))


def first_that_works(machine: Cluster, plan: Plan) -> tuple[Plan, Problem | None]:
    """The plan after the first way out of each rule that it breaks, and the gravest of these, if any.

    The number of cards stays: replicas make up for fewer stages. Refused: where no way out is left.
    """
    gravest = None
    for _ in range(_WAYS_OUT):
        broken = [one for one in problems(model(MODEL), machine, plan) if one.severity == IMPOSSIBLE]
        if not broken:
            return plan, gravest
        # Of several the one that says that the cards do not suffice.
        gravest = gravest or min(broken, key=lambda one: one.rule != "ranks")
        change = next((one for one in broken[0].options if set(one) <= set(Plan.__slots__)), None)
        if change is None:
            break
        if "pp" in change:
            change = {**change, "dp": max(1, CARDS // (plan.tp * change["pp"]))}
        plan = plan.changed(**change)
    raise InputRefused(f"Impossible: {gravest.message}. Choose smaller numbers.")


def compromise() -> dict[int, Round]:
    """The guide's m = 24: not with a batch of 64, but with the batches on either side of it, by batch."""
    wanted = cut(global_batch=BATCH, accumulation=24)
    (broken,) = (one for one in problems(model(MODEL), cards(), wanted) if one.severity == IMPOSSIBLE)
    sizes = [option["global_batch"] for option in broken.options if "global_batch" in option]
    return {size: Round(f"2, m = 24, batch {size}", wanted.changed(global_batch=size)) for size in sizes}


def readings(recompute="full", micro_batch=4, m=24) -> dict[str, Round]:
    """What the guide's round 3 may mean: micro-batch 4, and "accumulation 0.5", in three readings."""
    batches = {
        f"m stays {m}": dict(accumulation=m, micro_batch=micro_batch),
        f"m is halved to {m // 2}": dict(accumulation=m // 2, micro_batch=micro_batch),
        f"the batch stays {BATCH}": dict(global_batch=BATCH, micro_batch=micro_batch),
    }
    return {
        words: Round(f"3, {words}", cut(recompute=recompute, **batch), LARGER_BUCKET)
        for words, batch in batches.items()
    }


def third(recompute="full") -> Round:
    """Round 3 in the reading that keeps m = 24 and has "a larger global batch", as the guide says."""
    return Round("3", next(iter(readings(recompute).values())).plan, LARGER_BUCKET)


@cache
def timed(name: str = MACHINE) -> dict[str, StepTime]:
    """The steps of the guide's three rounds on a preset cluster, by the name of the round."""
    return {one.name: one.step(cards(name)) for one in (FIRST, SECOND, third())}


def interleaved(v=2) -> Round:
    """Round 1 with ``v`` virtual stages a card: the other way to the bubble of round 2."""
    return Round(f"1, v = {v}", FIRST.plan.changed(v=v))


HEADS = (
    "round",
    "batch",
    "m x micro-batch",
    "step",
    "tokens/s a card",
    "communication",
    "exposed",
    "bubble",
    "memory",
)


def run_row(one: Round, machine: Cluster) -> tuple:
    """A round in the columns of ``HEADS``: communication, exposed communication and bubble of the step."""
    step, plan = one.step(machine), one.plan
    # A bubble is a difference of sums: rounded, where nothing of it is left.
    parts = (step.communication, step.exposed, step.bubble)
    shares = (format_share(round(part / step.total, 9)) for part in parts)
    return (
        one.name,
        plan.global_batch,
        f"{plan.accumulation} x {plan.micro_batch}",
        format_time(step.total),
        f"{step.tokens_per_s_per_gpu:,.0f}",
        *shares,
        format_bytes(step.peak_memory),
    )


def run_table(name: str = MACHINE) -> Table:
    """The guide's rounds as a run table; of the second and the third each reading that can be run."""
    rounds = [FIRST, SECOND, *compromise().values(), *readings().values()]
    return table(HEADS, (run_row(one, cards(name)) for one in rounds))


def needless_table(name: str = MACHINE) -> Table:
    """Round 3 with recompute and without, and round 1 interleaved: what the guide left lying."""
    rounds = [third(), Round("3, nothing recomputed", third("none").plan, LARGER_BUCKET)]
    return table(HEADS, (run_row(one, cards(name)) for one in [FIRST, *rounds, interleaved()]))


def readings_table() -> Table:
    """Claims 5.5-c and 5.5-g: three ways to read "accumulation 0.5"; one definition, batch = b m DP."""
    rows = []
    for words, one in readings().items():
        plan = one.plan
        product = f"{plan.micro_batch} x {plan.accumulation} x {plan.dp} = {plan.global_batch}"
        bubble = bubble_share(plan.pp, plan.accumulation)
        rows.append((words, product, format_share(bubble), *learning_rates(plan.global_batch)))
    heads = ("reading", "micro-batch x m x DP = batch", "bubble", "learning rate, linear", "square root")
    return table(heads, rows)


def learning_rates(batch: float, before: float = BATCH) -> tuple[str, str]:
    """Factors on the learning rate for another batch: linear, and the square root of it.

    Linear is the rule of plain gradient descent (Goyal et al. 2017), the square root the usual one of
    adaptive optimizers (Malladi et al. 2022).

    >>> learning_rates(192), learning_rates(64)
    (('x 3', 'x 1.73'), ('x 1', 'x 1'))
    """
    factor = batch / before
    return f"x {digits(factor)}", f"x {digits(factor**0.5)}"


def saved(before: StepTime, after: StepTime, sequences: float = BATCH) -> dict[str, float]:
    """Seconds by term of the step that ``after`` saves, both brought to the same number of sequences."""
    tokens = sequences * model(MODEL).sequence
    return {
        term: tokens * (getattr(before, term) / before.tokens - getattr(after, term) / after.tokens)
        for term in TERMS
    }


def attribution_table(name: str = MACHINE) -> Table:
    """Claim 5.5-n: of the gain from round to round, term by term, in ms for 64 sequences; + is faster."""
    steps = timed(name)
    pairs = {f"{a} to {b}": saved(steps[a], steps[b]) for a, b in (("1", "2"), ("2", "3"), ("1", "3"))}
    terms = [term for term in TERMS if any(gain[term] for gain in pairs.values())]
    rows = [(term, *(f"{1e3 * gain[term]:+.1f}" for gain in pairs.values())) for term in terms]
    rows.append(("in all", *(f"{1e3 * sum(gain.values()):+.1f}" for gain in pairs.values())))
    return table(("term of the step, ms", *(f"round {pair}" for pair in pairs)), rows)
