"""What the labs of curves and bars draw, held against sums written out here: no formula of labkit's."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pytest import approx

from labkit.presets import cluster
from labkit.show import labs
from labkit.units import format_rate, format_time

SWEEPS = Path(__file__).resolve().parents[3] / "data" / "sweeps"


def ring(n, size, alpha, rate):
    """AllReduce: 2(N-1) messages of S/N one after the other."""
    return 2 * (n - 1) * (alpha + size / n / rate)


def point(line):
    """Where the one marker of a line stands."""
    (x,), (y,) = line.get_data()
    return x, y


@pytest.mark.parametrize("name", labs.__all__)
def test_no_line_and_no_marker_has_the_colour_of_the_page(name, line_fit):
    lab = getattr(labs, name)
    artists = lab.build(Figure(lab.size))
    result = lab.compute(**({"fit": line_fit} if name == "on_your_link" else {}))
    lab.update(artists, result)  # a lab says what moves once its limits stand
    lines = [artist for artist in lab.update(artists, result) if isinstance(artist, Line2D)]
    colours = [line.get_color() for line in lines if line.get_linestyle() != "None"]
    colours += [line.get_markeredgecolor() for line in lines if line.get_marker() not in ("None", None)]
    assert [colour for colour in colours if np.dot(to_rgb(colour), (0.3, 0.59, 0.11)) > 0.75] == []


@pytest.mark.parametrize(("n", "size", "alpha_us", "rate"), [(8, 2**20, 5, 50), (64, 2**28, 20, 25)])
def test_alpha_beta(drawn, n, size, alpha_us, rate):
    setting = dict(n=n, size=size, alpha_us=alpha_us, bandwidth_GBps=rate, segments="1")
    artists, result = drawn("alpha_beta", **setting)
    alpha, beta, rounds = alpha_us * 1e-6, 1e-9 / rate, np.log2(n)
    by_hand = {
        "ring": lambda s: 2 * (n - 1) * (alpha + s / n * beta),
        "tree": lambda s: 2 * rounds * (alpha + s * beta),
        "recursive_doubling": lambda s: rounds * (alpha + s * beta),
        "halving_doubling": lambda s: 2 * rounds * alpha + 2 * (n - 1) / n * s * beta,
    }
    for name, seconds in by_hand.items():
        sizes, times = artists["lines"][name].get_data()
        assert (sizes[0], sizes[-1]) == (2**10, 2**34) and times == approx(seconds(sizes))
        assert result["here"][name] == approx(seconds(size))
    best = min(by_hand, key=lambda name: by_hand[name](size))
    widths = {name: line.get_linewidth() for name, line in artists["lines"].items() if line.get_visible()}
    assert set(widths) == {*by_hand, "double_tree"} and best == max(widths, key=widths.get)
    assert point(artists["dot"]) == approx((size, by_hand[best](size)))
    assert list(artists["here"].get_xdata()) == [size, size]
    assert artists["says"].get_text().strip() == format_time(by_hand[best](size))
    # Equal times of two straight lines, solved for S; halving-doubling never costs more than the ring.
    crossings, heights = artists["switch"].get_data()
    for a_bytes, a_rounds in ((2 * rounds, 2 * rounds), (rounds, rounds)):
        wanted = alpha / beta * (2 * (n - 1) - a_rounds) / (a_bytes - 2 * (n - 1) / n)
        assert np.min(np.abs(crossings / wanted - 1)) < 1e-6
    assert heights == approx(by_hand["ring"](crossings), rel=0.01)


def test_alpha_beta_of_an_operation_without_a_ring(drawn):
    artists, _ = drawn("alpha_beta", op="all_to_all", n=16, size=2**24)
    (name,) = [name for name, line in artists["lines"].items() if line.get_visible()]
    sizes, times = artists["lines"][name].get_data()
    assert name == "pairwise" and times == approx(15 * (5e-6 + sizes / 16 / 50e9))
    assert len(artists["switch"].get_xdata()) == 0


@pytest.mark.parametrize("n", [8, 64])
def test_on_your_link(drawn, line_fit, n):
    artists, _ = drawn("on_your_link", fit=line_fit, n=n, segments="1")
    sizes, times = artists["log"].get_data()
    assert artists["log"].get_visible() and (sizes[0], sizes[-1]) == (2**12, 2**30)
    assert times == approx(28e-6 + sizes / 80e9)
    sizes, times = artists["lines"]["ring"].get_data()
    assert times == approx(ring(n, sizes, 2e-6, 140e9))  # 28 us over 14 hops; 80 GB/s x 14/8
    assert not drawn("alpha_beta")[0]["log"].get_visible()


@pytest.mark.parametrize(
    ("n", "rate", "billions", "each", "bucket"), [(8, 50, 7, 2, 2**25), (256, 200, 30, 4, 2**22)]
)
def test_bus_bandwidth(drawn, n, rate, billions, each, bucket):
    setting = dict(n=n, link_GBps=rate, billions=billions, gradient_bytes=each, bucket=bucket)
    artists, result = drawn("bus_bandwidth", **setting)
    size, beta = billions * 1e9 * each, rate * 1e9
    count = int(-(-size // bucket))
    seconds = [size / beta, ring(n, size, 5e-6, beta), count * ring(n, size / count, 5e-6, beta)]
    assert list(result["seconds"].values()) == approx(seconds)
    assert [bar.get_x() + bar.get_width() for bar in artists["bars"]] == approx(seconds)
    assert [text.get_text().strip() for text in artists["says"]] == [format_time(s) for s in seconds]
    assert [text.get_position()[0] for text in artists["says"]] == approx(seconds)
    ranks = 2.0 ** np.arange(1, 11)
    whole, buckets = ring(ranks, size, 5e-6, beta), count * ring(ranks, size / count, 5e-6, beta)
    factor = 2 * (ranks - 1) / ranks
    shares = [size / whole / beta, factor * size / whole / beta, factor * size / buckets / beta]
    for line, share in zip(artists["lines"], shares, strict=True):
        assert line.get_xdata() == approx(ranks) and line.get_ydata() == approx(share)
    assert list(artists["here"].get_xdata()) == [n, n]


@pytest.mark.parametrize("n", [8, 1000])
def test_volume_by_ranks(drawn, n):
    artists, result = drawn("volume_by_ranks", n=n, size=2**20)
    by_hand = {
        # The root of a binomial tree serves each of its ceil(log2 N) children the whole message.
        "tree": lambda n: np.ceil(np.log2(n)),
        "ring": lambda n: 2 * (n - 1) / n,
        "chain": lambda n: 1.0 + 0 * n,
        "AllGather": lambda n: (n - 1) / n,
    }
    for line in artists["lines"]:
        (units,) = [form for word, form in by_hand.items() if word in line.get_label()]
        ranks = line.get_xdata()
        assert (ranks[0], ranks[-1]) == (2, 16384) and line.get_ydata() == approx(units(ranks))
    assert list(artists["here"].get_xdata()) == [n, n]
    across, heights = artists["dots"].get_data()
    assert list(across) == [n] * 4 and sorted(heights) == approx(sorted(f(n) for f in by_hand.values()))
    assert list(result["here"].values()) == approx(heights)


@pytest.mark.parametrize(
    ("name", "ports", "faster", "samples", "degree"), [("a100", 1, 1, 4, 8), ("v100", 8, 2, 2, 4)]
)
def test_topology_cliff(drawn, name, ports, faster, samples, degree):
    setting = dict(cluster=name, ports=ports, port_rate=faster, micro_batch=samples)
    artists, result = drawn("topology_cliff", **setting)
    host = cluster(name)
    rates = [
        host.gpu.memory_bandwidth,
        host.intra.bandwidth,
        host.nics_per_node * host.inter.bandwidth,
        host.inter.bandwidth,
    ]
    assert [bar.get_x() + bar.get_width() for bar in artists["bars"]] == approx(rates)
    assert [text.get_text().strip() for text in artists["says"]] == [format_rate(r) for r in rates]
    payload = samples * 2048 * 5120 * 2  # bytes of activations in bf16
    inside = 4 * ring(degree, payload, host.intra.alpha, host.intra.bandwidth)
    # Half of the group is in each host and has that share of its ports; the slowest hop sets the pace.
    each = faster * host.inter.bandwidth * (degree / 2) / host.gpus_per_node
    alpha = max(host.intra.alpha, host.inter.alpha)
    across = [4 * ring(degree, payload, alpha, min(p * each, host.intra.bandwidth)) for p in range(1, 9)]
    two, one = artists["lines"]
    assert list(two.get_xdata()) == list(one.get_xdata()) == list(range(1, 9))
    assert two.get_ydata() == approx(across) and one.get_ydata() == approx([inside] * 8)
    assert point(artists["dot"]) == approx((ports, across[ports - 1]))
    assert f"{across[ports - 1] / inside:.1f} x" in artists["ratio"].get_text()
    assert (result["inside"], result["across"][-1]) == approx((inside, across[ports - 1]))


STORIES = [
    ("a100-galvatron", "strong", 32, 2**15, 20, 0, 0.0, 1.0),
    ("h100", "weak", 128, 2**16, 40, 25e6, 0.5, 0.5),
    ("h100", "strong", 8, 2**20, 1, 25e6, 1.0, 1.0),
]


@pytest.mark.parametrize(("name", "mode", "n", "batch", "gradient", "bucket", "overlap", "taper"), STORIES)
def test_scaling_story(drawn, name, mode, n, batch, gradient, bucket, overlap, taper):
    setting = dict(cluster=name, mode=mode, n=n, batch=batch, gradient=gradient, bucket=bucket)
    artists, result = drawn("scaling_story", **setting, overlap=overlap, taper=taper)
    host, strong = cluster(name), mode == "strong"

    def parts(n):
        """Seconds of compute, latency, bandwidth and contention, and of the step, of one N."""
        compute = 6 * 10e9 * batch / 8 / (host.gpu.peak["bf16"] * host.gpu.reached)
        compute *= 8 / n if strong else 1
        pieces = gradient * 1e9 / bucket if bucket else 1
        # Above one host its eight ports, each with a ring of its own, are the slowest hop of both presets.
        link = host.intra if n <= 8 else host.inter
        rate = link.bandwidth * (1 if n <= 8 else 8)
        left = rate * (taper if n > 32 else 1)
        free, all_of_it = (pieces * ring(n, gradient * 1e9 / pieces, link.alpha, r) for r in (rate, left))
        latency = pieces * ring(n, 0, link.alpha, rate)
        step = compute + max(0, all_of_it - overlap * 2 / 3 * compute)
        return np.array([compute, latency, free - latency, all_of_it - free, step])

    def throughput(n):
        return parts(8)[-1] / parts(n)[-1] * (1 if strong else n / 8)

    ranks = [8, 16, 32, 64, 128, 256, 512, 1024]
    rows = np.array([parts(n) for n in ranks])
    compute, terms, step = rows[:, 0], rows[:, 1:4], rows[:, 4]
    busy = terms.sum(axis=1)
    faster = [throughput(n) for n in ranks]
    assert artists["speed"].get_xdata() == approx(ranks) and artists["speed"].get_ydata() == approx(faster)
    assert point(artists["dot"]) == approx((n, throughput(n)))
    assert result["here"].step == approx([parts(8)[-1], parts(n)[-1]])
    assert [list(mark.get_xdata()) for mark in artists["marks"]] == [[n, n]] * 3
    # Bars: what is hidden is taken from the three terms alike; the longest step is 100 %.
    seen = np.column_stack([compute, terms * ((step - compute) / busy)[:, None]]) / step.max()
    bars = [artists["bars"][part] for part in ("compute", "latency", "bandwidth", "contention")]
    heights, feet = (
        np.transpose([[get(bar) for bar in part] for part in bars])
        for get in (lambda bar: bar.get_height(), lambda bar: bar.get_y())
    )
    assert heights == approx(seen, abs=1e-12)
    assert feet == approx(np.cumsum(seen, axis=1) - seen, abs=1e-12)
    shares = [compute / step, np.minimum(busy / step, 1), np.minimum(np.divide(faster, ranks) * 8, 1)]
    for line, share in zip(artists["lines"], shares, strict=True):
        assert line.get_xdata() == approx(ranks) and line.get_ydata() == approx(share)
    slow = [m for m in (*range(2, 9), *range(16, 1025, 8)) if parts(m)[1:4].sum() >= parts(m)[0]]
    assert artists["knee"].get_visible() == bool(slow)
    assert artists["knee_says"].get_text() == (f"knee at N = {slow[0]}" if slow else "no knee")
    if slow:
        assert list(artists["knee"].get_xdata()) == [slow[0]] * 2


@pytest.mark.parametrize(("ranks", "alpha_us", "rate", "nominal"), [(8, 28, 80, 200), (4, 60, 12, 25)])
def test_sweep_fit_of_a_straight_line(drawn, tmp_path, ranks, alpha_us, rate, nominal):
    size = 2 ** np.arange(10, 31)
    time = alpha_us + size / rate / 1e3  # in us
    algbw = size / time / 1e3
    factor = 2 * (ranks - 1) / ranks
    members = [f"#  Rank  {r} Group  0 Pid {r} on node01 device  {r} [0000:00:00] GPU" for r in range(ranks)]
    heads = ["# size count type redop root time algbw busbw #wrong", "# (B) (elements) (us) (GB/s) (GB/s)"]
    rows = [
        f"{s} {s // 4} float sum -1 {t:.9f} {a:.9f} {factor * a:.9f} 0"
        for s, t, a in zip(size, time, algbw, strict=True)
    ]
    path = tmp_path / "line.txt"
    lines = ["# Collective test starting: all_reduce_perf", *members, *heads, *rows]
    path.write_text("\n".join(lines) + "\n")
    artists, result = drawn("sweep_fit", log=str(path), nominal_GBps=nominal)
    assert (result["fit"].alpha, result["fit"].bandwidth) == approx((alpha_us * 1e-6, rate * 1e9), rel=1e-3)
    for name in ("fitted", "model"):
        times, rates = artists["curves"][name]
        known = np.isfinite(times.get_ydata())
        sizes = times.get_xdata()[known]
        by_hand = alpha_us * 1e-6 + sizes / rate / 1e9
        assert times.get_ydata()[known] == approx(by_hand, rel=2e-3)
        assert rates.get_ydata()[known] == approx(factor * sizes / by_hand, rel=2e-3)
        ends = (2**10, 2**30) if name == "fitted" else (2**3, 2.0**34.5)
        assert (sizes[0], sizes[-1]) == ends
    knee = alpha_us * rate * 1e3
    assert [line.get_xdata()[0] for line in artists["knee"]] == approx([knee, knee], rel=2e-3)
    # Within a quarter of alpha up to a quarter of the knee; 4/5 of the rate from four knees on.
    ends = {"latency": (2**10, knee / 4), "climb": (knee / 4, 4 * knee), "plateau": (4 * knee, 2**30)}
    for name, wanted in ends.items():
        for patch in artists["shades"][name]:
            start = patch.get_x()
            assert patch.get_visible() and (start, start + patch.get_width()) == approx(wanted, rel=0.02)
    assert list(artists["nominal"].get_ydata()) == [nominal * 1e9] * 2


@pytest.mark.parametrize("log", ["a100-8gpu-nvswitch", "h100-2x8-infiniband"])
def test_sweep_fit_shows_the_rows_of_the_log(drawn, log):
    rows = [line.split() for line in (SWEEPS / f"{log}.txt").read_text().splitlines()]
    rows = np.array([[row[0], *row[5:8]] for row in rows if row and row[0].isdigit()], float)
    artists, result = drawn("sweep_fit", log=log)
    (sizes, times), (again, rates) = (dots.get_data() for dots in artists["dots"])
    assert list(sizes) == list(again) == list(rows[:, 0])
    assert times == approx(rows[:, 1] * 1e-6)
    assert rates == approx(rows[:, 3] * 1e9, rel=5e-3, abs=6e6)  # the log prints two decimals
    fitted = artists["curves"]["fitted"][0]
    known = np.isfinite(fitted.get_ydata())
    near = np.interp(sizes, fitted.get_xdata()[known], fitted.get_ydata()[known])
    assert np.median(np.abs(near / times - 1)) < 0.05
    knee = result["fit"].alpha * result["fit"].bandwidth  # not half of the bandwidth, once a log has pieces
    assert [line.get_xdata()[0] for line in artists["knee"]] == approx([knee, knee])
