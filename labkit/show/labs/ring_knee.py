"""The knee of a ring AllReduce: time and bus bandwidth over size, three regions, and what a sweep sees."""

import numpy as np

from labkit.collectives import busbw_factor, collective_cost
from labkit.course.chapter5_baseline import GUIDE_LARGEST, half_power, unseen
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.sense import several_ranks
from labkit.spec import Link
from labkit.units import GB, format_bytes, format_rate, format_share, format_size, format_time, us

SIZES = 2.0 ** np.arange(3, 34.01, 0.25)
SHADES = {
    "latency": theme.COLOURS["latency"],
    "climb": theme.COLOURS["grid"],
    "plateau": theme.COLOURS["good"],
}
NARROW = 2.0**6  # a region narrower than this has no room for its name; the climb always is


def compute(n=8, alpha_us=5.0, bandwidth_GBps=50.0, messages=1, start=1e6):
    """A ring over ``n`` ranks; the bytes go in so many equal ``messages``; ``start`` of the sweep, bytes."""
    several_ranks(n)
    link = Link(alpha_us * us, bandwidth_GBps * GB)
    one = collective_cost("all_reduce", "ring", SIZES, n, link).seconds
    apart = messages * collective_cost("all_reduce", "ring", SIZES / messages, n, link).seconds
    return dict(
        n=n,
        link=link,
        messages=messages,
        start=float(start),
        one=one,
        apart=apart,
        factor=busbw_factor("all_reduce", n),
        latency=collective_cost("all_reduce", "ring", 0.0, n, link).seconds,
        hop=link.alpha * link.bandwidth,
        knee=messages * half_power(n, link),
    )


def build(figure):
    """Left: time; right: bus bandwidth; both log-log, with the regions behind and a veil over the unseen."""
    left, right = theme.axes(figure, columns=2, left=0.075, right=0.985, bottom=0.15, top=0.84, wspace=0.26)
    for ax in (left, right):
        ticks.scale(ax.xaxis, "size", log=2, most=6)
        ax.set(xlim=(SIZES[0], SIZES[-1]), xlabel="bytes S to be reduced")
    ticks.scale(left.yaxis, "time", log=10, most=8)
    ticks.scale(right.yaxis, "rate", log=10, most=8)
    left.set(ylim=(2e-7, 1e2), title="time")
    right.set(ylim=(1e5, 5e12), title="bus bandwidth")
    both, muted = (left, right), theme.COLOURS["muted"]
    names = dict(transform=left.get_xaxis_transform(), ha="center", va="top", color=muted, zorder=6)
    marks = dict(transform=right.get_xaxis_transform(), zorder=6)
    colours = {"one": theme.COLOURS["ring"], "apart": theme.COLOURS["communication"]}
    return dict(
        shades={
            name: [
                ax.axvspan(1, 2, color=colour, alpha=0.5 if name == "climb" else 0.16, lw=0) for ax in both
            ]
            for name, colour in SHADES.items()
        },
        names={name: left.text(1, 0.965, name, **names) for name in SHADES},
        curves={
            name: [ax.plot([], [], color=colour, lw=2.6)[0] for ax in both]
            for name, colour in colours.items()
        },
        labels={
            name: left.text(1, 1, "", color=colour, zorder=6, va=va)
            for (name, colour), va in zip(colours.items(), ("top", "bottom"), strict=True)
        },
        hop=[ax.axvline(1, color=muted, lw=1.4, ls=":", zorder=4) for ax in both],
        knee=[ax.axvline(1, color=theme.COLOURS["text"], lw=1.4, ls="--", zorder=4) for ax in both],
        marks=[
            right.text(1, 0.965, "αB ", ha="right", va="top", color=muted, **marks),
            right.text(1, 0.03, "", va="bottom", color=theme.COLOURS["text"], **marks),
        ],
        half=right.plot([], [], "o", ms=8, color=theme.COLOURS["text"], zorder=5)[0],
        top=right.axhline(1e9, color=theme.COLOURS["ideal"], lw=1.4, ls="--"),
        top_says=right.text(SIZES[2], 1e9, "", va="bottom", color=muted, zorder=6),
        veils=[ax.axvspan(1, 2, color="white", alpha=0.72, lw=0, zorder=3) for ax in both for _ in range(2)],
        window=figure.text(0.985, 0.945, "", ha="right", color=muted),
        title=figure.text(0.075, 0.945, "", fontsize=12),
    )


