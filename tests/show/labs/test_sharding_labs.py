"""What the two labs of sharding draw, held against sums written out here."""

import re

import numpy as np
import pytest
from pytest import approx

from labkit.course.chapter4_sharding import shards_inside
from labkit.presets import cluster, model
from labkit.show.labs import sharding_stages, stage_three

GB = 1e9


def widths(patch):
    """Width of each rectangle of a path."""
    corners = patch.get_path().vertices.reshape(-1, 4, 2)
    return corners[:, 2, 0] - corners[:, 1, 0]


# ---- the stages


@pytest.mark.parametrize("n", [8, 64])
def test_bars_are_the_guides_table(drawn, n):
    artists, _ = drawn("sharding_stages", n=n)
    weights, gradients, states = (widths(artists["bars"][part]) / GB for part in artists["bars"])
    assert weights == approx([26, 26, 26, 26 / n])
    assert gradients == approx([26, 26, 26 / n, 26 / n])
    assert states == approx([156, 156 / n, 156 / n, 156 / n])
    if n == 8:
        assert artists["sums"].texts == ["208 GB", "71.5 GB", "48.75 GB", "26 GB"]
    assert artists["card"].get_xdata()[0] == cluster("a100").gpu.usable


@pytest.mark.parametrize("m", [1, 16])
def test_dots_are_bytes_sent_and_their_words_the_ratio(drawn, m):
    artists, _ = drawn("sharding_stages", n=8, micro_batches=m)
    sent, across = artists["dots"]
    assert sent.get_xdata() == approx(26 * GB * 7 / 8 * np.array([2, 2, m + 1, 3 * m]))
    assert not np.isfinite(across.get_xdata()).any()  # eight ranks sit in one host
    assert not artists["crosses"].get_visible()
    assert drawn("sharding_stages", n=16, micro_batches=m)[0]["crosses"].get_visible()
    ratios = [float(text.split()[0]) for text in artists["says"].texts]
    assert ratios == ([1, 1, 1, 1.5] if m == 1 else [1, 1, 8.5, 24])


def test_a_recipe_with_fp32_gradients_sends_and_holds_more(drawn):
    artists, _ = drawn("sharding_stages", n=8, recipe="2 + 4 + 12")
    assert artists["sums"].texts[:2] == ["234 GB", "97.5 GB"]
    assert artists["dots"][0].get_xdata()[:2] / GB == approx([91, 52 * 7 / 8 + 26 * 7 / 8])


def test_hybrid_divides_by_less_and_keeps_bytes_off_the_network(drawn):
    flat, _ = drawn("sharding_stages", n=64, micro_batches=16)
    mixed, result = drawn("sharding_stages", n=64, micro_batches=16, hybrid=True)
    assert (
        result["shards"] == 8
        and not result["alike"]
        and mixed["sums"].texts[1:] == ["71.5 GB", "48.75 GB", "26 GB"]
    )
    off, near = (artists["dots"][1].get_xdata() for artists in (flat, mixed))
    # Flat: one hop in eight of 3 x 16 x 26 GB x 63/64. Hybrid: an all_reduce of an eighth over 8 replicas.
    assert off[3] == approx(3 * 16 * 26 * GB * 63 / 64 / 8)
    assert near[1:] == approx([2 * 26 * GB / 8 * 7 / 8] * 3)
    assert near[0] == off[0]


def test_the_readout_says_which_stage_fits():
    assert "stage 1 fits" in sharding_stages.readout(sharding_stages.compute(n=8))[1]
    assert "none fits" in sharding_stages.readout(sharding_stages.compute(cluster="v100", n=2))[1]


RACK = dict(cluster="gb200-nvl72", hybrid=True)


@pytest.mark.parametrize(("n", "shards"), [(2, 2), (64, 64), (128, 64), (512, 64)])
def test_a_set_of_shards_is_the_same_in_all_three_labs_and_sits_in_a_rack(drawn, n, shards):
    assert shards_inside(n, 72) == shards
    stages, one = drawn("sharding_stages", **RACK, n=n)[1], drawn("stage_three", **RACK, n=n)[1]
    flat = drawn("sharding_latency", cluster="gb200-nvl72", n=n)[1]
    assert stages["shards"] == one["shards"] == flat["shards"] == shards
    assert one["found"].has == approx(cluster("gb200-nvl72").intra.bandwidth)
    assert stages["alike"] == one["alike"] == (n == shards)
    lines = (sharding_stages.readout(stages)[0], stage_three.readout(one)[0])
    assert all(("hybrid or not" in line) == (n == shards) for line in lines)


