"""Section 3.4's claims on hybrid parallelism; those on experts stand in ``claims_3_4_experts``."""

from labkit.course import chapter3_hybrid as hybrid
from labkit.course.claims import claim
from labkit.planner.decide import decide
from labkit.presets import cluster, model
from labkit.spec import Plan, problems
from labkit.strategies.gradient_noise import gradient_noise
from labkit.units import digits, format_bytes, format_share, format_time


@claim(
    "3.4-a",
    "Three dimensions multiply to the cards 三维混合: 64 = 8 x 4 x 2, 32 cards a replica 模型副本",
    guide="TP x PP x DP = N",
)
def product():
    plan = hybrid.GUIDE_PLAN
    return (
        f"{plan.tp} x {plan.pp} x {plan.dp} = {plan.ranks}; {plan.model_ranks} cards hold one replica, on "
        f"{plan.model_ranks // 8} nodes of 8"
    )


@claim(
    "3.4-b",
    "Four questions in order choose the plan 选型的判断顺序",
    guide="layer, layers, the rest, batch",
)
def four_steps():
    found = decide(model("llama2-70b"), cluster("a100", nodes=8), 512)
    steps = " / ".join(step.outcome.split(":")[0].rstrip(".") for step in found.steps)
    return f"llama2-70b on 64 A100, batch 512: {steps}; what asked for tp: {found.needs}"


@claim(
    "3.4-c",
    "32 layers: 8 stages of 4 are tight 比较勉强, 16 of 2 too thin",
    guide="8 tight, 16 too thin",
    verdict="approximately",
    why="the bubble makes them so, not the transfers (3.4-g); the decision warns instead of refusing",
)
def tight_and_thin():
    return "; ".join(
        f"{row['stages']} stages of {digits(row['layers'])}: bubble {format_share(row['bubble'])} at m = 32, "
        f"m = {row['wanted']} for 4 p"
        for row in hybrid.stage_rows(stages=(8, 16))
    )


@claim(
    "3.4-d",
    "At least 1, better 4 samples per rank, else gradient noise 梯度噪声大",
    guide=">= 1, ideally >= 4",
    verdict="corrected",
    why="the thresholds stand, the reason does not: noise depends on the global batch (3.4-h); a small piece "
    "a card leaves little backward pass to hide the gradients under",
)
def samples_per_rank():
    few = Plan(tp=8, pp=4, dp=2, micro_batch=1, global_batch=6)
    said = next(
        p.message
        for p in problems(model("guide-13b"), cluster("a100", nodes=8), few)
        if p.rule == "samples per rank"
    )
    shares = hybrid.gradients_by_samples()
    words = ", ".join(f"{format_share(share)} at {each}" for each, share in shares.items())
    return f"advice: {said}; exposed gradients of a 1.7 B model, of the step, by samples a card: {words}"


@claim(
    "3.4-f",
    "PP over 4 nodes, DP = 2 跨 4 台机器: the rank order unsaid",
    guide="TP inside, PP across",
    verdict="approximately",
    why="the order decides whether the data groups leave the node; the pipeline groups do in both",
)
def rank_order():
    parts = []
    for tp in (4, 8):
        for words, order in hybrid.ORDERS.items():
            found = hybrid.crossings(Plan(tp=tp, pp=4, dp=2, order=order))
            said = ", ".join(f"{name} {a} of {b}" for name, (a, b) in found.items() if name != "tp")
            parts.append(f"{tp} x 4 x 2, {words}: {said}")
    return "groups across nodes of 8: " + "; ".join(parts)


@claim(
    "3.4-g",
    "With 16 stages communication and scheduling eat the gain 通信和调度开销会盖过收益",
    guide="overhead outweighs",
    verdict="approximately",
    why="the bubble, not the communication; published runs used 128 layers on 64 stages (1 T) and 105 on 35, "
    "one layer per virtual stage (530 B)",
)
def thin_stages():
    eight, sixteen = hybrid.stage_rows(stages=(8, 16))
    return (
        f"2 layers at t 8: forward {format_time(sixteen['forward'])}, transfer "
        f"{format_time(sixteen['transfer'])} at 50 GB/s; bubble at m = 32 {format_share(sixteen['bubble'])} "
        f"against {format_share(eight['bubble'])} at 8 stages; 16 want m = {sixteen['wanted']}"
    )


