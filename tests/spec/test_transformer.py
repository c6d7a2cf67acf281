"""Transformer: counts by part and FLOPs by product against sums by hand, published formulas and rows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.presets import model
from labkit.spec import Transformer

A100 = 312e12


def gpt(layers, hidden, heads, vocabulary=51200, sequence=2048):
    return Transformer("gpt", layers, hidden, heads, vocabulary, sequence, learned_positions=sequence)


# The models of "Efficient Large-Scale Language Model Training on GPU Clusters" (2021), table 1, in billions.
SC21 = [
    (1.7, gpt(24, 2304, 24)),
    (3.6, gpt(30, 3072, 32)),
    (7.5, gpt(36, 4096, 32)),
    (18.4, gpt(40, 6144, 48)),
    (39.1, gpt(48, 8192, 64)),
    (76.1, gpt(60, 10240, 80)),
    (145.6, gpt(80, 12288, 96)),
    (310.1, gpt(96, 16384, 128)),
    (529.6, gpt(105, 20480, 128)),
    (1008.0, gpt(128, 25600, 160)),
]
shapes = st.builds(
    lambda layers, heads, each, kv, ffn, vocabulary, sequence, gated, experts, bias: Transformer(
        "any",
        layers,
        heads * each,
        heads,
        vocabulary,
        sequence,
        kv_heads=kv if heads % kv == 0 else heads,
        ffn=ffn,
        gated=gated,
        experts=experts,
        top_k=min(2, experts),
        bias=bias,
    ),
    st.integers(1, 100),
    st.integers(1, 16),
    st.integers(1, 128),
    st.integers(1, 16),
    st.integers(1, 5000),
    st.integers(1, 200_000),
    st.integers(1, 10_000),
    st.booleans(),
    st.integers(0, 16),
    st.booleans(),
)


@pytest.mark.parametrize(("billions", "shape"), SC21)
def test_counts_of_the_published_table_and_its_formula(billions, shape):
    lay, h, v, s = shape.layers, shape.hidden, shape.vocabulary, shape.sequence
    assert round(shape.parameters / 1e9, 1) == billions
    # The paper's P = 12 l h^2 (1 + 13/12h + (V + s)/12lh) leaves out the final norm's 2 h.
    assert shape.parameters == 12 * lay * h**2 + 13 * lay * h + (v + s) * h + 2 * h


def test_parts_of_a_layer_by_hand():
    shape = Transformer(
        "hand",
        2,
        12,
        6,
        100,
        8,
        kv_heads=2,
        head_dim=3,
        ffn=10,
        gated=True,
        tied=False,
        norm="rms",
        bias=False,
    )
    assert (shape.query_width, shape.kv_width) == (18, 6)
    attention = 12 * 18 + 2 * 12 * 6 + 18 * 12
    assert shape.layer_parts() == {"attention": attention, "mlp": 3 * 12 * 10, "router": 0, "norms": 24}
    assert shape.layer_parameters == attention + 360 + 24
    assert shape.parameters == 2 * (attention + 384) + 12 + 2 * 1200
    assert replace(shape, bias=True).layer_parts()["attention"] == attention + 18 + 2 * 6 + 12
    assert replace(shape, bias=True).layer_parts()["mlp"] == 360 + 2 * 10 + 12
    assert replace(shape, qkv_bias=True).layer_parts()["attention"] == attention + 30
    assert replace(shape, qk_norm=True).layer_parts()["attention"] == attention + 6
    assert replace(shape, tied=True).parts()["head"] == 0
    assert replace(shape, embedding_norm=True).parts()["other norms"] == 24


def test_experts_are_counted_all_and_active():
    dense = Transformer("e", 3, 8, 2, 50, 4, ffn=16, gated=True, bias=False)
    sparse = replace(dense, experts=4, top_k=1)
    assert sparse.layer_parts()["mlp"] == 4 * dense.layer_parts()["mlp"] == 4 * 3 * 8 * 16
    assert sparse.layer_parts()["router"] == 8 * 4
    assert sparse.active_parameters == dense.parameters + 3 * 32
    assert dense.active_parameters == dense.parameters
    assert replace(sparse, top_k=4).active_parameters == sparse.parameters


@given(shapes)
def test_parts_sum_up_and_repeat_by_layer(shape):
    parts, layer = shape.parts(), shape.layer_parts()
    assert sum(parts.values()) == shape.parameters
    assert all(parts[name] == shape.layers * count for name, count in layer.items())
    assert sum(layer.values()) == shape.layer_parameters
    assert 0 < shape.active_parameters <= shape.parameters


@pytest.mark.parametrize("shape", [shape for _, shape in SC21])
def test_flops_are_those_of_the_published_formula(shape):
    b, s, h, lay, v = 7, shape.sequence, shape.hidden, shape.layers, shape.vocabulary
    full = 96 * b * s * lay * h**2 * (1 + s / (6 * h) + v / (16 * lay * h))
    assert shape.hardware_flops(b, recompute="full") == pytest.approx(full, rel=1e-12)
    assert shape.hardware_flops(b) == shape.model_flops(b)
    assert shape.model_flops(b) == pytest.approx(
        72 * b * s * lay * h**2 * (1 + s / (6 * h) + v / (12 * lay * h)), rel=1e-12
    )


@given(shapes, st.integers(1, 100))
def test_flops_are_six_times_the_weights_a_token_meets_and_the_attention_matrix(shape, b):
    """6 B s (P_layers + V h) + 12 B s^2 h L, with heads x head_dim for h in the last and matrices for P."""
    s, h = shape.sequence, shape.hidden
    attention = h * (2 * shape.query_width + 2 * shape.kv_width)
    mlp = (3 if shape.gated else 2) * h * shape.ffn * (shape.top_k if shape.experts else 1)
    weights = shape.layers * (attention + mlp + h * shape.experts) + shape.vocabulary * h
    matrix = 12 * b * s**2 * shape.query_width * shape.layers
    assert shape.model_flops(b) == pytest.approx(6 * b * s * weights + matrix, rel=1e-12)


def test_half_of_the_attention_matrix_lies_below_its_diagonal():
    shape = gpt(2, 64, 4, sequence=8)
    whole, half = shape.forward_flops(3), shape.forward_flops(3, causal=True)
    pairs = sum(row + 1 for row in range(8))  # token i sees i + 1 tokens
    for name in ("scores", "context"):
        assert whole[name] == 2 * (3 * 2 * 64 * 8 * 8)
        assert half[name] == 2 * (3 * 2 * 64 * pairs)
    assert {n: f for n, f in whole.items() if n not in ("scores", "context")} == {
        n: f for n, f in half.items() if n not in ("scores", "context")
    }


def test_what_recompute_repeats():
    shape = gpt(4, 64, 4)
    forward, base = shape.forward_flops(2), shape.model_flops(2)
    again = forward["scores"] + forward["context"]
    assert shape.hardware_flops(2, recompute="selective") == pytest.approx(base + again)
    everything = sum(forward.values()) - forward["head"]
    assert shape.hardware_flops(2, recompute="full") == pytest.approx(base + everything)


# "Reducing Activation Recomputation in Large Transformer Models" (2022), table 5, selective recompute:
# shape, sequences, GPUs, seconds, MFU and HFU in per cent.
TABLE5 = [
    (gpt(48, 6144, 64), 4, 8, 1.10, 41.5, 43.7),
    (gpt(96, 12288, 96), 64, 64, 13.75, 51.4, 52.8),
    (gpt(105, 20480, 128), 280, 280, 37.83, 56.0, 57.0),
    (gpt(128, 25600, 160), 512, 512, 71.49, 56.3, 57.0),
]


@pytest.mark.parametrize(("shape", "batch", "gpus", "seconds", "mfu", "hfu"), TABLE5)
def test_mfu_of_the_published_rows(shape, batch, gpus, seconds, mfu, hfu):
    rounding = 0.05 / mfu + 0.005 / seconds
    ours = 100 * shape.utilisation(seconds, batch, gpus, A100)
    assert ours == pytest.approx(mfu, rel=rounding)
    # The paper's HFU counts the repeated attention three times; the GPU does it once.
    repeated = shape.utilisation(seconds, batch, gpus, A100, recompute="selective") * 100 - ours
    assert ours + 3 * repeated == pytest.approx(hfu, rel=rounding)


@pytest.mark.parametrize(
    ("shape", "batch", "gpus", "seconds", "peak", "mfu", "within"),
    [
        # A Llama 2 70B on A100 with 355 tokens/s a GPU; that report counts the embedding's rows as well.
        (model("llama2-70b"), 64, 64, 64 * 4096 / (64 * 355), A100, 50.8, 0.005),
        # An MPT 70B on H100 with 1007 tokens/s a GPU.
        (gpt(80, 8192, 64, 50368), 4096, 512, 4096 * 2048 / (512 * 1007), 989e12, 41.25, 0.003),
    ],
)
def test_mfu_of_other_published_runs(shape, batch, gpus, seconds, peak, mfu, within):
    assert 100 * shape.utilisation(seconds, batch, gpus, peak) == pytest.approx(mfu, rel=within)


def test_hfu_with_full_recompute_of_a_published_run():
    """GPT-3 175B on 1024 A100: 32 s a step of 1536 sequences, printed as 138 TFLOP/s and 44 %."""
    shape = gpt(96, 12288, 96)
    assert shape.hardware_flops(1536, recompute="full") / (32 * 1024) / 1e12 == pytest.approx(138, rel=0.016)
    assert 100 * shape.utilisation(32, 1536, 1024, A100, recompute="full") == pytest.approx(44, rel=0.016)


def test_the_head_in_layers():
    """V/(12 h): 0.52 layers at 32k words and 2.09 at 128k, hidden 5120."""
    at = replace(model("guide-13b"), vocabulary=32000)
    assert round(at.head_in_layers, 2) == 0.52
    assert round(replace(at, vocabulary=128256).head_in_layers, 2) == 2.09


def test_arrays_give_what_single_numbers_give():
    shape, batch = model("mixtral-8x7b"), np.array([1, 8, 64])
    assert shape.model_flops(batch).tolist() == [shape.model_flops(b) for b in (1, 8, 64)]
    lengths = np.array([512, 4096])
    assert shape.forward_flops(1, lengths)["scores"].tolist() == [
        shape.forward_flops(1, s)["scores"] for s in (512, 4096)
    ]
    seconds = np.array([1.0, 2.0])
    assert shape.utilisation(seconds, 8, 8, A100).tolist() == [
        shape.utilisation(x, 8, 8, A100) for x in (1.0, 2.0)
    ]


@pytest.mark.parametrize(
    "field", ["layers", "hidden", "heads", "vocabulary", "sequence", "kv_heads", "experts"]
)
@pytest.mark.parametrize(
    "value", [-1, 1.5, "8", None, [8], True, float("nan"), float("inf"), 10**30, np.ones(2)]
)
def test_numbers_that_cannot_be_are_refused(field, value):
    with pytest.raises(InputRefused, match=f"gpt: {field} is .*; give a whole number from") as refused:
        replace(gpt(2, 64, 4), **{field: value})
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 150


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": None}, "name of a model"),
        ({"hidden": 65, "head_dim": 0}, "no multiple of 4 heads; give head_dim"),
        ({"kv_heads": 3}, "kv_heads must divide heads"),
        ({"experts": 4}, "0 of 4 experts"),
        ({"experts": 4, "top_k": 5}, "use top_k from 1 to 4"),
        ({"top_k": 2}, "without experts"),
        ({"gated": 1}, "gated is 1; use False or True"),
        ({"tied": None}, "tied is None"),
        ({"norm": "batch"}, "use layer or rms"),
        ({"norm": []}, "norm is of type list"),
        ({"norm": np.array(["rms", "rms"])}, "norm is an array of 2 values"),
        ({"gated": np.array([True, False])}, "gated is an array of 2 values"),
    ],
)
def test_shapes_that_cannot_be_are_refused(change, says):
    with pytest.raises(InputRefused, match=says):
        replace(gpt(2, 64, 4), **change)


@pytest.mark.parametrize("value", [0, -1, "8", None, [None], True, float("nan"), float("inf"), [[1], [1, 2]]])
def test_flops_of_what_is_no_number_are_refused(value):
    shape = gpt(2, 64, 4)
    for ask in (
        lambda: shape.forward_flops(value),
        lambda: shape.model_flops(1, [value] if value is None else value),
        lambda: shape.utilisation(value, 1, 1, 1e12),
        lambda: shape.utilisation(1, 1, value, 1e12),
        lambda: shape.utilisation(1, 1, 1, value),
    ):
        with pytest.raises(InputRefused, match=r"give a number.* above 0"):
            ask()


def test_flops_of_arrays_of_choices_are_those_of_single_ones():
    shape, modes, causal = (
        gpt(2, 64, 4),
        np.array(["none", "selective", "full"]),
        np.array([True, False, True]),
    )
    several = shape.hardware_flops(3, 128, modes, causal)
    assert several.tolist() == [
        shape.hardware_flops(3, 128, str(mode), bool(half)) for mode, half in zip(modes, causal, strict=True)
    ]


@pytest.mark.parametrize("value", ["some", "", 3, [], ["full"], None, True, np.array(["full", "some"])])
def test_an_unknown_recompute_is_refused(value):
    with pytest.raises(InputRefused, match="use none, selective or full"):
        gpt(2, 64, 4).hardware_flops(recompute=value)
