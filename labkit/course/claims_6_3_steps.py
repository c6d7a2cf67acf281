"""Section 6.3's claims on step times: a distribution, not a mean, and what slow steps have in common."""

from labkit.course import chapter6_scaling as scaling
from labkit.course.claims import claim
from labkit.evidence.triage import distribution
from labkit.evidence.triage.scaling_job import recorded_steps
from labkit.units import format_share, format_time


@claim(
    "6.3-e",
    "Watch the distribution of step times, not their mean 每步耗时的分布: 0.8 s and 1.6 s average 1.2 s; P99 "
    "and maximum 看 P99 和最大值",
    guide="0.8 s and 1.6 s, half each: mean 1.2 s",
)
def step_times():
    exact, job = distribution([0.8] * 50 + [1.6] * 50), recorded_steps("straggler")
    found, alone = distribution(job.step, job.work), distribution(job.step)
    facts = exact.summary
    modes = ", ".join(f"{format_share(one.share)} at {format_time(one.seconds)}" for one in exact.modes)
    real = ", ".join(f"{format_share(one.share)} around {format_time(one.seconds)}" for one in found.modes)
    return (
        f"mean {format_time(facts.mean)}, P99 {format_time(facts.p99)}, max {format_time(facts.longest)}; "
        f"{len(exact.modes)} modes: {modes}; recorded: mean {format_time(found.summary.mean)}, {real}; cause "
        f"from step times: {alone.cause or 'cannot be told'}, from own work: {found.cause}, "
        f"rank {found.last.rank}"
    )


@claim(
    "6.3-p",
    "Usually some cards wait for a straggler 通常是某些卡在等 straggler",
    guide="a straggler",
    verdict="approximately",
    why="also periodic causes: collection pauses, saving, evaluation, alternating lengths; so the period of "
    "slow steps is reported, and whether one rank is always the last to arrive",
)
def causes():
    made = "; ".join(
        f"{row[0]}: {row[6]}" + ("" if row[5] == "none" else f", {row[5]} steps")
        for row in scaling.distribution_table(0.1).rows
    )
    found = distribution(recorded_steps("saving").step, recorded_steps("saving").work)
    turns = distribution([0.8, 1.6] * 50)
    return (
        f"one slow step in ten, mean alike: {made}; recorded saving: every {found.period} steps, "
        f"{found.cause}; alternating lengths: every {turns.period}"
    )