def test_all_that_is_sent_stands_on_its_axis(drawn):
    for setting in ({**RACK, "n": 128}, {"n": 512, "micro_batches": 64, "recipe": "2 + 4 + 12"}):
        artists, _ = drawn("sharding_stages", **setting)
        for dots in artists["dots"]:
            low, high = dots.axes.get_xlim()
            assert np.all((dots.get_xdata() > low) & (dots.get_xdata() < high))


# ---- stage 3


def times(name="a100", n=64, batch=1):
    """Seconds of forward and gather of a layer of gpt3-13b by hand."""
    m, layer = cluster(name), 2 * (12 * 5120**2 + 13 * 5120)
    forward = batch * 2048 * (24 * 5120**2 + 4 * 2048 * 5120) / (m.gpu.peak["bf16"] * m.gpu.reached)
    return forward, (n - 1) * (m.inter.alpha + layer / n / (m.nics_per_node * m.inter.bandwidth))


def test_the_rows_show_one_micro_batch(drawn):
    artists, result = drawn("stage_three")
    forward, gather = times()
    span = 120 * forward + 2 * gather  # 40 forwards, 40 backwards of twice that, both ends
    assert result["timeline"].span == approx(span)
    seam = 1e-12 + 0.0012 * 40
    for kind, seconds in (("forward", 40 * forward), ("backward", 80 * forward), ("gather", 80 * gather)):
        assert 0 <= seconds / span - widths(artists["shapes"][kind]).sum() <= 2 * seam
    assert widths(artists["shapes"]["exposed"]) == approx([gather / span] * 2)
    # Coverage beside exposed time and its share, in the picture and in words.
    of_it = 200 * gather / span
    says = [f"{span * 1e3:.0f} ms", "98.3 % hidden", f"{2e3 * gather:.2f} ms exposed", f"{of_it:.2f} % of it"]
    assert artists["says"].get_text().split("\n") == says
    assert f"exposed {2e3 * gather:.2f} ms, {of_it:.2f} % of it" in stage_three.readout(result)[2]


@pytest.mark.parametrize(("depth", "hybrid"), [(0, False), (1, False), (4, True)])
def test_the_peak_is_shards_gathered_layers_and_two_gradients(depth, hybrid):
    layer, shards = 2 * (12 * 5120**2 + 13 * 5120), 8 if hybrid else 64
    parts = (16 * model("gpt3-13b").parameters / shards, (depth + 1) * layer, 2 * layer)
    line = stage_three.readout(stage_three.compute(depth=depth, hybrid=hybrid))[3]
    sizes = [
        float(size) * {"GB": GB, "MB": 1e6}[unit] for size, unit in re.findall(r"([\d.]+) ([GM]B)", line)
    ]
    assert sizes == approx([*parts, sum(parts)], rel=5e-3) and "peak without activations" in line


def test_without_prefetch_every_gather_is_marked(drawn):
    artists, _ = drawn("stage_three", depth=0)
    assert len(widths(artists["shapes"]["exposed"])) == 81  # 80 gathers and the last scatter


@pytest.mark.parametrize(("name", "batch"), [("a100", 1), ("cloud-25gbe", 4)])
def test_the_dot_stands_on_its_curve_and_the_mark_at_the_break_even(drawn, name, batch):
    artists, _ = drawn("stage_three", cluster=name, micro_batch=batch)
    forward, gather = times(name, batch=batch)
    (dot, at_tokens), (mark, enough) = artists["dots"], artists["needs"]
    (x,), (y,) = dot.get_data()
    m = cluster(name)
    assert x == approx(m.nics_per_node * m.inter.bandwidth)
    curve = artists["lines"][0][1]
    assert y == approx(np.interp(np.log(x), np.log(curve.get_xdata()), curve.get_ydata()), abs=0.03)
    layer, alpha = 2 * (12 * 5120**2 + 13 * 5120), m.inter.alpha
    assert mark.get_xdata()[0] == approx(layer * 63 / 64 / (forward - 63 * alpha))
    assert enough.get_xdata()[0] == approx(batch * 2048 * gather / forward)
    assert at_tokens.get_xdata()[0] == batch * 2048
    below = np.interp(np.log(0.8 * mark.get_xdata()[0]), np.log(curve.get_xdata()), curve.get_ydata())
    above = np.interp(np.log(1.2 * mark.get_xdata()[0]), np.log(curve.get_xdata()), curve.get_ydata())
    assert above < 0.03 < 0.1 < below


def test_where_latency_alone_is_too_long_nothing_is_marked(drawn):
    artists, result = drawn("stage_three", cluster="v100", n=4096, sequence=512)
    assert result["found"].needs == np.inf and not artists["needs"][0].get_visible()
    assert artists["words"][0].get_text() == "enough: none"
    assert artists["needs"][1].get_visible() and "hides at no bandwidth" in stage_three.readout(result)[-1]


