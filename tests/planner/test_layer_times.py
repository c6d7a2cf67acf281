"""The kernels of a layer: their FLOPs add up to the model's, and the plan cuts them as it should."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner import layer_times as module
from labkit.planner.layer_times import layer_times
from labkit.spec import Gpu, Plan, Transformer

GPU = Gpu("card", 80e9, {"bf16": 3e14}, 0.8, memory_bandwidth=2e12)
GPT = Transformer("gpt", 32, 4096, 32, 50257, 2048, learned_positions=2048)
LLAMA = Transformer(
    "llama", 32, 4096, 32, 128256, 8192, kv_heads=8, ffn=14336, gated=True, bias=False, dropout=False
)
MIXTRAL = replace(LLAMA, name="mixtral", experts=8, top_k=2)


@pytest.fixture
def counted(monkeypatch):
    """Products take as many seconds as they have FLOPs; all else takes none."""
    free = replace(GPU.kernels, launch=0.5e-6)
    monkeypatch.setattr(
        module, "product_seconds", lambda m, n, k, gpu, count=1: 2.0 * m * n * k * count + free.launch
    )
    monkeypatch.setattr(module, "streaming_seconds", lambda size, gpu: free.launch + 0.0 * size)
    monkeypatch.setattr(module, "attention_seconds", lambda *a, **k: np.asarray(0.0))
    return replace(GPU, kernels=free)


@pytest.mark.parametrize("model", [GPT, LLAMA, MIXTRAL], ids=lambda model: model.name)
@pytest.mark.parametrize(
    "plan",
    [
        Plan(micro_batch=2),
        Plan(tp=4, micro_batch=2, sequence_parallel=True),
        Plan(tp=2, cp=4, micro_batch=1, sequence_parallel=True),
        Plan(tp=2, dp=4, ep=4, micro_batch=2, sequence_parallel=True),
        Plan(tp=4, dp=2, ep=2, etp=1, micro_batch=2, sequence_parallel=True),
    ],
    ids=str,
)
def test_the_products_of_a_layer_have_the_models_flops(model, plan, counted):
    found = layer_times(model, counted, plan)
    flops = model.forward_flops(plan.micro_batch)
    alike = ("query key value", "projection", "mlp", "router")
    expected = sum(flops[name] for name in alike) / model.layers / (plan.tp * plan.cp)
    # Of the attention core nothing is counted here.
    assert found.forward == pytest.approx(expected, rel=1e-9)
    assert found.backward == pytest.approx(2 * expected, rel=1e-9)
    assert found.weight_gradient == pytest.approx(expected, rel=1e-9)


def test_ranks_beyond_the_kv_heads_compute_them_again(counted):
    found = layer_times(LLAMA, counted, Plan(tp=16, replicate_kv=True))
    tokens, h = 8192, 4096
    shares = h * (h / 16 + 2 * 128) + h / 16 * h + 3 * h * 14336 / 16
    assert found.forward == pytest.approx(2 * tokens * shares, rel=1e-9)


def test_a_layer_by_hand():
    """Streaming alone: a GPU whose products are endlessly fast shows the bytes of everything else."""
    fast = Gpu("fast", 80e9, {"bf16": 1e30}, 0.8, memory_bandwidth=2e12)
    plan, model = Plan(micro_batch=4), replace(GPT, dropout=False)
    with_dropout = layer_times(replace(model, dropout=True), fast, plan).forward
    seconds = with_dropout - layer_times(model, fast, plan).forward
    tokens, rate = 4 * 2048 * 4096, 2e12 * fast.kernels.streaming
    assert seconds == pytest.approx(2 * 0.5 * 2 * tokens / rate, rel=1e-6)  # two masks of one byte


def test_what_splits_a_layer_makes_it_shorter():
    alone = layer_times(GPT, GPU, Plan(micro_batch=4))
    split = layer_times(GPT, GPU, Plan(tp=4, micro_batch=4))
    parallel = layer_times(GPT, GPU, Plan(tp=4, micro_batch=4, sequence_parallel=True))
    # A quarter of a layer is a little quicker than a quarter of its time: short kernels throttle less.
    assert 0.9 * alone.forward / 4 < parallel.forward < split.forward < alone.forward
    stored = layer_times(GPT, GPU, Plan(micro_batch=4, fused_attention=False))
    assert stored.attention > alone.attention and stored.attention_starts > alone.attention_starts


def test_a_ring_that_is_not_balanced_waits_for_its_last_rank():
    even, uneven = (
        layer_times(LLAMA, GPU, Plan(cp=4, micro_batch=1, balanced=balanced)) for balanced in (True, False)
    )
    assert uneven.attention / even.attention == pytest.approx(7 / 4, rel=0.02)


def test_arrays_and_single_plans_agree_to_the_last_bit():
    tp, micro = np.array([1, 2, 4, 8]), np.array([1, 2, 4, 8])[:, None]
    many = layer_times(MIXTRAL, GPU, Plan(tp=tp, micro_batch=micro, sequence_parallel=tp > 1))
    for i, j in np.ndindex(4, 4):
        one = Plan(tp=int(tp[j]), micro_batch=int(micro[i, 0]), sequence_parallel=bool(tp[j] > 1))
        alone = layer_times(MIXTRAL, GPU, one)
        for name in ("forward", "backward", "weight_gradient", "attention_backward"):
            assert np.broadcast_to(getattr(many, name), (4, 4))[i, j] == getattr(alone, name), name


def test_wrong_types_are_refused():
    for given in ((GPT, GPU, "plan"), (GPT, None, Plan()), ("gpt", GPU, Plan())):
        with pytest.raises(InputRefused):
            layer_times(*given)
