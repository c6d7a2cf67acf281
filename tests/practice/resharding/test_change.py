"""Feasibility, tensor by tensor, and what survives in which form: reported cases and sums by hand."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.practice.resharding import FORMATS, changes, nearest_layouts, reshard, survives
from labkit.presets import cluster, model
from labkit.spec import Plan, problems

NODES = cluster("a100", 8)
GPT, LLAMA, MIXTRAL = model("gpt3-13b"), model("llama3.1-8b"), model("mixtral-8x7b")


def rows(answer):
    return {row.name: row for row in answer.tensors}


def test_forty_heads_do_not_split_sixteen_ways():
    answer = reshard(GPT, NODES, Plan(tp=8, dp=4), Plan(tp=16, dp=4))
    assert not answer.possible and [one.rule for one in answer.problems] == ["heads"]
    assert "40 mod 16 = 8" in answer.problems[0].message
    held = rows(answer)
    assert not any(held[name].fits for name in ("query", "key and value", "projection"))
    assert held["MLP"].fits and held["MLP"].change == "cut anew"
    nearest = answer.layouts[0]
    assert (nearest.tp, nearest.dp, nearest.ranks) == (8, 8, 64)
    assert all(reshard(GPT, NODES, Plan(tp=8, dp=4), plan).possible for plan in answer.layouts)


def test_source_and_target_need_not_divide_each_other():
    """40 heads over 8 and over 5 ranks: 5 and 8 heads each; a target rank reads from 2 or 3 old ones."""
    answer = reshard(GPT, NODES, Plan(tp=8, vocabulary_multiple=1), Plan(tp=5, vocabulary_multiple=1))
    query = rows(answer)["query"]
    assert answer.possible and (query.source, query.target, query.least, query.most) == (8, 5, 2, 3)
    assert query.says == "8 x 5 heads -> 5 x 8 heads"


def test_only_dp_re_cuts_only_the_optimizer():
    answer = reshard(GPT, NODES, Plan(tp=8, dp=4, zero=1), Plan(tp=8, dp=6, zero=1))
    assert answer.changed == ("dp",)
    anew = [row.name for row in answer.tensors if row.change == "cut anew"]
    assert anew == ["optimizer states"]
    states = rows(answer)["optimizer states"]
    assert (states.source, states.target, states.least, states.most) == (4, 6, 1, 2)


def test_padding_of_the_vocabulary_changes_with_tp():
    """50,257 rows: 128 x 8 pads to 51,200, 128 x 4 to 50,688."""
    embedding = rows(reshard(GPT, NODES, Plan(tp=8), Plan(tp=4)))["embedding"]
    assert "padded 51,200 -> 50,688: drop 943 rows of padding, add 431 new ones" in embedding.says
    bare = reshard(GPT, NODES, Plan(tp=1, vocabulary_multiple=0), Plan(tp=8, vocabulary_multiple=0))
    assert [one.rule for one in bare.problems] == ["vocabulary"] and not rows(bare)["embedding"].fits
    assert "pad it to 50264" in bare.problems[0].remedy


def test_kv_heads():
    split = reshard(LLAMA, NODES, Plan(tp=8), Plan(tp=16))
    assert [one.rule for one in split.problems] == ["kv heads"] and not rows(split)["key and value"].fits
    assert rows(split)["query"].fits
    copied = reshard(LLAMA, NODES, Plan(tp=8), Plan(tp=16, replicate_kv=True))
    assert copied.possible and "1 kv head on each of 2 ranks" in rows(copied)["key and value"].says


def test_experts_and_all_broken_rules_at_once():
    answer = reshard(MIXTRAL, NODES, Plan(dp=8, ep=8), Plan(tp=3, dp=3, ep=3, etp=1))
    assert {"heads", "kv heads", "experts"} <= {one.rule for one in answer.problems}
    good = reshard(MIXTRAL, NODES, Plan(dp=8, ep=8), Plan(dp=8, ep=4))
    held = rows(good)["experts"]
    assert (
        good.possible and held.says == "8 x 1 expert -> 4 x 2 experts" and (held.least, held.most) == (2, 2)
    )
    inside = reshard(MIXTRAL, NODES, Plan(dp=8, ep=8), Plan(tp=2, dp=8, ep=8, etp=2))
    assert "columns of 1 -> 2 ranks" in rows(inside)["experts"].says


def test_layers_that_do_not_split_over_the_stages():
    answer = reshard(LLAMA, NODES, Plan(pp=4), Plan(pp=3))
    assert [one.rule for one in answer.problems] == ["layers"]
    assert answer.problems[0].options[0] == {"stage_layers": (11, 11, 10)}
    uneven = reshard(LLAMA, NODES, Plan(pp=4), Plan(pp=3, stage_layers=(10, 11, 11)))
    layers = rows(uneven)["layers"]
    assert uneven.possible and layers.change == "moved" and (layers.least, layers.most) == (2, 2)


def test_a_source_that_cannot_have_been():
    with pytest.raises(InputRefused, match="no job of the source plan can have saved"):
        reshard(GPT, NODES, Plan(tp=16), Plan(tp=8))


@pytest.mark.parametrize("wanted", [Plan(tp=16, dp=4), Plan(tp=12, pp=7), Plan(tp=7, dp=9), Plan(pp=64)])
def test_nearest_layouts_use_all_cards_and_break_no_rule_of_shape(wanted):
    for plan in nearest_layouts(GPT, NODES, wanted):
        assert plan.ranks == wanted.ranks and plan.accumulation % 1 == 0
        shape = {"heads", "kv heads", "ffn", "vocabulary", "layers", "experts", "expert ranks"}
        assert not shape & {one.rule for one in problems(GPT, NODES, plan)}


def test_another_batch_is_said():
    target = Plan(tp=8, dp=8, global_batch=512)
    assert "global batch 256 -> 512" in str(reshard(GPT, NODES, Plan(tp=8, dp=4, global_batch=256), target))
    assert "global batch" not in str(reshard(GPT, NODES, Plan(tp=8, dp=4, global_batch=512), target))


def test_nothing_changes():
    answer = reshard(GPT, NODES, Plan(tp=8, dp=4), Plan(tp=8, dp=4))
    assert answer.possible and answer.changed == ()
    assert "nothing that a checkpoint is cut by" in str(answer)


# ---- forms


@pytest.mark.parametrize("dp", [(4, 6), (32, 128), (8, 16), (256, 2)])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_files_are_a_dp_ranks_own(dp, stage):
    """G1: weights consolidated to fp32, the optimizer only elastic (1, 2) or after conversion."""
    source, target = (Plan(dp=n, zero=stage) for n in dp)
    plain = survives("deepspeed", source, target)
    assert plain.weights and not plain.optimizer
    text = " ".join(plain.says)
    assert "zero_to_fp32.py" in text and "elastic_checkpoint" in text and "ds_to_universal.py" in text
    assert "restart the optimizer" in text
    elastic = survives("deepspeed-elastic", source, target)
    assert elastic.optimizer == (stage < 3)
    assert "feasible is not correct" in " ".join(elastic.says)
    assert survives("deepspeed-universal", source, target).optimizer


def test_a_universal_checkpoint_of_stage_three_changes_dp_alone():
    assert not survives("deepspeed-universal", Plan(dp=8, zero=3), Plan(dp=4, tp=2, zero=3)).optimizer
    assert survives("deepspeed-universal", Plan(dp=8, zero=1), Plan(dp=4, tp=2, zero=1)).optimizer


def test_only_the_fully_reshardable_form_survives_pp_to_ep():
    """G3: PP = 4 to EP = 4."""
    source, target = Plan(pp=4, zero=1), Plan(dp=4, ep=4, zero=1)
    able = {
        name
        for name in FORMATS
        if name.startswith(("fully", "dp_")) and survives(name, source, target).optimizer
    }
    assert able == {"fully_reshardable"}
    old = " ".join(survives("fully_sharded_model_space", source, target).says)
    assert "0.15.0" in old and "dropped the moments" in old
    default = survives("dp_reshardable", source, target)
    assert default.weights and "pp and ep change" in " ".join(default.says)


def test_old_forms_are_warned_of_even_where_nothing_changes():
    same = survives("fully_sharded_model_space", Plan(dp=4, zero=1), Plan(dp=4, zero=1))
    assert any(line.startswith("caution") for line in same.says)


def test_padding_stops_forms_that_know_no_padding():
    source, target = Plan(tp=8, dp=1), Plan(tp=4, dp=2)
    assert "padding of the vocabulary" in changes(source, target, GPT)
    assert not survives("dcp", source, target, GPT).optimizer and survives("dcp", source, target).optimizer
    assert survives("fully_reshardable", source, target, GPT).optimizer


def test_weights_alone_have_no_optimizer():
    lost = survives("weights", Plan(), Plan())
    assert lost.weights and not lost.optimizer and "restart the optimizer" in " ".join(lost.says)


def test_printed_answer_names_form_and_changes():
    text = str(reshard(GPT, NODES, Plan(tp=8, dp=4, zero=1), Plan(tp=8, dp=8, zero=1), "dp_reshardable"))
    assert "possible" in text and "dp_reshardable" in text and "survives a change of dp" in text


def test_refused():
    with pytest.raises(InputRefused, match="form of a checkpoint"):
        survives("pickle", Plan(), Plan())
    with pytest.raises(InputRefused, match="takes single numbers"):
        reshard(GPT, NODES, Plan(), Plan(dp=np.array([1, 2])))
