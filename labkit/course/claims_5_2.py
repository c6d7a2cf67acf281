"""Section 5.2's claims: the table of decisions, and first runnable, then fast."""

from labkit.course import chapter5_decision as decision
from labkit.course.claims import claim
from labkit.planner.procedure import named
from labkit.planner.tuning import SAME
from labkit.units import format_share, format_time


@claim(
    "5.2-a",
    "TABLE the judgements as a table that can be executed 整理成一张可执行的表",
    guide="the table is missing",
    why="rebuilt from sections 3.1 to 4.2, computed for any model, cluster and batch; its cut is that of 3.4",
)
def executable():
    found, asked = decision.everywhere(), decision.asked()
    leads = "; ".join(
        f"{id} {named(decision.decided(id).plan)}, stage {decision.decided(id).plan.zero}"
        for id in ("gpt3-13b", "llama2-70b", "gpt3-175b")
    )
    return (
        f"{asked} pairs of model and 64 cards ({', '.join(decision.MACHINES)}) at batch {decision.BATCH}: "
        f"{len(found)} plans, all possible and within memory, {asked - len(found)} times one sentence that "
        f"nothing fits; on a100 {leads}"
    )


@claim(
    "5.2-b",
    "First a plan that runs, then tuning 先跑通再跑快",
    guide="do not aim for the optimum at once",
    why="each step frees one more setting and says what it should gain; the last searches all plans",
)
def first_runs():
    steps = decision.tuned("guide-13b", nodes=4, batch=64)
    gains = ", ".join(
        f"{step.name} {SAME if step.change == SAME else format_share(step.gain)}" for step in steps
    )
    return (
        f"guide-13b on 32 a100, batch 64: {named(steps[0].plan)}, stage {steps[0].plan.zero} runs, "
        f"{format_time(steps[0].before)} a step; then {gains}: {format_time(steps[-1].after)}, "
        f"{named(steps[-1].plan)}, stage {steps[-1].plan.zero}; each with what to measure"
    )


@claim(
    "5.2-c",
    "TABLE 判断、条件、动作、依据 (missing in the guide, rebuilt)",
    guide="the sentence ends in a colon",
    verdict="approximately",
    why="row 4 asks whether one layer fits; what asks for tensor parallel in every case here is all layers "
    "together: the first stage keeps a micro-batch of them all, however many stages there are",
)
def missing_table():
    rows = "; ".join(
        f"({row.number}) {row.judgement}: {row.condition} -> {row.action} ({row.source})"
        for row in decision.decided("gpt3-175b").rows
    )
    counts = decision.what_asks()
    return (
        f"gpt3-175b on 64 a100: {rows}; of {sum(counts.values())} plans with tensor parallel one layer asks "
        f"for it in {counts.get('layer', 0)}"
    )
