"""Section 5.5's claims, the second half: what fits, what buckets and kernels cost, and where gain comes "
"from."""

from dataclasses import replace

from labkit.course import chapter5_checks as checks
from labkit.course import chapter5_gain as gain
from labkit.course import chapter5_rounds as rounds
from labkit.course.claims import claim
from labkit.planner.in_flight import in_flight
from labkit.presets import model
from labkit.strategies.pipeline import bubble_share
from labkit.units import GB, MB, digits, format_bytes, format_share, format_time


@claim(
    "5.5-i",
    "1.8 s to 1.2 s beside a utilisation of 40 to 55 % 计算利用率",
    guide="33 % better",
    verdict="corrected",
    why="on an A100-class card 1.8 s is above that range before any tuning, on a newer one 1.2 s is far "
    "below it; "
    "between its ends there is room for 1.375x on any card, and 1.8 s becomes 1.31 s",
)
def utilisation():
    rows = checks.utilisation_table().rows
    most, seconds = checks.most_gain()
    said = "; ".join(f"{words}: {rate}, {old} of 312, {new} of 989" for words, rate, old, new in rows)
    return f"{said}; at most {most:.3f}x, {format_time(seconds)}"


@claim(
    "5.5-j",
    "Round 3 switches on recompute 开激活重计算",
    guide="recompute",
    verdict="corrected",
    why="nothing asks for it: with all activations kept, attention scores among them, stage 0 is below 80 "
    "GB; full "
    "recompute does the forward again for memory that stays empty, against 4.2's own rule",
)
def needless():
    parts = []
    for micro in (2, 4):
        states, kept = checks.held(4, micro)
        _, stored = checks.held(4, micro, fused=False)
        parts.append(f"{kept / GB:.1f} ({stored / GB:.1f}) GB at micro-batch {micro}")
    without, full, slower = checks.recompute_costs(rounds.cards(), rounds.third().plan)
    (taken_back,) = (step.change for step in gain.tuned(rounds.third()) if step.name == "recompute")
    return (
        f"states {states / GB:g} GB; activations of stage 0 with fused attention (scores stored): "
        f"{', '.join(parts)}; at most {(states + stored) / GB:.0f} of 80 GB; by the model round 3 holds "
        f"{format_bytes(without)} without, {format_bytes(full)} with recompute, and is "
        f"{format_share(slower)} slower; "
        f"tuned one setting at a time, {taken_back}"
    )


@claim(
    "5.5-k",
    "Buckets of 32 MB, because the network's latency is high 桶大小调到 32MB",
    guide="fewer handshakes",
    verdict="corrected",
    why="two replicas reduce a bucket in two steps, so 14 buckets less save 28 messages; and in the usual "
    "order of "
    "ranks both replicas of a stage sit in one node and never touch the network",
)
def larger_buckets():
    most, gained = checks.unhidden(), checks.bucket_gain()
    inside = not rounds.FIRST.plan.crosses("dp", rounds.cards().domain)
    apart = replace(rounds.FIRST.plan, order="tp-cp-pp-dp").crosses("dp", rounds.cards().domain)
    return (
        f"gradients {digits(checks.gradients() / GB, 4)} GB a card: {checks.buckets()} buckets become "
        f"{checks.buckets(32 * MB)}, which saves {digits(1e3 * gained)} ms of 1.8 s; all of them unhidden "
        "take "
        f"{digits(1e3 * most)} ms, {format_share(most / rounds.SAID[0])}; the pair is "
        f"{'inside a node' if inside else 'across nodes'}, with pipeline before data "
        f"{'across nodes' if apart else 'inside a node'}; at DP 64 the larger buckets save "
        f"{digits(1e3 * checks.bucket_gain(64))} ms"
    )


@claim(
    "5.5-l",
    "Micro-batch 1 is too fine 计算粒度太细, launches come up 算子启动开销上来",
    guide="micro-batch 1 is too fine",
    verdict="approximately",
    why="launches double, from little to little: even the shortest matrix product is far longer than "
    "starting it; "
    "messages of half the size and twice as many transfers cost as well",
)
def grain():
    seconds = checks.half_of_peak_seconds()
    spans = "; ".join(
        f"{1e6 * min(each):.0f} to {1e6 * max(each):.0f} µs on {name}" for name, each in seconds.items()
    )
    steps = {micro: rounds.Round("", rounds.cut(global_batch=64, micro_batch=micro)) for micro in (4, 2, 1)}
    times = {micro: one.step(rounds.cards()) for micro, one in steps.items()}
    sizes = " / ".join(f"{checks.message(micro) / MB:.0f}" for micro in times)
    terms = "; ".join(
        f"{words} {' / '.join(format_time(getattr(step, term)) for step in times.values())}"
        for words, term in (("compute", "compute"), ("launches", "launch"), ("tensor", "tp"))
    )
    return f"products at half of peak: {spans}; micro-batch 4 / 2 / 1: messages of {sizes} MB, {terms}"


