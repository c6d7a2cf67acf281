"""A sweep log beside its fit: time and bus bandwidth over size, three regions, and the model it implies."""

import numpy as np

from labkit.collectives import busbw_factor, collective_cost
from labkit.course.chapter2_bandwidth import NOMINAL, sample
from labkit.errors import InputRefused
from labkit.evidence.sweep import read_sweep
from labkit.presets import sample_sweeps
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.units import GB, format_bytes, format_rate, format_share, format_size, format_time, words

SIZES = 2.0 ** np.arange(3, 34.51, 0.25)
SHADES = {
    "latency": theme.COLOURS["latency"],
    "climb": theme.COLOURS["grid"],
    "plateau": theme.COLOURS["good"],
}
WORDS = {"latency": "latency", "climb": "climb", "plateau": "plateau"}


def compute(log="a100-8gpu-nvswitch", nominal_GBps=0, algorithm="ring"):
    """Reads a shipped sweep by name, or any log by path, and fits its first table.

    ``nominal_GBps`` 0: the rate of the shipped sweep's links; to be given for a log of one's own.
    """
    sweep, fit = sample(log) if log in sample_sweeps() else _read(log)
    factor = busbw_factor(sweep.collective, sweep.n_ranks)
    inside = (fit.range[0] <= SIZES) & (fit.range[1] >= SIZES)
    fitted = np.where(inside, fit.predict(SIZES), np.nan)
    known = np.isfinite(fit.alpha) and np.isfinite(fit.bandwidth)
    model = np.full(SIZES.shape, np.nan)
    if known:
        model = collective_cost(
            sweep.collective, algorithm, SIZES, sweep.n_ranks, fit.link(algorithm), segments=1
        ).seconds
    return dict(
        log=log,
        sweep=sweep,
        fit=fit,
        factor=factor,
        nominal=nominal_GBps * GB or NOMINAL.get(log, np.nan),
        fitted=fitted,
        model=model,
        algorithm=algorithm,
    )


def _read(path):
    """The first table of a reader's own log, and its fit."""
    sweep = read_sweep(path)[0]
    if sweep.collective is None or sweep.n_ranks is None:
        raise InputRefused(
            "This log does not say which collective ran on how many ranks. "
            "Read it with read_sweep(path, n_ranks=...) and fit that."
        )
    return sweep, sweep.fit()


def build(figure):
    """Left: time; right: bus bandwidth; both log-log with fixed limits."""
    left, right = theme.axes(figure, columns=2, left=0.075, right=0.985, bottom=0.15, top=0.84, wspace=0.28)
    for ax in (left, right):
        ticks.scale(ax.xaxis, "size", log=2, most=6)
        ax.set(xlim=(SIZES[0], SIZES[-1]), xlabel="message size S")
    ticks.scale(left.yaxis, "time", log=10, most=7)
    ticks.scale(right.yaxis, "rate", log=10, most=7)
    left.set(ylim=(2e-6, 1), title="time")
    right.set(ylim=(1e5, 3e12), title="bus bandwidth")
    shades = {
        name: [
            ax.axvspan(1, 2, color=colour, alpha=0.16 if name != "climb" else 0.5, lw=0)
            for ax in (left, right)
        ]
        for name, colour in SHADES.items()
    }
    series = (("model", theme.COLOURS["model"], 1.8, "--"), ("fitted", theme.COLOURS["bandwidth"], 2.6, "-"))
    curves = {
        name: [ax.plot([], [], style, color=colour, lw=width)[0] for ax in (left, right)]
        for name, colour, width, style in series
    }
    return dict(
        shades=shades,
        names={
            name: left.text(
                0,
                0.965,
                WORDS[name],
                transform=left.get_xaxis_transform(),
                ha="center",
                va="top",
                color=theme.COLOURS["muted"],
            )
            for name in SHADES
        },
        curves=curves,
        dots=[ax.plot([], [], "o", ms=5, color=theme.COLOURS["measured"])[0] for ax in (left, right)],
        knee=[ax.axvline(2**10, color=theme.COLOURS["muted"], lw=1.2, ls=":") for ax in (left, right)],
        nominal=right.axhline(1e9, color=theme.COLOURS["ideal"], lw=1.4, ls="--"),
        says=right.text(
            0.02, 1e9, "", transform=right.get_yaxis_transform(), va="bottom", color=theme.COLOURS["muted"]
        ),
        key=[
            figure.text(x, 0.945, name, ha="right", color=theme.COLOURS[colour], fontweight="bold")
            for x, name, colour in (
                (0.865, "measured", "measured"),
                (0.905, "fit", "bandwidth"),
                (0.985, "model", "model"),
            )
        ],
        title=figure.text(0.075, 0.945, "", fontsize=12),
    )


