"""Section 4.3's claims: what overlap hides, what it costs, and what goes wrong with it."""

from labkit.course import chapter4_overlap as overlap
from labkit.course.chapter3_buckets import overlapped, sequences_for
from labkit.course.chapter3_data import machine_of
from labkit.course.claims import claim
from labkit.intervals import intersection, intervals, length
from labkit.strategies.buckets import CAP
from labkit.strategies.contention import SLOW_DOWN, break_even, break_even_beside
from labkit.strategies.stream_check import check
from labkit.strategies.streams import run
from labkit.strategies.tensor_streams import WAYS, tensor_case
from labkit.units import digits, format_share, format_time


@claim(
    "4.3-a",
    "Coverage is the hidden share of the communication 通信覆盖率",
    guide="hidden / communication",
)
def definition():
    computing, communicating = [(0.0, 4.0), (6.0, 9.0)], [(2.0, 5.0), (4.0, 7.0), (10.0, 11.0)]
    t = overlap.streams_of(computing, communicating)
    sends, computes = (intervals(*zip(*pairs, strict=True)) for pairs in (communicating, computing))
    hidden = length(intersection(sends, computes))
    durations = sum(stop - start for start, stop in communicating)
    same = "equal" if t.coverage == hidden / length(sends) else "unequal"
    return (
        f"unions of intervals, two collectives at once counted once: {hidden:g} of {length(sends):g} s = "
        f"{format_share(t.coverage)}, {same} in Timeline.coverage, the one for simulators and profiles; "
        f"durations added up would be {durations:g} s"
    )


@claim(
    "4.3-b",
    "Well tuned, data parallel reaches over 90 %, tensor parallel 60 to 70 % 调得好的数据并行能到 90% 以上",
    guide="DP > 90 %, TP 60 to 70 %",
    verdict="approximately",
    why="data parallel passes 90 % once the batch is large enough, and 3.1-e's 60 to 80 % is the band below; "
    "tensor parallel has no figure of its own: it follows from the way and from compute over bandwidth",
)
def coverage_reached():
    low, high, most = (sequences_for(share, 64, "a100") for share in (0.6, 0.8, 0.9))
    parts = []
    for name in ("a100", "h100"):
        chunks, halves, backward, both = map(_facts, overlap.tensor_overlaps(name).values())
        parts.append(
            f"{name} product in chunks {chunks}, half batches {halves}, backward {backward}, "
            f"chunks and backward {both}"
        )
    return (
        f"coverage (exposed time, its share): DP, 1.3 B on 64 a100: 60 to 80 % at {low:.2g} "
        f"to {high:.2g} sequences per rank, 90 % from {most:.2g}, {_facts(overlapped(8, 64))} at 8; "
        f"TP 8, all layers of 13 B, 2 sequences: {'; '.join(parts)}"
    )


def _facts(t) -> str:
    """Coverage beside exposed time and its share, as 4.3-e asks for."""
    coverage, exposed, share = overlap.facts(t)
    return f"{coverage} ({exposed}, {share})"


@claim(
    "4.3-c",
    "Tensor parallel: layer i's AllReduce beside layer i+1's products 第 i 层的通信和第 i+1 层的计算并行",
    guide="on different streams, in parallel",
    verdict="corrected",
    why="layer i+1 reads the sum that this AllReduce makes; legal are chunks of the product, half batches in "
    "turn, and backward the weight gradient beside the input gradient's AllReduce",
)
def next_layer():
    parts = []
    for way in WAYS:
        case = tensor_case(way)
        wrong = overlap.wrong_by(run(case.programs, case.buffers).buffers, case.expected)
        finds = ", ".join(finding.kind for finding in check(case.programs)) or "legal"
        parts.append(f"{way}: {finds}, {'right' if wrong < 1e-12 else f'off by {digits(wrong)}'}")
    return "run on real matrices, t = 2: " + "; ".join(parts)


@claim(
    "4.3-d",
    "Overlap is free 等于不要钱, 无本万利",
    guide="free",
    verdict="approximately",
    why="a collective takes processors and memory bandwidth: computing beside it was measured 1.1 to 1.4 "
    "times as slow, and overlap pays while that costs less than it hides",
)
def not_free():
    off, on = overlap.gradient_buckets(machine_of("a100", 64), 64, 2, CAP, SLOW_DOWN)
    whole = " and ".join(f"{overlap.whole_backward(each):.3g} at {each}" for each in (2, 16))
    return (
        f"1.3 B on 64 a100, 2 sequences, slow-down {SLOW_DOWN:g}: hides {format_time(on.hidden[0])}, costs "
        f"{format_time(on.busy[0] - off.busy[0])}, saves {format_time(off.span - on.span)}; break-even: "
        f"{break_even(1.0, 10.0):g} with 1 ms hidden beside 10 ms of kernels, {break_even_beside(2.0):g} if "
        f"the collective runs 2 times as long too, {whole} sequences if all of the backward pass is slowed"
    )


@claim(
    "4.3-e",
    "One number is enough: coverage 看一个指标就够了",
    guide="coverage alone",
    verdict="corrected",
    why="it is a share of a time that it does not say: the better coverage can be the slower step, so it "
    "stands beside exposed time and its share of the step",
)
def misleading():
    rows = overlap.misleading_table().rows
    shares = "; ".join(
        f"{communication} at {coverage} exposes {exposed}, {share} of its step of {step}"
        for communication, coverage, exposed, share, step in rows
    )
    machine = machine_of("a100", 64)
    alone, slowed = (overlap.gradient_buckets(machine, 64, 1, CAP, s)[1] for s in (1.0, SLOW_DOWN))
    return (
        f"{shares}; a slow-down of {SLOW_DOWN:g} lifts the coverage (exposed, share) of 1.3 B on 64 a100 at "
        f"1 sequence from {_facts(alone)} to {_facts(slowed)}, a step of "
        f"{format_time(alone.span)} becomes one of {format_time(slowed.span)}"
    )


@claim(
    "4.3-f",
    "The three most effective overlaps 三个最有效的重叠点",
    guide="gradient buckets, tensor parallel's AllReduce, parameter prefetch",
    verdict="approximately",
    why="all three shorten the step, the second only in the legal ways of 4.3-c",
)
def three():
    rows = overlap.overlaps_table().rows
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return "preset a100, N = 64, 2 sequences per rank, all layers: " + "; ".join(
        f"{off[0]} {off[2]} to {on[2]} hidden, {off[3]} ({off[4]}) to {on[3]} ({on[4]}) exposed"
        for off, on in pairs
    )


@claim(
    "4.3-g",
    "Written by hand, mind the synchronisation: hidden deadlocks and races 隐藏的死锁或者竞态",
    guide="easily written",
)
def mistakes():
    rows = overlap.mistakes_table().rows
    return "; ".join(f"{name}: {ends}, checker finds {finds}" for name, ends, finds in rows)


@claim(
    "4.3-h",
    "On by default, but see that the bucket size is right 要确认桶大小设置合理",
    guide="on by default",
)
def trace_check():
    says = overlap.trace_findings()
    return "; ".join(f"{what}: {' and '.join(found) or 'nothing to mend'}" for what, found in says.items())
