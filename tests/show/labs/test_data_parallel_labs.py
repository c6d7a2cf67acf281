"""What the two labs of data parallelism draw, held against sums written out here."""

from itertools import pairwise

import numpy as np
import pytest
from pytest import approx

from labkit.presets import cluster
from labkit.show.labs import data_parallel_knee, gradient_buckets
from labkit.strategies.timeline import TRANSFER
from labkit.units import MiB

RANKS = 2 ** np.arange(3, 11)


def point(line):
    """Where the one marker of a line stands."""
    (x,), (y,) = line.get_data()
    return x, y


def job(n, tokens, mode="strong", overlap=0.0, name="cloud-25gbe"):
    """(compute, all_reduce, exposed) of 1e9 bf16 parameters on n ranks, beyond one node, one message."""
    m = cluster(name)
    compute = 6e9 * tokens / 8 / (312e12 * m.gpu.reached) * (8 / n if mode == "strong" else 1)
    wire = 2 * (n - 1) * (m.inter.alpha + 2e9 / n / (m.nics_per_node * m.inter.bandwidth))
    return compute, wire, max(0.0, wire - overlap * 2 / 3 * compute)


@pytest.mark.parametrize("mode", ["strong", "weak"])
@pytest.mark.parametrize("overlap", [0.0, 0.75])
def test_curves_over_the_ranks(drawn, mode, overlap):
    setting = dict(n=64, mode=mode, tokens=2**20, overlap=overlap)
    artists, _ = drawn("data_parallel_knee", **setting)
    by_hand = [job(n, 2**20, mode, overlap) for n in RANKS[1:]]
    compute, hides, wire, _ = (line.get_ydata()[1:] for line in artists["lines"])
    assert compute == approx([row[0] for row in by_hand])
    assert wire == approx([row[1] for row in by_hand])
    if overlap:
        assert hides == approx([overlap * 2 / 3 * row[0] for row in by_hand])
    throughput = artists["speed"].get_ydata()
    step = [row[0] + row[2] for row in by_hand]
    gained = [(1 if mode == "strong" else 2) * a / b for a, b in pairwise(step)]
    assert throughput[2:] / throughput[1:-1] == approx(gained)
    assert point(artists["speed_dot"])[1] == approx(throughput[3])


def test_the_share_falls_with_the_batch_and_the_dot_stands_on_the_curve(drawn):
    artists, _ = drawn("data_parallel_knee", n=128, tokens=2**18, overlap=0.5)
    unhidden, overlapped = artists["shares"]
    for line, overlap in ((unhidden, 0.0), (overlapped, 0.5)):
        x, y = line.get_data()
        rows = [job(128, 1024 * tokens, overlap=overlap) for tokens in x]
        assert y == approx([row[2] / (row[0] + row[2]) for row in rows])
        assert np.all(np.diff(y) <= 0)
    x, y = point(artists["dot"])
    assert x == 256 and y == approx(np.interp(8, np.log2(overlapped.get_xdata()), overlapped.get_ydata()))


def test_the_knee_is_marked_where_the_curves_cross_and_nowhere_else(drawn):
    artists, result = drawn("data_parallel_knee", tokens=2**22)
    (n, _) = artists["knees"][0].get_xdata()
    assert job(n, 2**22)[1] >= job(n, 2**22)[0] and job(n - 8, 2**22)[1] < job(n - 8, 2**22)[0]
    assert f"knee at N = {n:.0f}" in artists["says"].get_text() and result["knee"] == n
    artists, _ = drawn("data_parallel_knee", cluster="a100", mode="weak")
    assert not any(mark.get_visible() for mark in artists["knees"])
    assert artists["says"].get_text() == "per step: no knee"


# ---- gradient buckets


def total(path):
    """Width of all rectangles of a path."""
    corners = path.vertices.reshape(-1, 4, 2)
    return float((corners[:, 2, 0] - corners[:, 1, 0]).sum())


def test_the_rows_show_the_timeline_and_the_exposed_part(drawn):
    artists, result = drawn("gradient_buckets", n=64, sequences=1)
    t = result["timeline"]
    seam = 0.0012 * t.kind.size
    exposed = t.exposed[0] / t.span
    assert total(artists["exposed"].get_path()) == approx(exposed, abs=seam)
    assert 0 <= t.communication[0] / t.span - total(artists["shapes"][TRANSFER].get_path()) <= seam
    assert artists["exposed"].get_path().vertices[:, 0].min() == approx(1 - exposed)


def test_each_dot_is_the_lowest_point_of_its_curve_and_the_chosen_n_is_drawn_once(drawn):
    artists, result = drawn("gradient_buckets", n=64)
    shown = [line for line in artists["lines"] if line.get_visible()]
    assert [line.get_label() for line in shown] == ["N = 8", "N = 512", "N = 64"]
    for line, dot in zip(artists["lines"], artists["dots"], strict=True):
        assert point(dot)[1] == line.get_ydata().min()
    assert artists["here"].get_xdata()[0] == 25 * MiB
    at = np.interp(np.log(25 * MiB), np.log(line.get_xdata()), artists["lines"][-1].get_ydata())
    assert result["timeline"].span - result["compute"] == approx(at, rel=0.05)


def test_the_first_bucket_keeps_its_mebibyte_or_not():
    small, large = (gradient_buckets.compute(small_first=first)["timeline"] for first in (True, False))
    starts = [t.start[t.kind == TRANSFER].min() for t in (small, large)]
    assert starts[0] <= starts[1]


def test_a_slow_down_lengthens_the_step():
    steps = [gradient_buckets.compute(slow_down=s)["timeline"].span for s in (1.0, 1.3)]
    assert steps[0] < steps[1]


@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_what_shows_begins_where_the_budget_ends(overlap):
    result = data_parallel_knee.compute(cluster="a100", tokens=2**17, overlap=overlap)
    if overlap:
        n = result["shows"]
        assert job(n, 2**17, "strong", 1.0, "a100")[2] > 0 >= job(n - 8, 2**17, "strong", 1.0, "a100")[2]
        assert n <= result["knee"]
    else:
        assert np.isnan(result["shows"])