def test_what_is_enough_beyond_the_axis_has_an_arrow_and_dots_are_inside(drawn):
    beyond = dict(cluster="gb200-nvl72", n=1024, model="llama2-7b", hybrid=True, sequence=512)
    for setting, words in (
        (beyond, r"enough: [\d.]+ TB/s →"),
        ({"model": "gpt3-175b", "micro_batch": 64, "sequence": 32768}, r"enough: ← [\d.]+ MB/s"),
        ({"cluster": "cloud-25gbe", "network": 0.125}, r"enough: [\d.]+ GB/s"),
        ({"cluster": "h100", "n": 1024, "network": 8}, r"enough: "),
    ):
        artists, _ = drawn("stage_three", **setting)
        said = artists["words"][0].get_text()
        assert re.match(words, said)
        assert artists["needs"][0].get_visible() != bool(re.search("→|←|none", said))
        for dot in artists["dots"]:
            low, high = dot.axes.get_xlim()
            assert low <= dot.get_xdata()[0] <= high


def test_every_control_moves_something(drawn):
    _, plain = drawn("stage_three")
    for change in ({"network": 2.0}, {"hybrid": True}, {"sequence": 4096}, {"n": 256}, {"depth": 0}):
        _, other = drawn("stage_three", **change)
        assert other["timeline"].span != plain["timeline"].span, change


# ---- latency


def test_the_curves_of_latency_by_hand_and_where_they_cross(drawn):
    artists, result = drawn("sharding_latency", n=1024)
    m, layer = cluster("a100"), 2 * (12 * 5120**2 + 13 * 5120)
    rate, alpha, ranks = 8 * m.inter.bandwidth, m.inter.alpha, 2 ** np.arange(1, 15)
    compute, carried, latency, mixed = (line.get_ydata() for line in artists["lines"])
    beyond = ranks > 8
    assert latency[beyond] == approx(1920 * (ranks[beyond] - 1) * alpha)
    assert carried[beyond] == approx(1920 * (1 - 1 / ranks[beyond]) * layer / rate)
    assert compute == approx(np.full(14, 16 * 120 * times()[0]))
    assert result["passes"][1] == "at N = 648"
    inside = 1920 * 7 * (m.intra.alpha + layer / 8 / m.intra.bandwidth)
    replicas = 1024 // 8
    shard = 2 * (replicas - 1) * (alpha + 40 * layer / 8 / replicas / m.inter.bandwidth)
    assert artists["dots"][3].get_ydata()[0] == approx(inside + shard)
    (passes, _) = artists["passes"].get_xdata()
    assert passes == approx(layer / (alpha * rate)) and f"N = {passes:.0f}" in artists["words"].get_text()
    assert np.all((latency > carried) == (ranks > passes))
    assert mixed[-1] < 2 * mixed[2] and result["n"] == 1024


def test_a_longer_latency_passes_earlier(drawn):
    _, usual = drawn("sharding_latency")
    artists, slow = drawn("sharding_latency", alpha_us=50.6)
    assert slow["passes"][0] == approx(usual["passes"][0] / 10) and artists["passes"].get_visible()


@pytest.mark.parametrize("alpha", [0, 2, 50])
@pytest.mark.parametrize("name", ["a100", "h100", "v100", "l40s-pcie", "gb200-nvl72", "cloud-25gbe"])
def test_the_line_stands_where_the_drawn_curves_cross(drawn, name, alpha):
    for model_id, m in (("llama2-7b", 1), ("gpt3-175b", 64)):
        how = dict(cluster=name, alpha_us=alpha, model=model_id, micro_batches=m)
        artists, result = drawn("sharding_latency", **how)
        low, high = artists["lines"][0].axes.get_ylim()
        for line in artists["lines"]:
            assert np.all((line.get_ydata() > low) & (line.get_ydata() < high))
        _, carried, latency, _ = (line.get_ydata() for line in artists["lines"])
        passes, said = result["passes"]
        ranks = 2 ** np.arange(1, 15)
        assert np.all((latency > carried) == (ranks > passes))
        assert artists["passes"].get_visible() == np.isfinite(passes) == ("nowhere" not in said)
        if np.isfinite(passes):
            heights = [np.interp(np.log(passes), np.log(ranks), np.log(y)) for y in (carried, latency)]
            assert heights[0] == approx(heights[1])


def test_where_the_ring_leaves_its_fast_links_no_single_number_is_said(drawn):
    # 50 µs instead of 1.83 beyond 72 ranks: latency is below the bytes at 64, and far above them at 128.
    _, result = drawn("sharding_latency", cluster="gb200-nvl72", alpha_us=50)
    assert 64 < result["passes"][0] < 128 and result["passes"][1] == "between N = 64 and 128"
