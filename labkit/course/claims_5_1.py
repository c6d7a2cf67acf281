"""Section 5.1's first claim: the sweep and its three regions."""

from labkit.course import chapter2_bandwidth as bandwidth
from labkit.course.claims import claim
from labkit.units import format_bytes, format_rate, format_share, format_time


@claim(
    "5.1-a",
    "Sweep AllReduce 1 MB..1 GB: latency region, knee 拐点, plateau 大消息平台",
    guide="< 64 KB latency; knee at hundreds of KB; plateau >= 80 % of nominal",
    verdict="corrected",
    why="a sweep from 1 MB cannot show a region below 64 KB, start at 1 KB or below; and the terms of a ring "
    "are equal at N times the αB of one hop, not at αB; changes of protocol push half the plateau further "
    "out",
)
def three_regions():
    _, fit = bandwidth.sample(bandwidth.FULL_RANGE)
    hop = fit.link("ring")
    shares = ", ".join(
        f"{name} {format_share(bandwidth.sample(name)[1].share_of(bandwidth.NOMINAL[name]))}"
        for name in bandwidth.NOMINAL
    )
    late = bandwidth.cut_sweep()
    told = f"alpha {format_time(late.alpha)}" if late.alpha == late.alpha else "no alpha"
    return (
        f"{bandwidth.FULL_RANGE}: alpha {format_time(fit.alpha)} ± {format_time(fit.alpha_error)}, algbw "
        f"limit {format_rate(fit.bandwidth)}; αB of one hop {format_bytes(hop.alpha * hop.bandwidth)}, of "
        f"the whole {format_bytes(fit.knee)}, half the plateau at {format_bytes(fit.half_power)}; the same "
        f"log from 1 MiB up gives {told}; plateaus: {shares} of nominal"
    )
