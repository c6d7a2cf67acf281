"""Section 6.3's claim on the sequence: where the best plan switches."""

from labkit.course import chapter5_sensitivity as sensitivity
from labkit.course.claims import claim
from labkit.spec.plan_words import said


@claim(
    "6.3-f",
    "Sequences of 512 want stage 1 第一档, of 8192 recompute and sequence parallel 激活重计算和序列并行",
    guide="512: stage 1; 8192: recompute + sequence parallel",
    verdict="approximately",
    why="so it is where attention scores are stored; fused attention needs no recompute, sequence or context "
    "parallel does; sharding serves both ends, and inside a node its third stage costs no more than the "
    "first",
)
def by_sequence():
    def line(words, **how):
        return f"{words}: " + "; ".join(
            f"{s:,} {said(sensitivity.best_by_sequence(s, **how))}" for s in sensitivity.SEQUENCES
        )

    return " | ".join(
        (
            line("13B on 8 A100, scores stored", fused=False, context=False),
            line("fused attention", context=False),
            line("with context parallel"),
        )
    )
