"""The labs of tensor parallel: the numbers they draw, worked out apart, and that nothing leaves the axes."""

from itertools import product

import numpy as np
import pytest

from labkit.presets import cluster, cluster_ids, model
from labkit.show import choice, linear, live, log2, preset, still
from labkit.show.labs.tensor_degree import MODELS, tensor_degree
from labkit.show.labs.tensor_micro_batch import STEP, TOKENS, tensor_micro_batch

DEGREES = [1, 2, 4, 8, 16, 32]


def test_the_layer_drawn_is_the_layer_by_hand(drawn):
    artists, _ = drawn("tensor_degree", cluster="h100", ports=2, model="guide-13b", micro_batch=2)
    machine, of = cluster("h100"), model("guide-13b")
    compute, sends = (line.get_ydata() for line in artists["lines"])
    tokens, t = 2 * 2048, np.array(DEGREES)
    peak = 989.4e12 * machine.gpu.reached
    assert compute == pytest.approx(6 * of.parameters / 32 * tokens / peak / t)
    t, size = t[1:], tokens * 5120 * 2
    rate = np.where(t <= 8, machine.intra.bandwidth, 2 * machine.inter.bandwidth)
    alpha = np.where(t <= 8, machine.intra.alpha, machine.inter.alpha)
    assert sends == pytest.approx(4 * (2 * (t - 1) * alpha + 2 * (t - 1) / t * size / rate))


def test_the_cost_of_a_sample_is_marked_and_the_illegal_degrees_crossed(drawn):
    artists, _ = drawn("tensor_degree", model="guide-13b")
    compute, sends = (line.get_ydata() for line in artists["lines"])
    cost = np.array(DEGREES) * (compute + np.append(0, sends)) / compute[0]
    assert artists["cost"].get_ydata() == pytest.approx(cost)
    assert artists["illegal"].get_xdata().tolist() == [16, 32]
    assert artists["legal"].get_xdata().tolist() == [1, 2, 4, 8]
    assert artists["factor"].get_text() == f"t = 8 to 16: {cost[4] / cost[3]:.1f} x"
    assert artists["shades"][0].get_x() == pytest.approx(8 * 2**0.5)


def test_a_rack_has_no_boundary(drawn):
    artists, _ = drawn("tensor_degree", cluster="gb200-nvl72", model="llama2-70b")
    assert artists["factor"].get_text() == "no boundary up to t = 32"
    assert artists["shades"][0].get_width() == 0
    assert len(artists["illegal"].get_xdata()) == 0


def test_experts_get_a_sentence():
    assert "experts" in still(tensor_degree, model="mixtral-8x7b").facts[0]


@pytest.mark.parametrize("name", cluster_ids())
def test_every_curve_stays_inside_the_axes(drawn, name):
    for of, ports, micro_batch in product((MODELS[0], MODELS[-1]), (1, 8), (1, 16)):
        artists, _ = drawn("tensor_degree", cluster=name, model=of, ports=ports, micro_batch=micro_batch)
        for line in (*artists["lines"], artists["cost"]):
            low, high = line.axes.get_ylim()
            assert low < line.get_ydata().min() and line.get_ydata().max() < high


def test_a_step_by_hand(drawn):
    artists, result = drawn("tensor_micro_batch", cluster="a100", degree=4, sequence=1024, micro_batch=8)
    machine, of = cluster("a100"), model("guide-13b")
    compute, sent, latency = (line.get_ydata() for line in artists["lines"])
    calls = 4 * 32 * STEP / TOKENS
    assert compute == pytest.approx(6 * of.parameters * STEP / (312e12 * machine.gpu.reached) / 4)
    assert sent == pytest.approx(4 * 32 * STEP * 5120 * 2 * 1.5 / machine.intra.bandwidth)
    assert latency == pytest.approx(calls * 6 * machine.intra.alpha)
    all_reduces, waits = (line.get_ydata() for line in artists["shares"])
    assert all_reduces == pytest.approx((sent + latency) / (compute + sent + latency))
    assert waits == pytest.approx(latency / (compute + sent + latency))
    assert result["count"] == 4 * 32 * STEP / 8192


def test_latency_meets_bandwidth_at_t_alpha_b(drawn):
    artists, result = drawn("tensor_micro_batch", cluster="h100", degree=8)
    link = cluster("h100").intra
    assert result["knee_payload"] == pytest.approx(8 * link.alpha * link.bandwidth)
    assert artists["knees"][0].get_xdata()[0] == pytest.approx(result["knee_payload"] / (2 * 5120))


def test_dots_stand_on_the_curve_at_whole_sequences(drawn):
    artists, _ = drawn("tensor_micro_batch", sequence=8192, micro_batch=64)
    x, y = artists["dots"][0].get_data()
    assert x.tolist() == [8192 * b for b in (1, 2, 4, 8, 16, 32, 64)]
    assert y == pytest.approx(np.interp(np.log(x), np.log(TOKENS), artists["lines"][2].get_ydata()))


CONTROLS = {
    "tensor_degree": {
        "cluster": preset("cluster", cluster_ids(), "a100"),
        "ports": linear("ports per node", 1, 8, 1),
        "model": choice("model", MODELS, "guide-13b", group="sizes"),
        "micro_batch": linear("micro-batch", 1, 16, 4, group="sizes"),
    },
    "tensor_micro_batch": {
        "cluster": preset("cluster", cluster_ids(), "a100"),
        "degree": log2("degree t", 2, 32, 8),
        "model": choice("model", MODELS, "guide-13b", group="sizes"),
        "sequence": log2("sequence", 512, 8192, 2048, group="sizes"),
        "micro_batch": log2("micro-batch", 1, 64, 4, group="sizes"),
    },
}


@pytest.mark.parametrize(
    ("lab", "there"),
    [
        (tensor_degree, {"cluster": "v100", "ports": 5, "model": "gpt3-175b", "micro_batch": 9}),
        (tensor_micro_batch, {"cluster": "h100", "degree": 2, "sequence": 512, "micro_batch": 1}),
    ],
)
def test_dragged_to_a_setting_it_shows_what_it_shows_there_from_the_start(lab, there):
    view = live(lab, **CONTROLS[lab.name])
    view.set(cluster="gb200-nvl72", micro_batch=16)
    view.set(**there)
    straight = still(lab, **there)
    assert view.facts == straight.facts
    assert view.picture.stored() == straight.picture.stored()
