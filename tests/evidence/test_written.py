"""The first of several plans that a framework can express."""

import pytest

from labkit import Plan, cluster, model
from labkit.errors import InputRefused
from labkit.evidence.launchers import launcher_arguments
from labkit.evidence.written import write_first

NODE, LLAMA = cluster("h100"), model("llama2-7b")
BATCH = {"global_batch": 64, "micro_batch": 1}
PIPELINE, SHARDED = Plan(pp=8, **BATCH), Plan(dp=8, zero=2, **BATCH)


def test_what_cannot_be_expressed_is_passed_over_with_its_reason():
    found = write_first("deepspeed", LLAMA, NODE, [PIPELINE, SHARDED])
    assert found.place == 2 and found.text == launcher_arguments("deepspeed", LLAMA, NODE, SHARDED)
    assert [place for place, _ in found.cannot] == [1] and "cannot express pp = 8" in found.cannot[0][1]
    assert repr(found).startswith("# plan 1: DeepSpeed cannot express pp = 8") and "# plan 2:\n{" in repr(
        found
    )


def test_the_first_where_it_can_be_expressed():
    found = write_first("megatron-lm", LLAMA, NODE, [PIPELINE, SHARDED])
    assert (found.place, found.cannot) == (1, ()) and "--pipeline-model-parallel-size 8" in found.text


def test_none_of_them():
    found = write_first("deepspeed", LLAMA, NODE, [PIPELINE])
    assert (found.place, found.text) == (None, "") and repr(found).endswith("# no plan")
    assert repr(write_first("deepspeed", LLAMA, NODE, [])) == "# no plan"


@pytest.mark.parametrize(
    "arguments",
    [
        ("horovod", LLAMA, NODE, [SHARDED]),
        (None, LLAMA, NODE, [SHARDED]),
        ("deepspeed", "llama2-7b", NODE, [SHARDED]),
        ("deepspeed", LLAMA, "h100", [SHARDED]),
        ("deepspeed", LLAMA, NODE, SHARDED),
        ("deepspeed", LLAMA, NODE, ["tp=8"]),
        ("deepspeed", LLAMA, NODE, None),
    ],
)
def test_wrong_types_are_refused(arguments):
    with pytest.raises(InputRefused) as refused:
        write_first(*arguments)
    assert "\n" not in str(refused.value)
