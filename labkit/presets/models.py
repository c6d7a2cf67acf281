"""Named models from ``data/models.toml``, a reader's own file of the same form, or a config.json."""

import os

from labkit.errors import InputRefused
from labkit.presets import huggingface
from labkit.presets.files import (
    called,
    check_keys,
    load_toml,
    number,
    path_of,
    shipped,
    sub_table,
    unknown_id,
)
from labkit.spec import Transformer
from labkit.spec.checks import label, shown

_REQUIRED = {"layers", "hidden", "heads", "vocabulary", "sequence"}
_WHOLE = {*_REQUIRED, "kv_heads", "head_dim", "ffn", "experts", "top_k", "learned_positions"}
_YES_OR_NO = {"gated", "tied", "bias", "qkv_bias", "qk_norm", "embedding_norm", "dropout"}
_NOT_SHAPE = {"source", "parameters"}
_OR = "a path to a config.json or .toml file"


def model_ids() -> list[str]:
    """The ids that ``model`` knows.

    >>> model_ids()[:2]
    ['gpt3-13b', 'gpt3-175b']
    """
    return list(shipped("models.toml")["model"])


def model(id: str | os.PathLike) -> Transformer:
    """The preset ``id``, or the model in a file: a Hugging Face ``config.json``, or a TOML file.

    A reader's own TOML file has the keys of ``data/models.toml``: one ``[model.NAME]`` table with at least
    layers, hidden, heads, vocabulary and sequence.

    Raises InputRefused for an unknown id (with the nearest one), and for a file that cannot be read, is too
    large, or has a missing, unknown or senseless entry.

    >>> model("llama2-7b").parameters, model("mixtral-8x7b").active_parameters
    (6738415616, 12879925248)
    """
    ours = shipped("models.toml")
    path = path_of(id, "model", model_ids(), _OR)
    if str(id) in ours["model"]:
        return _model(str(id), ours, "models.toml")
    folder = len(path.parts) > 1 and os.path.isdir(path)
    if path.suffix == ".json" or folder:
        return huggingface.read(path / "config.json" if folder else path)
    if path.suffix != ".toml" and len(path.parts) < 2:
        raise unknown_id(str(id), "model", model_ids(), _OR)
    own = load_toml(path, "a model file is a few lines of TOML", "models.toml")
    check_keys(own, called(path), "the file", required={"model"}, optional=set(), like="models.toml")
    models = sub_table(own, "model", called(path), "")
    if len(models) != 1:
        raise InputRefused(
            f"{called(path)} describes {len(models)} models; keep one [model.NAME] table in the file"
        )
    return _model(next(iter(models)), own, called(path))


def _model(name: str, file: dict, where: str) -> Transformer:
    label(name, f"the name of a model in {where}")
    at = f"[model.{name}]"
    table = sub_table(file["model"], name, where, "model.")
    known = _WHOLE | _YES_OR_NO | _NOT_SHAPE | {"norm"}
    check_keys(table, where, at, required=_REQUIRED, optional=known - _REQUIRED, like="models.toml")
    shape = {}
    for key in table.keys() - _NOT_SHAPE:
        if key in _WHOLE:
            shape[key] = int(number(table, key, where, at, whole=True, least=0))
        elif key in _YES_OR_NO and not isinstance(table[key], bool):
            raise InputRefused(f"{where}: {at} has {key} = {shown(table[key])}; write true or false")
        else:
            shape[key] = table[key]
    try:
        return Transformer(name, **shape)
    except InputRefused as refusal:
        raise InputRefused(f"{where}: {refusal}") from None