def update(artists, result):
    """Points, curves, regions, knee and the nominal rate."""
    sweep, fit, factor = result["sweep"], result["fit"], result["factor"]
    left, right = artists["dots"]
    left.set_data(sweep.size, sweep.time)
    right.set_data(sweep.size, factor * sweep.size / sweep.time)
    for name, seconds in (("fitted", result["fitted"]), ("model", result["model"])):
        times, rates = artists["curves"][name]
        times.set_data(SIZES, seconds)
        rates.set_data(SIZES, factor * SIZES / seconds)
    spans = {region.name: region for region in fit.regions}
    for name, patches in artists["shades"].items():
        region = spans.get(name)
        for patch in patches:
            patch.set_visible(region is not None)
            if region is not None:
                patch.set(x=region.smallest, width=region.largest - region.smallest)
        text = artists["names"][name]
        wide = region is not None and np.log2(region.largest / region.smallest) > 5
        text.set_visible(bool(wide))
        if wide:
            text.set_x(np.sqrt(region.smallest * region.largest))
    for line in artists["knee"]:
        line.set_visible(bool(np.isfinite(fit.knee)))
        if np.isfinite(fit.knee):
            line.set_xdata([fit.knee] * 2)
    for key in ("nominal", "says"):
        artists[key].set_visible(bool(result["nominal"] > 0))
    artists["nominal"].set_ydata([result["nominal"]] * 2)
    artists["says"].set(text=f"nominal {format_rate(result['nominal'])}", y=result["nominal"] * 1.1)
    artists["title"].set_text(
        f"{sweep.collective.replace('_', ' ')} on {sweep.n_ranks} ranks; dotted line: the knee αB"
    )
    shades = [patch for patches in artists["shades"].values() for patch in patches]
    curves = [line for lines in artists["curves"].values() for line in lines]
    return [
        *shades, *artists["names"].values(), *artists["knee"], artists["nominal"], artists["says"],
        *curves, *artists["dots"], artists["title"],
    ]  # fmt: skip


def readout(result):
    """What the fit says, with its errors and its range."""
    fit, sweep = result["fit"], result["sweep"]
    stands_out = words(fit.findings[0].kind) if fit.findings else "nothing"
    return [
        f"{result['log']}: alpha {format_time(fit.alpha)} ± {format_time(fit.alpha_error)}, algbw limit "
        f"{format_rate(fit.bandwidth)} ± {format_rate(fit.bandwidth_error)}",
        f"knee αB {format_bytes(fit.knee)}; half of the bandwidth at {format_bytes(fit.half_power)}; "
        f"plateau {format_rate(fit.plateau)} busbw, "
        f"{_share(fit, result['nominal'])}",
        f"rests on {len(sweep.size)} sizes from {format_size(fit.range[0])} to {format_size(fit.range[1])}, "
        f"{len(fit.regimes)} pieces; stands out first: {stands_out}",
    ]


def _share(fit, nominal) -> str:
    if not nominal > 0:
        return "choose a nominal rate for its share"
    return f"{format_share(fit.share_of(nominal))} of {format_rate(nominal)}"


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Measured time and bus bandwidth of {result['log']} against message size on log axes, with the "
        f"piecewise fit, the one-line model of a {result['algorithm']}, shaded latency, climb and plateau "
        "regions, and the nominal rate."
    )


sweep_fit = Lab("sweep_fit", compute, build, update, readout, alt)