@claim(
    "5.5-m",
    "(not in the guide) another way to round 2's 8.6 %: interleaving 交错流水线",
    guide="absent",
    verdict="approximately",
    why="v = 2 at m 16 has the bubble of m 32 with batch 64 and micro-batch 2 as they were; it pays in "
    "transfers "
    "between stages and in activations in flight",
)
def interleaved():
    plain, other = rounds.FIRST.plan, rounds.interleaved().plan
    hops = [plan.pp * plan.v - 1 for plan in (plain, other)]
    flying = [in_flight(plan, 0) for plan in (plain, other)]
    steps = [one.step(rounds.cards()).total for one in (rounds.FIRST, rounds.SECOND, rounds.interleaved())]
    return (
        f"bubble {format_share(bubble_share(other.pp, other.accumulation, other.v))}, batch "
        f"{other.global_batch}, "
        f"micro-batch {other.micro_batch}; {hops[1] / hops[0]:.2f}x transfers, "
        f"{flying[1] / flying[0]:.3f}x in "
        f"flight; by the model {', '.join(map(format_time, steps))} for rounds 1, 2 and this"
    )


@claim(
    "5.5-n",
    "Most of such gains come from schedule and overlap 调度和重叠, not from another parallel plan",
    guide="most of it",
    verdict="approximately",
    why="the schedule is worth much, and most where the backward pass is split; overlap and buckets next to "
    "nothing, since the gradients of two replicas are small and inside a node; what no schedule gives is "
    "another cut, and that is a plainer one",
)
def attribution():
    parts = gain.sources_of_gain()
    whole = sum(parts.values())
    shares = "; ".join(f"{name} {format_share(saved / whole)}" for name, saved in parts.items())
    steps = rounds.timed()

    def line(before, after):
        saved = rounds.saved(steps[before], steps[after])
        named = sorted(saved, key=lambda term: -abs(saved[term]))[:3]
        terms = ", ".join(f"{term} {1e3 * saved[term]:+.0f}" for term in named)
        return f"{before} to {after} {1e3 * sum(saved.values()):+.0f} ({terms})"

    return (
        f"{format_time(whole)} saved of round 1, as more is free: {shares}; overlap of the gradients "
        f"{format_time(gain.overlap_gain())}, 32 MB buckets {1e6 * gain.larger_bucket_gain():+.0f} µs; the "
        f"guide's own rounds, ms saved for 64 sequences: {line('1', '2')}, {line('2', '3')}"
    )


@claim(
    "5.5-o",
    "Rounds are compared by step time 单步时间",
    guide="step time",
    verdict="corrected",
    why="a step of three times the batch is three times the work: compare tokens per second and card, and "
    "say what "
    "the learning rate must become; step time only at equal batch",
)
def compared():
    runs = {words: one.step(rounds.cards()) for words, one in rounds.readings("none").items()}
    by_time = min(runs, key=lambda words: runs[words].total)
    by_tokens = max(runs, key=lambda words: runs[words].tokens_per_s_per_gpu)
    rates = ", ".join(
        f"{words} {format_time(step.total)} and {step.tokens_per_s_per_gpu:,.0f}"
        for words, step in runs.items()
    )
    linear, root = rounds.learning_rates(rounds.third().plan.global_batch)
    return (
        f"round 3 without recompute, step and tokens/s a card: {rates}; least time: {by_time}, most tokens: "
        f"{by_tokens}, whose learning rate is {linear} (linear) or {root} (square root)"
    )


@claim(
    "5.5-p",
    "A layer of 0.4 B takes 800 MB in bf16 and fits one card 单卡放得下",
    guide="800 MB",
    verdict="approximately",
    why="what has to fit is 16 bytes a parameter, and activations; it still does",
)
def one_layer():
    (guide, *_), (true, *_) = ((row[2], row[3]) for row in checks.layer_table().rows[:2])
    sixteen = [row[3] for row in checks.layer_table().rows[:2]]
    return f"{guide} of weights, {sixteen[0]} of states; the true layer {true}, {sixteen[1]}"


@claim(
    "5.5-q",
    "With activations in mind TP 4 is safer 上 TP=4 更稳",
    guide="TP 4",
    verdict="approximately",
    why="safer, not needed: with fused attention TP 1 just fits by this sum and TP 2 with DP 4 fits with "
    "ease, and "
    "sharding over the replicas fits without any tensor parallel at all",
)
def degrees():
    def line(fused):
        return " / ".join(f"{sum(checks.held(tp, fused=fused)) / GB:.4g}" for tp in (1, 2, 4))

    states = " / ".join(f"{checks.held(tp)[0] / GB:.4g}" for tp in (1, 2, 4))
    shape = model(rounds.MODEL)
    return (
        f"TP 1 / 2 / 4 with PP 4, micro-batch 2: stage 0 {line(True)} GB, scores stored {line(False)} GB, "
        "states "
        f"alone {states} GB; of {digits(shape.parameters / 1e9)} B the search picks {gain.said(gain.best())}"
    )
