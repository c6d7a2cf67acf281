"""Model presets: published counts to the digit, sources, a reader's own file read or refused."""

import re
import tomllib

import pytest

from labkit.errors import InputRefused
from labkit.presets import data_path, model, model_ids
from labkit.spec import Transformer

SHIPPED = tomllib.loads(data_path("models.toml").read_text(encoding="utf-8"))["model"]

# Counts of the released weights (BLOOM: its model card); None where only a rounded figure is printed.
PUBLISHED = {
    "gpt3-13b": None,
    "gpt3-175b": None,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "bloom-176b": 176_247_271_424,
    "mixtral-8x7b": 46_702_792_704,
    "guide-13b": None,
}

OWN = """
[model.mine]
layers = 12
hidden = 768
heads = 12
vocabulary = 50257
sequence = 1024
learned_positions = 1024
"""


@pytest.mark.parametrize("id", model_ids())
def test_presets_hold_the_published_counts(id):
    assert model(id).name == id
    if PUBLISHED[id] is not None:
        assert model(id).parameters == PUBLISHED[id] == SHIPPED[id]["parameters"]
    assert len(SHIPPED[id]["source"]) >= 40


def test_the_ids_are_those_of_the_table():
    assert model_ids() == list(PUBLISHED)


@pytest.mark.parametrize(("id", "billions"), [("gpt3-13b", 12.85), ("gpt3-175b", 174.6), ("guide-13b", 10.3)])
def test_presets_hold_the_rounded_counts(id, billions):
    digits = len(str(billions).split(".")[1])
    assert round(model(id).parameters / 1e9, digits) == billions


def test_the_printed_width_of_gpt3_13b_gives_a_little_more():
    """The table prints 5140, with 40 heads of 128, which take 5120 of its columns."""
    printed = Transformer("printed", 40, 5140, 40, 50257, 2048, head_dim=128, learned_positions=2048)
    assert round(printed.parameters / 1e9, 2) == 12.94


def test_own_file_is_read_as_written(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    for given_as in (path, str(path)):
        mine = model(given_as)
        assert (mine.name, mine.parameters, mine.ffn, mine.tied) == ("mine", 124_439_808, 3072, True)


def test_a_shipped_preset_comes_back_from_its_own_file(tmp_path):
    blocks = re.split(r"(?m)^(?=\[)", data_path("models.toml").read_text(encoding="utf-8"))
    for id in model_ids():
        path = tmp_path / "one.toml"
        path.write_text(next(b for b in blocks if b.startswith((f"[model.{id}]", f'[model."{id}"]'))))
        assert model(path) == model(id)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("layers = 12\n", "", "lacks layers"),
        ("layers = 12", "layers = 0", "layers is 0; give a whole number from 1 to 100,000"),
        ("layers = 12", "layers = -1", "layers = -1"),
        ("layers = 12", "layers = 1.5", "a whole number"),
        ("layers = 12", "layers = nan", "a whole number"),
        ("layers = 12", 'layers = "12"', "a whole number"),
        ("layers = 12", "layers = true", "a whole number"),
        ("layers = 12", "layers = 1" + "0" * 400, "a whole number"),
        ("layers = 12", "layers = 10000000000", "to 100,000"),
        ("layers = 12", "layers = 12\nlayer = 3", "did you mean layers"),
        ("heads = 12", "heads = 5", "no multiple of 5 heads; give head_dim"),
        ("heads = 12", "heads = 12\nkv_heads = 5", "cannot share 5 kv heads"),
        ("heads = 12", "heads = 12\ngated = 1", "write true or false"),
        ("heads = 12", "heads = 12\nnorm = 'batch'", "norm is 'batch'; use layer or rms"),
        ("heads = 12", "heads = 12\nnorm = 3", "norm is 3; use layer or rms"),
        ("heads = 12", "heads = 12\nexperts = 8", "0 of 8 experts"),
        ("heads = 12", "heads = 12\ntop_k = 2", "without experts"),
        ("[model.mine]", "[model]", "describes 6 models"),
        (OWN, "model = 1", "model is not a table"),
        (OWN, "[model]\nmine = 1", "model.mine is not a table"),
        (OWN, "", "lacks model"),
        ("[model.mine]", "[model.other]\n[model.mine]", "describes 2 models"),
        ("[model.mine]", "[misc]\n[model.mine]", "unknown key 'misc'"),
        ("[model.mine]", "[model.mine", "not a TOML file"),
    ],
)
def test_own_file_with_a_fault_is_refused_in_one_sentence(old, new, says, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(InputRefused, match=re.escape(says)) as refused:
        model(path)
    text = str(refused.value)
    assert "mine.toml" in text and "\n" not in text


def test_unknown_ids_are_answered_with_the_known_and_the_nearest():
    with pytest.raises(InputRefused, match=r"known are gpt3-13b, .*did you mean llama2-7b\?"):
        model("llama2")
    for id in (
        "",
        "\0",
        5,
        10**5000,
        None,
        [1],
        "two\nlines",
        "x" * 100_000,
        "no/such\0",
        "no/such",
        "none.json",
        "a/" + "x" * 9999,
    ):
        with pytest.raises(InputRefused) as refused:
            model(id)
        assert str(refused.value).isprintable()
