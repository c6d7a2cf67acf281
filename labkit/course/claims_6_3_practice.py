"""Section 6.3's claims on memory in pieces, learning rate, sequence length, scaling and the table of runs."""

from labkit.course import chapter6_practice as tables
from labkit.course import chapter6_sequence as sequence
from labkit.course.claims import claim
from labkit.evidence.logged_run import COLUMNS
from labkit.practice.allocator import batches, diagnose
from labkit.practice.learning_rate import RULES, rate_factor, steps_needed, warm_ups
from labkit.spec.rule import counted
from labkit.units import digits, format_bytes, format_share


@claim(
    "6.3-a",
    "Varying shapes fragment memory; pad, or expandable segments 显存碎片, 可扩展段",
    guide="out of memory after some hundred steps; both help",
    verdict="approximately",
    why="expandable segments remove nearly all of it; with one shape the first steps show whether it fits, "
    "but what other tensors leave between activations stays",
)
def fragmentation():
    plain, pages = (tables.ran(room=tables.ENDLESS, allocator=name) for name in tables.ALLOCATORS)
    padded, failed = tables.ran("padded", tables.ENDLESS), tables.ran()
    ends = tables.ran(allocator=tables.EXPANDABLE)
    return (
        f"varying lengths: reserved {digits(tables.over(plain))} x what was allocated; padded "
        f"{digits(tables.over(padded))} x; expandable segments {digits(tables.over(pages))} x; in "
        f"{format_bytes(failed.capacity)}: out of memory at micro-batch {failed.failed + 1} "
        f"({diagnose(failed).verdict}), with expandable segments all {len(ends.allocated)} run"
    )


@claim(
    "6.3-i",
    "Pad all batches; a restart helps, a typical case of fragmentation 重启就好，这是典型的碎片问题",
    guide="pad; a restart proves it",
    verdict="approximately",
    why="padding is paid in tokens that are none, packing costs least; a restart cures a leak and a long "
    "batch as well: what is not allocated, and what is held between steps, tell them apart",
)
def padding():
    made = {way: batches(tables.lengths(), tables.ROWS, tables.LONGEST, way) for way in tables.WAYS}
    paid = ", ".join(f"{way} {format_share(one.padding)}" for way, one in made.items())
    told = []
    for history, again in tables.causes().values():
        found = diagnose(history)
        room = format_bytes(history.capacity - history.at_failure[0])
        told.append(
            f"{found.verdict}: {format_bytes(history.asked)} asked for, {room} not allocated, held + "
            f"{format_bytes(found.grown)}, restarted {len(again.allocated)} more run"
        )
    return f"padding: {paid}; {'; '.join(told)}"


_BATCHES = " to ".join(map(str, tables.BATCHES))


@claim(
    "6.3-c",
    "The learning rate goes with the global batch, linearly 学习率要随全局 batch 调整",
    guide="linear from 64 to 512",
    verdict="corrected",
    why="linear for plain gradient descent, square root for Adam and its like; both only up to the critical "
    "batch",
)
def rates():
    toy = {row[0]: row for row in tables.toy_table().rows}
    return (
        f"{_BATCHES}: "
        + " or ".join(f"x {digits(rate_factor(*tables.BATCHES, rule))} {rule}" for rule in RULES)
        + "; best rates of a toy: "
        + ", ".join(f"{method} {row[-1]}" for method, row in toy.items())
    )


