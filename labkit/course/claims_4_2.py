"""Section 4.2's claims: what activations take, what recompute leaves of them, and what it costs."""

from labkit.course import chapter4_recompute as kept
from labkit.course import chapter4_recompute_price as price
from labkit.course.claims import claim
from labkit.planner.recompute import (
    best_every,
    break_even_share,
    extra_compute,
    recursive_recompute,
)
from labkit.planner.states import state_bytes
from labkit.presets import cluster
from labkit.units import digits, format_bytes, format_share


def _percent(share: float, places: int = 0) -> str:
    return f"{100 * share:.{places}f} %"


@claim(
    "4.2-a",
    "At long sequences activations take more than half of the memory 激活值",
    guide="over half",
)
def over_half():
    of, states, parts = kept.thirteen(), state_bytes(13e9, 8, 3), []
    for s in (2048, 8192):
        held = of.layers * kept.layer_of(of, s).kept
        parts.append(f"{format_bytes(held)} ({format_share(held / (held + states))}) at {s:,}")
    halves = [f"{kept.half_at(of, states, fused=fused):,.0f}" for fused in (True, False)]
    return (
        f"13B, stage 3 over 8, one sequence: states {format_bytes(states)}, activations "
        f"{' and '.join(parts)} with fused attention; half from s = {halves[0]}, scores stored {halves[1]}"
    )


@claim(
    "4.2-b",
    "Recompute: about 30 % more compute, memory down to 1/√L to 1/L 激活重计算",
    guide="+30 %; 1/√L to 1/L",
    verdict="approximately",
    why="one more forward is a third of forward and backward, a little less because the head is not "
    "repeated; for the memory see 4.2-e; selective recompute drops the attention scores for a few percent",
)
def one_more_forward():
    full, selective = (extra_compute(kept.thirteen(), way) for way in ("full", "selective"))
    shares = ", ".join(f"{format_share(kept.share_kept(k))} at k = {k}" for k in (1, 4, 8))
    lean = kept.layer_of(kept.thirteen(), 2048).kept / kept.layer_of(kept.thirteen(), 2048, fused=False).kept
    return (
        f"13B: full {format_share(full)} more FLOPs, 32 layers then hold {shares} of their activations; "
        f"selective {format_share(selective)} more, {format_share(lean)} held where scores were stored"
    )


@claim(
    "4.2-c",
    "Micro-batch 1 to 4, a step 12 % longer, throughput nearly doubled 整体吞吐提升近一倍",
    guide="4x, +12 %, nearly 2x",
    verdict="corrected",
    why="any two of the three figures fix the third: with 4x and +12 % the throughput is 3.57x or 0.89x; "
    "only if accumulation is halved as well does it come near 2x",
)
def three_figures():
    gains = [f"{samples / price.STEP:.2f}x" for samples in price.READINGS.values()]
    steps = [price.step_change(samples) for samples in price.READINGS.values()]
    return (
        f"4x and +12 %: throughput {gains[0]} with as many micro-batches, {gains[2]} at the same global "
        f"batch, {gains[1]} with half as many; 4x and 2x: step {steps[0]}, {steps[2]}, {steps[1]}"
    )


@claim(
    "4.2-d",
    "Activations are proportional to batch, sequence and layers 跟 batch、序列长度、层数都成正比",
    guide="linear in all three",
    verdict="approximately",
    why="s b h (34 + 5 a s/h) per layer: linear in s only where attention scores are not stored, which fused "
    "attention and selective recompute see to",
)
def not_linear():
    of = kept.thirteen()
    pairs = []
    for s in (2048, 8192):
        sizes = (of.layers * kept.layer_of(of, s, fused=fused).kept for fused in (True, False))
        pairs.append(f"{' against '.join(map(format_bytes, sizes))} at {s:,}")
    forms = []
    for split in (False, True):
        units = (
            kept.layer_of(of, 2048, fused=fused, tp=8, sequence_parallel=split).kept / (2048 * of.hidden)
            for fused in (True, False)
        )
        forms.append(" against ".join(digits(unit, 4) for unit in units))
    return (
        f"h 5120, a 40: scores lead beyond s = {kept.scores_lead_at(of):.0f}; 40 layers, fused against "
        f"stored: {', '.join(pairs)}; a layer at t = 8 {forms[0]} s b h, sequence parallel {forms[1]}"
    )


