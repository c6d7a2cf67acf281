"""config.json of every family against published counts; what cannot be counted is refused in one sentence."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.presets import model
from labkit.spec import Transformer


def modern(family, layers, hidden, heads, kv_heads, ffn, vocabulary, sequence, **more):
    return {
        "model_type": family,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocabulary,
        "max_position_embeddings": sequence,
        **more,
    }


def gpt2(layers, hidden, heads):
    shape = {"n_layer": layers, "n_embd": hidden, "n_head": heads, "n_positions": 1024, "n_inner": None}
    return {"model_type": "gpt2", "vocab_size": 50257, **shape}


def bloom(layers, hidden, heads, **more):
    shape = {"n_layer": layers, "n_embed": hidden, "num_attention_heads": heads}
    return {"model_type": "bloom", "vocab_size": 250880, **shape, **more}


def neox(layers, hidden, heads, vocabulary):
    config = modern("gpt_neox", layers, hidden, heads, None, 4 * hidden, vocabulary, 2048)
    return {**config, "tie_word_embeddings": False, "attention_bias": True}


QWEN3 = {"head_dim": 128, "attention_bias": False, "tie_word_embeddings": False}
EXPERTS = {
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
}
LLAMA2_7B = modern("llama", 32, 4096, 32, 32, 11008, 32000, 4096, tie_word_embeddings=False)
LLAMA2_70B = modern("llama", 80, 8192, 64, 8, 28672, 32000, 4096)
LLAMA3_8B = modern("llama", 32, 4096, 32, 8, 14336, 128256, 8192, mlp_bias=False, attention_bias=False)
LLAMA32_1B = modern("llama", 16, 2048, 32, 8, 8192, 128256, 131072, head_dim=64, tie_word_embeddings=True)
MISTRAL_7B = modern("mistral", 32, 4096, 32, 8, 14336, 32000, 32768)
MISTRAL_NEMO = modern("mistral", 40, 5120, 32, 8, 14336, 131072, 1024000, head_dim=128)
MIXTRAL = modern("mixtral", 32, 4096, 32, 8, 14336, 32000, 32768, num_local_experts=8, num_experts_per_tok=2)
QWEN2_7B = modern("qwen2", 28, 3584, 28, 4, 18944, 152064, 131072, tie_word_embeddings=False)
QWEN25_05B = modern("qwen2", 24, 896, 14, 2, 4864, 151936, 32768, tie_word_embeddings=True)
QWEN3_8B = modern("qwen3", 36, 4096, 32, 8, 12288, 151936, 40960, **QWEN3)
QWEN3_06B = modern("qwen3", 28, 1024, 16, 8, 3072, 151936, 40960, **{**QWEN3, "tie_word_embeddings": True})
QWEN3_30B = modern("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960, **QWEN3, **EXPERTS, mlp_only_layers=[])
GEMMA_7B = modern("gemma", 28, 3072, 16, 16, 24576, 256000, 8192, head_dim=256)
GEMMA_2B = modern("gemma", 18, 2048, 8, 1, 16384, 256000, 8192, head_dim=256)
PHI3_MINI = modern("phi3", 32, 3072, 32, 32, 8192, 32064, 4096, attention_bias=False)

# Counts of the released weights.
PUBLISHED = [
    ("llama2-7b", LLAMA2_7B, 6_738_415_616),
    ("llama2-70b", LLAMA2_70B, 68_976_648_192),
    ("llama3-8b", LLAMA3_8B, 8_030_261_248),
    ("llama3.2-1b", LLAMA32_1B, 1_235_814_400),
    ("mistral-7b", MISTRAL_7B, 7_241_732_096),
    ("mistral-nemo", MISTRAL_NEMO, 12_247_782_400),
    ("mixtral-8x7b", MIXTRAL, 46_702_792_704),
    ("qwen2-7b", QWEN2_7B, 7_615_616_512),
    ("qwen2.5-0.5b", QWEN25_05B, 494_032_768),
    ("qwen3-8b", QWEN3_8B, 8_190_735_360),
    ("qwen3-0.6b", QWEN3_06B, 596_049_920),
    ("qwen3-30b-a3b", QWEN3_30B, 30_532_122_624),
    ("gemma-7b", GEMMA_7B, 8_537_680_896),
    ("gemma-2b", GEMMA_2B, 2_506_172_416),
    ("phi-3-mini", PHI3_MINI, 3_821_079_552),
    ("gpt2", gpt2(12, 768, 12), 124_439_808),
    ("gpt2-xl", gpt2(48, 1600, 25), 1_557_611_200),
    ("gpt-neox-20b", neox(44, 6144, 64, 50432), 20_554_567_680),
    ("pythia-70m", neox(6, 512, 8, 50304), 70_426_624),
    ("bloom", bloom(70, 14336, 112, seq_length=2048), 176_247_271_424),
    ("bloom-560m", bloom(24, 1024, 16), 559_214_592),
]


def written(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return path


def refusal(path) -> str:
    with pytest.raises(InputRefused) as refused:
        model(path)
    text = str(refused.value)
    assert "config.json" in text and "\n" not in text and len(text) < 300
    return text


@pytest.mark.parametrize(
    ("config", "count"), [row[1:] for row in PUBLISHED], ids=[row[0] for row in PUBLISHED]
)
def test_released_configs_give_the_published_counts(config, count, tmp_path):
    path = written(tmp_path, config)
    assert model(path).parameters == count
    assert model(tmp_path) == model(path)  # the folder of a checkpoint


def test_active_parameters_of_experts(tmp_path):
    assert model(written(tmp_path, QWEN3_30B)).active_parameters == 3_353_032_704  # "A3B"
    assert model(written(tmp_path, MIXTRAL)).active_parameters == 12_879_925_248  # printed as 13B


def test_a_preset_and_its_released_config_are_the_same_model(tmp_path):
    preset = model("llama2-70b")
    read = model(written(tmp_path, {**LLAMA2_70B, "_name_or_path": "/data/llama2-70b/"}))
    assert isinstance(read, Transformer) and read == preset


@pytest.mark.parametrize("name", [5, "", "/", "a\nb", "x" * 1000])
def test_a_model_without_a_fit_name_is_called_as_its_family(name, tmp_path):
    assert model(written(tmp_path, {**LLAMA2_7B, "_name_or_path": name})).name == "llama"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "t5"}, "model_type 't5'; counted exactly are llama, mistral"),
        ({"model_type": None}, "no model_type"),
        ({"model_type": 5}, "model_type 5"),
        ({"model_type": "llava", "text_config": LLAMA2_7B}, "save its text_config as a file of its own"),
        ({"hidden_size": None}, "lacks hidden_size, which a llama model needs"),
        ({"intermediate_size": None}, "lacks intermediate_size"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'; give a whole number from 1 up"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": float("nan")}, "hidden_size is nan"),
        ({"hidden_size": float("inf")}, "hidden_size is inf"),
        ({"hidden_size": -4096}, "hidden_size is -4096"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": 40.5}, "hidden_size is 40.5"),
        ({"hidden_size": [4096]}, "hidden_size is of type list"),
        ({"hidden_size": {"a": 1}}, "hidden_size is of type dict"),
        ({"hidden_size": 10**60}, "hidden_size is a number of more than 40 digits"),
        ({"hidden_size": 10**12}, "1 to 1,000,000,000"),
        ({"hidden_size": 4095}, "no multiple of 32 heads"),
        ({"num_key_value_heads": 5}, "cannot share 5 kv heads evenly"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no'; write true or false"),
        ({"attention_bias": True}, "attention_bias = True, which is not modelled"),
        ({"mlp_bias": True}, "mlp_bias = True, which is not modelled"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "has no output head"),
        ({"architectures": 5}, "a list of class names"),
        ({"architectures": ["a\nb"]}, "architectures = 'a\\nb', which has no output head"),
    ],
)
def test_what_cannot_be_counted_exactly_is_refused(change, says, tmp_path):
    assert re.search(re.escape(says), refusal(written(tmp_path, {**LLAMA2_7B, **change})))


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (GEMMA_7B, "head_dim"),  # the family's code would take 256
        (QWEN3_8B, "head_dim"),
        (MISTRAL_7B, "num_key_value_heads"),  # and 8 here
        (MIXTRAL, "num_local_experts"),
        (MIXTRAL, "num_experts_per_tok"),
        (QWEN3_30B, "moe_intermediate_size"),
        (gpt2(12, 768, 12), "n_positions"),
        (bloom(24, 1024, 16), "n_embed"),
    ],
)
def test_a_missing_key_is_not_guessed(config, key, tmp_path):
    kept = {name: value for name, value in config.items() if name != key}
    assert "lacks " in refusal(written(tmp_path, kept))


def test_gpt_neox_without_attention_biases_is_refused_not_counted_with_them(tmp_path):
    assert model(written(tmp_path, {**neox(6, 512, 8, 50304), "attention_bias": None})).bias
    refused = refusal(written(tmp_path, {**neox(6, 512, 8, 50304), "attention_bias": False}))
    assert "attention_bias = False, which is not modelled" in refused


def test_experts_in_some_layers_only_are_refused(tmp_path):
    for change in ({"mlp_only_layers": [0]}, {"decoder_sparse_step": 2}):
        assert "not modelled" in refusal(written(tmp_path, {**QWEN3_30B, **change}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"hidden_size": ' + "9" * 10_000 + "}", "is not JSON"),
        ("[1, 2]", "has no model_type"),
        ("null", "has no model_type"),
        ('"llama"', "has no model_type"),
        ("{}", "has no model_type"),
        (" " * 300_000, "larger than 200,000 bytes"),
    ],
)
def test_files_of_another_kind_are_refused(text, says, tmp_path):
    assert says in refusal(written(tmp_path, text))


def test_a_missing_file_a_folder_without_one_and_bytes_are_refused(tmp_path):
    assert "cannot be read" in refusal(tmp_path / "config.json")
    assert "cannot be read" in refusal(tmp_path)
    (tmp_path / "config.json").mkdir()
    assert "cannot be read" in refusal(tmp_path)
    (tmp_path / "config.json").rmdir()
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    assert "not a text file" in refusal(tmp_path)


SHAPELESS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted({**QWEN3_30B, "architectures": 0, "_name_or_path": 0})), SHAPELESS)
)
def test_values_of_any_kind_raise_nothing_else(tmp_path_factory, values):
    path = written(tmp_path_factory.mktemp("any"), {**QWEN3_30B, **values})
    try:
        assert model(path).parameters > 0
    except InputRefused:
        return