@claim(
    "6.3-l",
    "Linear scaling and warm-up, whose steps grow in proportion 线性缩放加 warmup，warmup 步数也要按比例增加",
    guide="warm-up steps x 8",
    verdict="corrected",
    why="at 8 times the batch 8 times the steps are 64 times the samples, more than the run may have; kept "
    "in samples it takes an eighth of the steps",
)
def warm_up():
    batch, new = tables.BATCHES
    grown, _, kept = warm_ups(tables.WARM_UP, tables.STEPS, batch, new)
    run = tables.STEPS * batch / new
    gain = [
        f"{digits(steps_needed(batch, b) / steps_needed(new, b))} x fewer at {b:,}" for b in (128, 1024, 8192)
    ]
    return (
        f"{tables.WARM_UP:,} of {tables.STEPS:,} steps become {grown.steps:,.0f} of {run:,.0f}, "
        f"{grown.samples / (tables.WARM_UP * batch):g} x the samples; kept in samples {kept.steps:,.0f}; "
        f"steps saved by the critical batch: {', '.join(gain)}"
    )


@claim(
    "6.3-q",
    "512 tokens: optimizer states fill the card; 8,192: activations do 激活值占大头",
    guide="states at 512, activations at 8,192",
    verdict="approximately",
    why="beside stage 1 on eight cards over half only from a micro-batch of 2 on, or with the states sharded "
    "further",
)
def fills():
    short, long = (float(sequence.activation_bytes(s)) for s in (512, 8192))
    shares = {
        words: format_share(float(sequence.activation_share(s, b, stage).round(2)))
        for words, (s, b, stage) in {
            "512": (512, 1, 1),
            "8,192": (8192, 1, 1),
            "b = 2": (8192, 2, 1),
            "stage 3": (8192, 1, 3),
        }.items()
    }
    return (
        f"40 layers, b = 1, fused attention: {format_bytes(short)} and {format_bytes(long)}; beside stage 1 "
        f"at N = {sequence.CARDS} ({format_bytes(sequence.states_of(1))}): "
        + ", ".join(f"{words} {share}" for words, share in shares.items())
    )


@claim(
    "6.3-g",
    "Judge by weak scaling, not by strong 用弱扩展，不要用强扩展",
    guide="weak",
    verdict="approximately",
    why="each answers its own question, and both come from one model of the step",
)
def both():
    return "; ".join(
        f"{mode}, {counted(tables.CARDS[-1], 'card')}: batch {int(curve.batch[-1]):,}, efficiency "
        f"{format_share(curve.efficiency[-1])}, lost across nodes {format_share(curve.lost['across'][-1])}"
        for mode, curve in tables.curves().items()
    )


@claim(
    "6.3-o",
    "The global batch grows with the cards 实际训练通常是全局 batch 随卡数增加",
    guide="so weak scaling is what training does",
    verdict="approximately",
    why='weak: "does the cluster scale"; strong: "how much sooner at this batch"; convergence bounds the '
    "global batch, so the last cards to come are strong scaling, and chapter 1's story is a strong curve",
)
def bounded():
    story = tables.story()
    said = "; ".join(
        f"{mode} " + " / ".join(f"{one:.2f}" for one in throughput) for mode, throughput in story.items()
    )
    critical, batch = 1024, 512
    saved = steps_needed(batch, critical) / steps_needed(128 * batch, critical)
    return (
        f"chapter 1, throughput at 8 / 16 / 32 / 64: {said}; weak scaling to 128 x a batch of {batch} at a "
        f"critical batch of {critical:,}: {digits(saved)} x fewer steps"
    )


@claim(
    "6.3-h",
    "Keep a table of every run; begin from its nearest row 从表里最接近的那一行开工",
    guide="settings, step time, communication share, efficiency",
)
def table_of_runs():
    found = tables.new_case()
    return (
        f"{len(tables.example_runs())} runs, a row each, on disk before record returns; nearest to tp 4 on "
        f"32 cards: run {found.run.number}, {len(found.differences)} settings differ"
    )


@claim(
    "6.3-r",
    "Its columns 关键参数、单步时间、通信占比、扩展效率",
    guide="four; section 5.5 has step time, throughput a card, communication share",
    why="united; a row that does not fit the form is refused by itself, with the reason",
)
def columns():
    heads = tables.run_table().heads
    return f"{', '.join(heads)}; kept of each run: {', '.join(COLUMNS)}"