@claim(
    "3.4-h",
    "Few samples a card make gradients noisy and convergence worse 收敛变差",
    guide="noise grows",
    verdict="corrected",
    why="noise depends on the global batch alone; a small batch a card costs matrix efficiency and "
    "communication share, and it is a too large global batch that can harm convergence",
)
def noise():
    cards = (1, 8, 64, 256)
    found = [gradient_noise(512, n) for n in cards]
    spread = max(abs(one / found[0] - 1) for one in found)
    same = "equal to 12 digits" if spread < 1e-12 else f"apart by {spread:.1e}"
    return (
        f"relative noise at batch 512 on {', '.join(map(str, cards))} cards: "
        f"{', '.join(f'{one:.4f}' for one in found)}, {same}; at batch 128 {gradient_noise(128, 8):.4f}"
    )


@claim(
    "3.4-j",
    "TP x PP x DP = all cards 总卡数",
    guide="three factors",
    verdict="approximately",
    why="dated: context parallel is a fourth factor, and expert parallel is carved out of the ranks of a "
    "stage, no further factor",
)
def four_factors():
    plan = Plan(tp=8, cp=2, pp=4, dp=2, ep=4, etp=1, micro_batch=1, accumulation=16)
    machine, shape = cluster("h100", nodes=16), model("mixtral-8x7b")
    wrong = [p.rule for p in problems(shape, machine, plan) if p.severity == "impossible"]
    too_many = plan.changed(ep=8, etp=8, dp=1)
    rules = [p.rule for p in problems(shape, machine, too_many) if p.severity == "impossible"]
    return (
        f"{plan.tp} x {plan.cp} x {plan.pp} x {plan.dp} = {plan.ranks} with ep {plan.ep} inside: "
        f"{len(wrong)} rules broken; ep 8 x etp 8 on dp 1 breaks: {', '.join(rules)}"
    )


@claim(
    "3.4-k",
    "The rest goes to data parallel, the most efficient 通信效率最高",
    guide="all other cards to DP",
    verdict="approximately",
    why="once m is several times the stages; below that the factor given to DP halves m and doubles the "
    "bubble, and tensor parallel inside the node costs less",
)
def the_rest():
    parts = []
    for size in (512, 256):
        rows = hybrid.last_factor("guide-13b", size)
        said = ", ".join(
            f"{one.name} {format_bytes(one.bytes_per_card)} and {format_time(one.exposed)}" for one in rows
        )
        parts.append(f"batch {size}: {said}")
    wins = hybrid.best_factors("guide-13b")
    first = min(size for size, name in wins.items() if name == "DP")
    wanted = hybrid.last_factor("guide-13b", 512)
    batches = ", ".join(f"{one.name} {digits(one.smallest_batch, 6)}" for one in wanted)
    return (
        f"last factor 2 of 64 A100, guide-13b, a card sends and not hidden: {'; '.join(parts)}; DP least "
        f"from batch {first} of {', '.join(map(str, wins))}; batch for m = 4 p: {batches}"
    )


@claim(
    "3.4-l",
    "64 cards: 8 x 4 x 2 is the reasonable cut 合理的切法, no model named",
    guide="8 x 4 x 2",
    verdict="approximately",
    why="a matter of the model and the micro-batch: for 13 B the cut is far finer than needed (a search over "
    "all plans, later, refines this first fit)",
)
def the_reasonable_cut():
    most, states = hybrid.replica_of_32()
    chosen = [
        f"{size} at micro-batch {batch}"
        for size in hybrid.FAMILY
        for batch in hybrid.MICRO_BATCHES
        if hybrid.judged(hybrid.family_model(size), batch, **hybrid.ALL_KEPT) == "8 x 4 x 2"
    ]
    return (
        f"32 x 80 GB hold at most {digits(most / 1e9)} B at 16 B; 13 B take {format_bytes(states)} of states "
        f"a card; the decision picks 8 x 4 x 2 for {', '.join(chosen)}; for gpt3-13b "
        f"{hybrid.judged(model('gpt3-13b'))}, llama2-70b {hybrid.judged(model('llama2-70b'))}"
    )
