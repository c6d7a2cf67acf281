"""A reader's own files: whatever stands in them, a refusal is one short line."""

import re

import pytest

from labkit.errors import InputRefused
from labkit.presets import cluster, model
from tests.presets.test_clusters import OWN as CLUSTER
from tests.presets.test_models import OWN as MODEL

LINES, LONG, HUGE, LIST = '"two\\nlines"', '"' + "x" * 5000 + '"', "0x" + "f" * 5000, '["two\\nlines"]'


def refusal(read, text, folder):
    """How the file with this text is refused."""
    path = folder / "two\nlines.toml"
    path.write_text(text)
    with pytest.raises(InputRefused) as refused:
        read(path)
    said = str(refused.value)
    assert said.isprintable() and len(said) < 400
    return said


@pytest.mark.parametrize("odd", [LINES, LONG, HUGE, LIST])
@pytest.mark.parametrize(
    "old", ["24", "1.5", '"mine"', '"Mine"', "0.5", "{ bf16 = 100, fp8 = 200 }", "memory_GiB", "[gpu.mine]"]
)
def test_odd_entries_of_a_cluster(old, odd, tmp_path):
    refusal(cluster, CLUSTER.replace(old, odd, 1), tmp_path)


@pytest.mark.parametrize("odd", [LINES, LONG, HUGE, LIST])
@pytest.mark.parametrize("key", ["layers", "gated", "norm", LINES, LONG])
def test_odd_entries_of_a_model(key, odd, tmp_path):
    refusal(model, re.sub(f"(?m)^{key} = .*", "", MODEL) + f"{key} = {odd}\n", tmp_path)


def test_what_the_reader_of_toml_says_is_said_where_it_is_short(tmp_path):
    assert "Cannot overwrite a value" in refusal(model, MODEL + "layers = 2", tmp_path)
    long = f"[{'x' * 500}]\n"
    assert "(it cannot be parsed)" in refusal(model, long + long, tmp_path)
