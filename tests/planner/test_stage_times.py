"""Seconds of stages and boundaries: sums by hand, where the head sits, which link a boundary takes."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.stage_times import pipeline_times, stage_forward, stage_transfer
from labkit.spec import Cluster, Gpu, Link, Plan, Transformer

HIDDEN, SEQUENCE, VOCABULARY, BATCH = 1024, 512, 32000, 3
MODEL = Transformer("gpt", 16, HIDDEN, 16, VOCABULARY, SEQUENCE)
RATE = 1e14
NODES = Cluster(
    "two", Gpu("card", 80e9, {"bf16": 2e14}, RATE / 2e14), 2, 4, Link(1e-6, 2e11), Link(5e-6, 2e10), 4
)

# By hand, per token and layer: 24 h^2 of products with weights, 4 s h of scores and context.
WEIGHTED = BATCH * SEQUENCE * 24 * HIDDEN**2 / RATE
ATTENTION = BATCH * SEQUENCE * 4 * SEQUENCE * HIDDEN / RATE
HEAD = BATCH * SEQUENCE * 2 * HIDDEN * VOCABULARY / RATE
TENSOR = 2 * BATCH * SEQUENCE * HIDDEN
GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)
HALF = Cluster(
    "half of peak", Gpu("c", 80e9, {"bf16": 312e12}, 0.5), 8, 8, Link(0.0, 235e9), Link(0.0, 50e9), 8
)
INSIDE, ACROSS = 1e-6 + TENSOR / 2e11, 5e-6 + TENSOR / 2e10


def times(p=4, v=1, **settings):
    return pipeline_times(MODEL, NODES, p, v, micro_batch=BATCH, **settings)


def test_a_stage_by_hand():
    plain = times(head="none")
    assert plain.forward == pytest.approx([4 * (WEIGHTED + ATTENTION)] * 4)
    assert plain.backward == pytest.approx(2 * plain.forward)
    # Scores and context have no weights: both their gradients are input gradients.
    assert plain.weight_gradient == pytest.approx([4 * WEIGHTED] * 4)
    assert plain.backward - plain.weight_gradient == pytest.approx([4 * (WEIGHTED + 2 * ATTENTION)] * 4)


def test_where_the_head_sits():
    assert times().forward - times(head="none").forward == pytest.approx([0, 0, 0, HEAD])
    assert times(head="spread").forward - times(head="none").forward == pytest.approx([HEAD / 4] * 4)
    assert times().weight_gradient[-1] == pytest.approx(4 * WEIGHTED + HEAD)


def test_chunks_share_a_ranks_layers():
    assert times(v=2, head="none").forward == pytest.approx([2 * (WEIGHTED + ATTENTION)] * 8)
    assert times(v=2).forward.sum() == pytest.approx(times().forward.sum())


def test_layers_may_be_uneven():
    layers = np.array([5, 4, 4, 3])
    assert times(layers=layers, head="none").forward == pytest.approx(layers * (WEIGHTED + ATTENTION))


def test_a_boundary_takes_the_fast_link_inside_a_domain_and_a_port_across():
    assert times(p=4).transfer == pytest.approx([INSIDE] * 3)
    assert times(p=8).transfer == pytest.approx([INSIDE] * 3 + [ACROSS] + [INSIDE] * 3)
    # With chunks the last rank sends back to the first, which is in the other domain.
    assert times(p=8, v=2).transfer[7] == pytest.approx(ACROSS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"p": 0}, "pipeline ranks is 0"),
        ({"p": 3}, "16 layers do not divide evenly into 3 stages; give the layers of each"),
        ({"layers": [4, 4, 4, 3]}, "4 stages share 16 layers"),
        ({"layers": [8, 8]}, "give one count per stage"),
        ({"layers": [9, 9, -1, -1]}, "4 stages share 16 layers"),
        ({"head": "first"}, "where the head sits is 'first'; use last, spread or none"),
        ({"precision": "fp8"}, "no peak for 'fp8'; use one of"),
    ],
)
def test_refused(settings, words):
    with pytest.raises(InputRefused, match=words):
        times(**settings)


def test_two_layers_of_a_stage_compute_longer_than_their_transfer_takes():
    """Claim 3.4-g: 8.8 ms forward against 1.7 ms, 4 sequences, t = 8, half of 312 TFLOP/s, 50 GB/s."""
    plan = Plan(tp=8, pp=16, micro_batch=4, accumulation=32)
    assert stage_forward(GUIDE, HALF, plan) == pytest.approx(8.8e-3, abs=0.05e-3)
    assert stage_transfer(GUIDE, HALF, plan) == pytest.approx(1.68e-3, abs=0.01e-3)


def test_transfers_of_several_plans():
    """One without a pipeline has none; it takes nothing."""
    plans = Plan(pp=np.array([1, 4]), tp=8, micro_batch=4, accumulation=8)
    alone = stage_transfer(GUIDE, HALF, Plan(pp=4, tp=8, micro_batch=4, accumulation=8))
    assert stage_transfer(GUIDE, HALF, plans).tolist() == [0.0, alone]
