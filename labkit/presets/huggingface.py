"""A Hugging Face ``config.json`` as a Transformer: the families whose parameters this can count exactly.

Each family names its keys and what its code does without saying (biases, norms, tying). Counts of released
checkpoints were compared; a family that is not listed is refused, never guessed.
"""

import json
from pathlib import Path

from labkit.errors import InputRefused
from labkit.presets.files import called, read_bounded
from labkit.spec import Transformer
from labkit.spec.checks import amount, shown, whole

# Our name -> the key of config.json; the newer families share these.
_KEYS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "vocabulary": "vocab_size",
    "sequence": "max_position_embeddings",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "ffn": "intermediate_size",
}
_LLAMA = {"gated": True, "tied": False, "norm": "rms", "bias": False}
_GPT = {"tied": True, "norm": "layer", "bias": True}
_GPT2_KEYS = {
    "layers": "n_layer",
    "hidden": "n_embd",
    "heads": "n_head",
    "vocabulary": "vocab_size",
    "sequence": "n_positions",
    "learned_positions": "n_positions",
    "ffn": "n_inner",
}
_FAMILIES = {
    "llama": (_KEYS, _LLAMA),
    "mistral": (_KEYS, _LLAMA),
    "phi3": (_KEYS, _LLAMA),
    "gemma": (_KEYS, {**_LLAMA, "tied": True}),
    "qwen2": (_KEYS, {**_LLAMA, "qkv_bias": True}),
    "qwen3": (_KEYS, {**_LLAMA, "qk_norm": True}),
    "mixtral": ({**_KEYS, "experts": "num_local_experts", "top_k": "num_experts_per_tok"}, _LLAMA),
    "qwen3_moe": (
        {**_KEYS, "ffn": "moe_intermediate_size", "experts": "num_experts", "top_k": "num_experts_per_tok"},
        {**_LLAMA, "qk_norm": True},
    ),
    "gpt2": (_GPT2_KEYS, _GPT),
    "gpt_neox": ({**_KEYS, "kv_heads": None, "head_dim": None}, {**_GPT, "tied": False}),
    "bloom": (
        {
            "layers": "n_layer",
            "hidden": "hidden_size",
            "heads": "n_head",
            "vocabulary": "vocab_size",
            "sequence": "seq_length",
        },
        {**_GPT, "embedding_norm": True},
    ),
}
# Bloom's config has no training length of its own in every copy; its paper trains at 2048.
_USUAL = {("bloom", "sequence"): 2048}
# May be left out where the family's own code then takes the usual value, and not some fixed number.
_OPTIONAL = {
    "kv_heads": ("llama", "phi3"),
    "head_dim": ("llama", "phi3", "mistral", "mixtral", "qwen2"),
    "ffn": ("gpt2",),
}
# Older files spell these differently (transformers keeps both as aliases).
_ALSO = {"num_hidden_layers": "n_layer", "hidden_size": "n_embed", "num_attention_heads": "n_head"}
_ALSO |= {new: old for old, new in _ALSO.items()}
# Keys that change what is counted, with the only value this module counts right.
_MUST_BE = {
    "mlp_only_layers": ([], None),
    "decoder_sparse_step": (1, None),
    "add_cross_attention": (False, None),
    "mlp_bias": (False, None),
}
# Whether attention has biases where a family can have both: the only values this module counts right.
_ATTENTION_BIAS = dict.fromkeys(set(_FAMILIES) - {"gpt2", "bloom"}, (False, None))
_ATTENTION_BIAS["gpt_neox"] = (True, None)
# Dropout after attention and MLP, whose masks a training run keeps; without a key only GPT-2 has some.
_DROPOUT = ("resid_pdrop", "hidden_dropout")
_WITH_A_HEAD = ("ForCausalLM", "LMHeadModel")  # how the classes with an output head are called


def read(path: Path) -> Transformer:
    """The model of a ``config.json``.

    Refused: a file that is not JSON, larger than 200 kB, of a family that is not known, without a key it
    needs, or with a setting that would change the count in a way not modelled.
    """
    where = called(path)
    config = _object(path, where)
    family = config["model_type"]
    unusual = {"attention_bias": _ATTENTION_BIAS[family]} if family in _ATTENTION_BIAS else {}
    for key, allowed in {**_MUST_BE, **unusual}.items():
        if config.get(key) not in allowed:
            raise InputRefused(
                f"{where} has {key} = {shown(config[key])}, which is not modelled; describe the model in "
                "a .toml file like data/models.toml"
            )
    keys, usual = _FAMILIES[family]
    shape = {name: _whole(config, key, name, family, where) for name, key in keys.items() if key}
    shape = {name: value for name, value in shape.items() if value is not None}
    tied = config.get("tie_word_embeddings", usual["tied"])
    if not isinstance(tied, bool):
        raise InputRefused(f"{where} has tie_word_embeddings = {shown(tied)}; write true or false")
    said = {**usual, "tied": tied, "dropout": _dropout(config, family, where)}
    try:
        return Transformer(_name(config, family), **shape, **said)
    except InputRefused as refusal:
        raise InputRefused(f"{where}: {refusal}") from None


def _object(path: Path, where: str) -> dict:
    """The file's object, of a family that is known and with an output head."""
    text = read_bounded(path, "a model's config.json is a few kB of JSON")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputRefused(f"{where} is not JSON ({error}); give a model's config.json") from None
    family = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(family, str) or family not in _FAMILIES:
        if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
            raise InputRefused(
                f"{where} holds a model of several parts; save its text_config as a file of its own"
            )
        said = "no model_type" if family is None else f"model_type {shown(family)}"
        raise InputRefused(
            f"{where} has {said}; counted exactly are {', '.join(_FAMILIES)}: describe other models in a "
            ".toml file like data/models.toml"
        )
    classes = config.get("architectures") or []
    if not (isinstance(classes, list) and all(isinstance(one, str) for one in classes)):
        raise InputRefused(f"{where} has architectures = {shown(classes)}; it must be a list of class names")
    if classes and not any(one.endswith(_WITH_A_HEAD) for one in classes):
        raise InputRefused(
            f"{where} has architectures = {shown(classes[0])}, which has no output head; take the "
            "config.json of a language model"
        )
    return config


def _name(config: dict, family: str) -> str:
    """The last part of the name or path that the file was saved under, or the family."""
    name = config.get("_name_or_path")
    name = name.rstrip("/").rpartition("/")[2] if isinstance(name, str) else ""
    return name if name.isprintable() and 0 < len(name) <= 60 else family


def _dropout(config: dict, family: str, where: str) -> bool:
    """Whether the model is trained with dropout after its blocks."""
    given = {key: config[key] for key in _DROPOUT if config.get(key) is not None}
    for key, value in given.items():
        if amount(value, f"{where}: {key}", zero=True, arrays=False) >= 1:
            raise InputRefused(f"{where}: {key} is {shown(value)}; give a share from 0 up to below 1")
    return any(given.values()) if given else family == "gpt2"


def _whole(config: dict, key: str, name: str, family: str, where: str) -> int | None:
    """The whole number under a key or its older spelling; None where it may be left out and is."""
    found = next((k for k in (key, _ALSO.get(key)) if config.get(k) is not None), None)
    if found is not None:
        return whole(config[found], f"{where}: {found}")
    if family in _OPTIONAL.get(name, ()):
        return None
    if (family, name) in _USUAL:
        return _USUAL[family, name]
    raise InputRefused(f"{where} lacks {key}, which a {family} model needs; take the released config.json")