def update(artists, result):
    """Curves, regions, both knees, half of the bandwidth, and the veil over what the sweep leaves out."""
    n, link, k, knee = result["n"], result["link"], result["messages"], result["knee"]
    for name in ("one", "apart"):
        times, rates = artists["curves"][name]
        times.set_data(SIZES, result[name])
        rates.set_data(SIZES, result["factor"] * SIZES / result[name])
    for line in (*artists["curves"]["apart"], artists["labels"]["apart"]):
        line.set_visible(k > 1)
    artists["labels"]["one"].set(text="one message", x=SIZES[2], y=0.8 * result["latency"])
    artists["labels"]["apart"].set(text=f"in {k} messages", x=SIZES[2], y=1.25 * k * result["latency"])
    edges = np.clip([SIZES[0], knee / 4, 4 * knee, SIZES[-1]], SIZES[0], SIZES[-1])
    for (name, patches), low, high in zip(artists["shades"].items(), edges, edges[1:], strict=False):
        for patch in patches:
            patch.set(x=low, width=high - low)
        artists["names"][name].set(x=np.sqrt(low * high), visible=bool(high / low > NARROW))
    for line in artists["hop"]:
        line.set_xdata([result["hop"]] * 2)
    for line in artists["knee"]:
        line.set_xdata([knee] * 2)
    artists["marks"][0].set_x(result["hop"])
    side = "left" if knee < SIZES[-1] / 2**6 else "right"
    name = " N αB " if k == 1 else " k N αB "
    artists["marks"][1].set(x=knee, text=name, ha=side, visible=bool(knee < SIZES[-1]))
    artists["half"].set_data([knee], [link.bandwidth / 2])
    artists["top"].set_ydata([link.bandwidth] * 2)
    artists["top_says"].set(text=f"B = {format_rate(link.bandwidth)}", y=1.2 * link.bandwidth)
    outside = ((SIZES[0], result["start"]), (GUIDE_LARGEST, SIZES[-1]))
    for veil, (low, high) in zip(artists["veils"], (*outside, *outside), strict=True):
        veil.set(x=low, width=max(high - low, 0))
    artists["window"].set_text(f"clear: a sweep from {_size(result['start'])} to {_size(GUIDE_LARGEST)}")
    artists["title"].set_text(f"ring AllReduce, N = {n:,}; the dot: half of B")
    return [
        *(patch for patches in artists["shades"].values() for patch in patches), *artists["names"].values(),
        artists["top"], *artists["veils"], *artists["hop"], *artists["knee"],
        *(line for lines in artists["curves"].values() for line in lines), *artists["labels"].values(),
        artists["half"], artists["top_says"], *artists["marks"], artists["window"], artists["title"],
    ]  # fmt: skip


def _size(size: float) -> str:
    return format_size(round(size))


def readout(result):
    """Both knees, the regions, what the sweep misses, and what merging saves."""
    n, link, k, knee = result["n"], result["link"], result["messages"], result["knee"]
    size = 8 * result["start"]
    one, apart = (
        messages * collective_cost("all_reduce", "ring", size / messages, n, link).seconds
        for messages in (1, k)
    )
    missing = unseen(result["start"], GUIDE_LARGEST, n, link, k)
    if k == 1:
        share = format_share(result["latency"] / one)
        merging = f"one message of {format_bytes(size)} takes {format_time(one)}, {share} of it latency"
    else:
        merging = (
            f"{k} messages of {format_bytes(size / k)} take {format_time(apart)}, merged {format_time(one)}: "
            f"{k - 1} latencies of {format_time(result['latency'])} saved"
        )
    return [
        f"N = {n:,}, α {format_time(link.alpha)}, B {format_rate(link.bandwidth)}: αB "
        f"{format_bytes(result['hop'])}; half of B at {'' if k == 1 else 'k '}N αB = {format_bytes(knee)}",
        f"time within a quarter of its least up to {format_bytes(knee / 4)}; 80 % of B from "
        f"{format_bytes(4 * knee)}, 90 % from {format_bytes(9 * knee)}",
        f"a sweep from {_size(result['start'])} to {_size(GUIDE_LARGEST)} misses: "
        f"{', '.join(missing) or 'nothing'}",
        merging,
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Time and bus bandwidth of a ring AllReduce over {result['n']} ranks against size on log axes: at "
        "small sizes time is flat and bandwidth rises, at large ones the reverse; lines at alpha B and N "
        "alpha B, and a veil over the sizes that a sweep leaves out."
    )


ring_knee = Lab("ring_knee", compute, build, update, readout, alt, size=(9.6, 3.9))
