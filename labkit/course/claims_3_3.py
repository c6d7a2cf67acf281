"""Section 3.3's claims: pipeline parallelism trades time for space, and pays with bubbles."""

import numpy as np

from labkit.course import chapter3_pipeline as pipeline
from labkit.course import chapter3_stages as stages
from labkit.course.claims import claim
from labkit.strategies.pipeline import (
    bubble_over_ideal,
    bubble_share,
    gpipe,
    one_f_one_b,
    peak_in_flight,
    simulate,
)
from labkit.units import digits, format_bytes, format_share


@claim(
    "3.3-a",
    "Bubble share 气泡占比 (p-1)/(m+p-1): 43 % at p = 4, m = 4; 8.6 % at 4, 32",
    guide="43 %; 8.6 %",
)
def bubble():
    parts = []
    for p, m in ((4, 4), (4, 32)):
        run = simulate(gpipe(p, m), 1.0, 2.0)
        difference = abs(run.bubble - bubble_share(p, m))
        parts.append(
            f"p {p}, m {m}: {format_share(run.bubble)}, off the formula by {digits(round(difference, 12))}"
        )
    return "simulated, " + "; ".join(parts)


@claim("3.3-b", "m ≥ 4p keeps the bubble 气泡 acceptable", guide="m ≥ 4p")
def four_p():
    p = np.arange(2, 257)
    worst = bubble_share(p, 4 * p).max()
    shares = ", ".join(f"p {n} {format_share(bubble_share(n, 4 * n))}" for n in (2, 4, 16))
    return f"(p-1)/(5p-1): {shares}; up to p = 256 at most {format_share(worst)}, always under 20 %"


@claim(
    "3.3-c",
    "1F1B 一前一后交替 keeps activations level; with GPipe they grow with m",
    guide="level; grows",
)
def in_flight():
    parts = [
        f"m {m}: GPipe {peak_in_flight(gpipe(4, m)).max():.0f}, "
        f"1F1B {', '.join(f'{held:.0f}' for held in peak_in_flight(one_f_one_b(4, m)))}"
        for m in (8, 16, 64)
    ]
    return "micro-batches held on 4 ranks, " + "; ".join(parts)


@claim(
    "3.3-d",
    "Interleaving 交错式调度: bubble (p-1)/(m v+p-1), more communication",
    guide="(p-1)/(m·v+p-1)",
    verdict="approximately",
    why="exact where m is a multiple of p, without transfer time; what it costs is in 3.3-i",
)
def interleaved():
    parts = []
    for v in (2, 4):
        found = pipeline.interleaving(4, 16, v)
        parts.append(f"v {v}: simulated {format_share(found.bubble)}, formula {format_share(found.formula)}")
    return "p 4, m 16, " + "; ".join(parts)


@claim(
    "3.3-e",
    "First and last stage are unbalanced 负载天然不均衡",
    guide="unbalanced ends",
    verdict="approximately",
    why="in work only the last is, by its head; the first holds the embedding and most micro-batches in "
    "flight; the guide's reason is corrected in 3.3-h",
)
def ends():
    even = stages.load(head=stages.head_layers(128_256))
    run = ", ".join(digits(work) for work in even.work)
    return (
        f"work in layers {run} with a vocabulary of 128,256: bubble {format_share(even.bubble)} at m = 16 "
        f"instead of {format_share(bubble_share(4, 16))}"
    )


@claim(
    "3.3-f",
    "Micro-batches must be equal, the last batch divisible 能被整除, or the job hangs",
    guide="must divide, or hangs",
    verdict="approximately",
    why="a check at the start names the remedy; without it only ranks with different counts hang (3.3-l)",
)
def divisible():
    return str(stages.unequal_batch())


@claim(
    "3.3-g",
    "Only activations and gradients between cards: little and seldom 通信量小、频率低",
    guide="small, seldom",
)
def traffic():
    boundary, tensor = stages.traffic_rows()
    return (
        f"per micro-batch an interior stage sends {boundary.count:.0f} x {format_bytes(boundary.payload)}; "
        f"its 8 layers at TP 8 send {format_bytes(tensor.bytes_per_rank)} in {tensor.count:.0f} all_reduces: "
        f"{tensor.bytes_per_rank / boundary.bytes_per_rank:.0f}x"
    )