@claim(
    "4.2-e",
    "Activation memory falls to between 1/√L and 1/L 降到原来的 1/√L 到 1/L",
    guide="17.7 % to 3.1 % at L = 32",
    verdict="approximately",
    why="the inputs of the layers stay and one layer is always there: one more forward leaves 2/A + 1/L, "
    "A = 34 + 5as/h; groups of √L layers are worse, because a layer keeps 17 times its input; towards 1/L "
    "only recursion goes, for more forwards",
)
def one_over_l():
    layers, a = kept.LAYERS, kept.FUSED
    flat, stored = (kept.BOUNDARY / size + 1 / layers for size in (a, kept.STORED))
    groups = ", ".join(_percent(kept.share_kept(k)) for k in (4, 8))
    deep = recursive_recompute(layers)
    share = deep.held(kept.BOUNDARY, a) / (layers * a)
    best = [str(best_every(depth, kept.BOUNDARY, a)) for depth in (32, 64, 128)]
    return (
        f"L = 32, every layer: 2/A + 1/L = {_percent(flat, 1)} ({_percent(stored, 1)} with scores stored), "
        f"counted on arrays {_percent(kept.share_kept(1), 1)}, its input being one of those kept; groups of "
        f"4, 8: {groups}; best k at L = 32, 64, 128: {', '.join(best)}; recursion {_percent(share, 1)} for "
        f"{deep.extra_forwards:g} more forwards"
    )


@claim(
    "4.2-f",
    "At a utilisation of 50 % or more, 30 % more compute only slows down 计算利用率已经很高",
    guide="50 %",
    verdict="approximately",
    why="the idea is right, the number is the plan's own: it pays where what the larger micro-batch (or the "
    "avoided stage 3 or tensor parallel) saves exceeds the repeated forward; bytes of tensor parallel grow "
    "with the samples and save nothing; useful utilisation (MFU) is 3/4 of the hardware's (HFU)",
)
def break_even():
    extra = extra_compute(kept.thirteen(), "full")
    shares = ", ".join(_percent(break_even_share(price.MORE_FORWARD, growth)) for growth in (2, 4, 1e9))
    at_four = 1 - break_even_share(extra, 4)
    limits = ", ".join(
        f"{_percent(at_four * cluster(name).gpu.reached)} {name}" for name in ("a100", "h100", "b200")
    )
    gains = "; ".join(
        f"{one.name} at an MFU of {_percent(one.utilisation(one.before)[0])}: {one.gain:.2f}x"
        for one in price.changes()[1:]
    )
    return (
        f"must save more than {1 + price.MORE_FORWARD:.2f}x; pays if cost per micro-batch is over {shares} "
        f"of the step (micro-batch 2x, 4x, without end), at 4x below an MFU of {limits}; 13B on 64: {gains}"
    )


@claim(
    "4.2-g",
    "One job with all three: 4x micro-batch, +12 %, nearly double 单步时间只增加了 12%",
    guide="measured on one job",
    verdict="corrected",
    why="compute of 4/3 x 2 = 8/3 (16/3 with 4x the samples) fits into +12 % only if almost none of the old "
    "step was compute; more is allowed only where the rest is paid per micro-batch and halves with it, as "
    "the gathers of stage 3",
)
def how_little_compute():
    halved, fourfold = (price.compute_share(price.STEP, samples, 1.0) for samples in (2, 4))
    per_micro_batch = price.compute_share(price.STEP, 2, 0.5)
    return (
        f"compute at most {format_share(halved)} of the old step at 1.79x with half the micro-batches, "
        f"{format_share(fourfold)} at 3.57x with as many, if the rest of the step stays; "
        f"{format_share(per_micro_batch)} at 1.79x if the rest is per micro-batch"
    )


@claim(
    "4.2-h",
    "The price of recompute is one more forward 代价是多一次前向计算",
    guide="compute only",
    verdict="approximately",
    why="the repeated forward repeats its collectives: full recompute replays both forward all_reduces of a "
    "tensor-parallel layer, selective recompute (the attention core) none",
)
def replayed():
    parts = []
    for way in kept.WAYS:
        facts, row = price.split_facts(4, recompute=way), price.tensor_row(way)
        count = facts["forward"] + facts["backward"]
        parts.append(f"{way} {count:g} ({facts['traffic']:g}x, {format_bytes(row.bytes_per_rank)})")
    return "all_reduces of a layer, counted, and sent per step of 13B, tp 8, m = 16: " + ", ".join(parts)