@claim(
    "3.3-h",
    "The first stage runs only part of the forward, the last only part of the backward 只做前向的一部分; "
    "updates out of step 参数更新节奏不齐; loss scaling 损失缩放 aligns them",
    guide="split the embedding, or align loss scaling",
    verdict="corrected",
    why="every stage runs forward and backward of its layers; embedding memory and most in-flight "
    "activations are on the first, head and loss on the last; updates stay in step, the cost is idle time, "
    "and loss scaling is a precision device that balances nothing",
)
def head():
    parts = []
    for vocabulary in stages.VOCABULARIES:
        layers = stages.head_layers(vocabulary)
        even, shifted = (stages.load(cut, layers).wasted for cut in (stages.EVEN, stages.SHIFTED))
        better = "better" if shifted < even else "worse"
        parts.append(
            f"V {vocabulary:,}: head {layers:.2f} layers, 8/8/8/8 wastes {format_share(even)}, one layer off "
            f"the last {format_share(shifted)} ({better})"
        )
    return "; ".join(parts)


@claim(
    "3.3-i",
    "Interleaving: p2p count x v 通信次数也随之上升",
    guide="rises with v",
    verdict="approximately",
    why="v times on every rank but the last, v - 1 there; unmentioned: more activations held, m a multiple "
    "of p, layers a multiple of p v",
)
def interleaving_costs():
    two, four = (pipeline.interleaving(4, 16, v) for v in (2, 4))
    return (
        f"p 4: boundaries crossed {two.crossings} at v 2 ({two.crossings_ratio:.2f}x), {four.crossings} at "
        f"v 4 ({four.crossings_ratio:.0f}x); activations held at v 2 {two.peak_ratio}x"
    )


@claim(
    "3.3-j",
    "The formula is approximate 气泡率的近似公式, for all forwards before all backwards",
    guide="≈",
    why="exact for equal stages without transfer time (with it see 2.4-h), at any forward : backward ratio, "
    "and the same for 1F1B, which buys memory, not bubble; two conventions are in use",
)
def exact():
    found = ", ".join(", ".join(pipeline.simulated_bubbles(p, m)) for p, m in pipeline.GUIDE_SIZES)
    return (
        f"GPipe and 1F1B at 1:1, 1:2, 1:3 simulated: {found}; p 4, m 16: "
        f"{format_share(bubble_share(4, 16))} of the step, {digits(100 * bubble_over_ideal(4, 16), 4)} % "
        "over the ideal"
    )


@claim(
    "3.3-k",
    "GPipe's memory explodes 显存会爆",
    guide="explodes",
    verdict="approximately",
    why="without recompute; with it GPipe keeps m boundary tensors of 2 s b h bytes and one working set",
)
def explodes():
    kept = stages.kept()
    plain, again = (kept.gpipe(64, recompute) for recompute in (False, True))
    return (
        f"first of 4 stages, m 64: {format_bytes(float(plain))} without, {format_bytes(float(again))} with "
        f"recompute; {format_bytes(kept.card)} are full at m = {kept.most_with_gpipe()} and "
        f"{kept.most_with_gpipe(recompute=True)}"
    )


@claim(
    "3.3-l",
    "Otherwise it hangs 否则会挂住, and the log says nothing 日志毫无提示",
    guide="hangs silently",
    verdict="approximately",
    why="it hangs only when ranks end up with different counts of micro-batches, and frameworks that check "
    "refuse at the start; remedies: drop the remainder, pad, exchange the counts (or shapes) first",
)
def hangs():
    hung, agreed = stages.job((5, 4, 4)), stages.job((5, 4, 4), agree=True)
    ended = "finished" if hung.finished else "stopped by the watchdog"
    waits = "; ".join(f"rank {rank} waits for {what}" for rank, what in enumerate(hung.waiting))
    return (
        f"three processes with 5, 4, 4 micro-batches: {ended} ({waits}); with counts exchanged first: "
        f"{'finished' if agreed.finished else 'stopped'}"
    )


@claim("3.3-m", "m ≥ 4p is a floor on the global batch 全局 batch too", guide="m ≥ 4p")
def floor():
    return "; ".join(
        f"p {p}, DP {dp}: at least {stages.batch_floor(p, dp)} sequences at micro-batch 1"
        for p, dp in ((4, 2), (16, 2))
    )
