"""A step's seconds: they add up, agree with the simulation, with arrays, and with published steps."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.planner.bill import step_bill
from labkit.planner.memory import memory
from labkit.planner.stage_work import stage_work
from labkit.planner.step import step_time
from labkit.planner.step_traffic import step_traffic
from labkit.presets import cluster, model
from labkit.presets.published import published
from labkit.spec import Plan, StepTime, Transformer
from labkit.spec.step_time import TERMS
from labkit.strategies.pipeline import one_f_one_b, simulate

NODES = cluster("a100", nodes=4)
GPT = model("gpt3-13b")
MIXTRAL = model("mixtral-8x7b")


def test_the_terms_are_the_step():
    plan = Plan(tp=4, pp=4, dp=2, global_batch=64, micro_batch=1)
    step = step_time(GPT, NODES, plan)
    assert step.total == pytest.approx(sum(getattr(step, name) for name in TERMS))
    assert step.tokens == 64 * GPT.sequence and step.gpus == 32
    assert step.tokens_per_s == pytest.approx(64 * GPT.sequence / step.total)
    assert step.mfu == pytest.approx(GPT.model_flops(64) / step.total / 32 / 312e12)
    assert step.hfu == step.mfu  # nothing is recomputed
    assert step.peak_memory == memory(GPT, NODES, plan).peak
    assert 0 < step.exposed <= step.communication


def test_full_recompute_costs_about_a_third_of_the_compute():
    none, full = (
        step_time(GPT, NODES, Plan(tp=8, dp=4, global_batch=32, recompute=mode)) for mode in ("none", "full")
    )
    assert 1.25 < full.compute / none.compute < 1.35
    assert full.hfu / full.mfu > 1.25
    # Two all_reduces more on top of four, a layer.
    assert full.tp / none.tp == pytest.approx(1.5, rel=0.01)


def test_the_pipeline_is_that_of_the_simulation():
    plan = Plan(tp=2, pp=4, dp=4, global_batch=64, micro_batch=1)
    traffic = step_traffic(GPT, NODES, plan, step_bill(GPT, NODES, plan, bucket=25e6))
    work = stage_work(GPT, NODES.gpu, plan, traffic)
    forward, backward = (sum(each.values()) for each in (work.forward, work.backward))
    stages = [0, 1, 1, 3]
    run = simulate(one_f_one_b(4, 16), forward[stages], backward[stages], traffic.hop)
    step = step_time(GPT, NODES, plan, slow_down=1.0)
    at_end = step.total - run.span
    assert at_end == pytest.approx(step.dp + step.optimizer + 3 * NODES.gpu.kernels.launch, rel=0.05)
    assert step.bubble > 3 / 16 * 0.9 * (step.compute + step.tp)


def test_without_a_pipeline_nothing_waits_for_stages():
    step = step_time(GPT, NODES, Plan(tp=8, dp=4, global_batch=32))
    assert step.bubble == step.pp == step.cp == step.ep == 0
    alone = step_time(GPT, replace(NODES, nodes=1), Plan(micro_batch=1, global_batch=1))
    assert alone.communication == alone.exposed == 0 and alone.coverage == 1.0


def test_gradients_hide_under_the_last_backward_but_for_one_bucket():
    plan = Plan(tp=8, dp=4, global_batch=32, micro_batch=8)
    hidden, shown = (step_time(GPT, NODES, plan, overlap=overlap) for overlap in (True, False))
    in_all = shown.dp
    assert hidden.dp < 0.1 * in_all and hidden.coverage > shown.coverage
    # One bucket of all gradients cannot start before the backward ends.
    whole = step_time(GPT, NODES, plan, bucket=1e12)
    assert whole.dp == pytest.approx(in_all, rel=0.05)


def test_what_hides_slows_what_it_hides_under():
    plan = Plan(tp=8, dp=4, global_batch=32, micro_batch=8)
    alone, usual = (step_time(GPT, NODES, plan, slow_down=each) for each in (1.0, 1.25))
    assert usual.compute - alone.compute == pytest.approx(alone.hidden / 5)
    assert usual.exposed == alone.exposed and usual.communication == alone.communication


def test_a_slow_network_shows_in_stage_three():
    plan = Plan(dp=32, zero=3, global_batch=32)
    fast, slow = (
        step_time(GPT, replace(NODES, inter=replace(NODES.inter, bandwidth=rate)), plan)
        for rate in (24e9, 1.2e9)
    )
    assert fast.dp < 0.2 * fast.compute and slow.dp > fast.compute
    deep = step_time(GPT, NODES, replace(plan, prefetch=0))
    assert deep.dp > 3 * fast.dp


def test_short_kernels_wait_for_the_host():
    small = Transformer("small", 40, 256, 8, 1000, 256)
    quick = replace(NODES, gpu=replace(NODES.gpu, kernels=replace(NODES.gpu.kernels, host=1e-6)))
    usual, without = (step_time(small, there, Plan(micro_batch=1)) for there in (NODES, quick))
    assert usual.launch > 2 * without.launch and usual.compute == without.compute


PLANS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 4, 8]),
        "pp": st.sampled_from([1, 2, 4]),
        "cp": st.sampled_from([1, 2]),
        "dp": st.sampled_from([2, 4]),
        "ep": st.sampled_from([1, 2]),
        "micro_batch": st.sampled_from([1, 2, 4]),
        "accumulation": st.sampled_from([4, 8, 16]),
        "zero": st.sampled_from([0, 1, 2, 3]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "sequence_parallel": st.booleans(),
        "fused_attention": st.booleans(),
        "context": st.sampled_from(["ring", "all_to_all"]),
        "schedule": st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"]),
        "prefetch": st.sampled_from([0, 1, 3]),
    }
)


@settings(max_examples=25, deadline=None)
@given(st.lists(PLANS, min_size=2, max_size=6), st.sampled_from([GPT, MIXTRAL]))
def test_arrays_and_single_plans_agree_to_the_last_bit(plans, one):
    nodes = cluster("a100", nodes=32)
    many = step_time(one, nodes, Plan(**{name: np.array([p[name] for p in plans]) for name in plans[0]}))
    for place, plan in enumerate(plans):
        alone = step_time(one, nodes, Plan(**plan))
        assert alone.total == pytest.approx(sum(getattr(alone, name) for name in TERMS))
        assert alone.exposed <= alone.communication * (1 + 1e-12)
        for field in fields(StepTime):
            value = np.broadcast_to(getattr(many, field.name), len(plans))[place]
            assert value == getattr(alone, field.name), field.name


@settings(max_examples=25, deadline=None)
@given(PLANS)
def test_faster_parts_make_no_step_longer(plan):
    nodes = cluster("a100", nodes=32)
    quicker = replace(
        nodes,
        intra=replace(nodes.intra, bandwidth=2 * nodes.intra.bandwidth),
        inter=replace(nodes.inter, bandwidth=2 * nodes.inter.bandwidth),
    )
    base, better = (step_time(MIXTRAL, there, Plan(**plan)) for there in (nodes, quicker))
    assert better.total <= base.total * (1 + 1e-9)


def published_steps():
    """Steps of GPT on A100 with tensor parallel 8, of 22 to 1,008 billion parameters, and their plans."""
    stages = {"22B": (1, 1, 4), "175B": (8, 3, 1), "530B": (35, 3, 1), "1T": (64, 1, 1)}  # pp, v, micro-batch
    for row in published("korthikanti_2022_steps"):
        pp, v, micro_batch = stages[row["model"]]
        shape = (row[name] for name in ("layers", "hidden", "heads", "vocabulary", "sequence"))
        gpt = Transformer(row["model"], *shape, learned_positions=row["sequence"])
        plan = Plan(
            tp=8,
            pp=pp,
            v=v,
            micro_batch=micro_batch,
            global_batch=row["global_batch"],
            recompute=row["recompute"],
            sequence_parallel=bool(row["sequence_parallel"]),
            fused_attention=False,
        )
        yield row["seconds"], step_time(gpt, cluster("a100", nodes=row["gpus"] // 8), plan).total


def test_published_steps():
    """Nothing is fitted to them: kernels are those of single products, links those of sweeps."""
    seconds, predicted = np.array(list(published_steps())).T
    errors = np.abs(predicted / seconds - 1)
    assert np.median(errors) < 0.05 and errors.max() < 0.12
    assert (np.argsort(predicted) == np.argsort(seconds)).all()


def test_refusals():
    for given_ in ((GPT, NODES, "plan"), ("gpt", NODES, Plan()), (GPT, None, Plan())):
        with pytest.raises(InputRefused):
            step_time(*given_)
    with pytest.raises(InputRefused, match="bucket"):
        step_time(GPT, NODES, Plan(dp=32, global_batch=32), bucket=0)
    with pytest.raises(InputRefused, match="overlap"):
        step_time(GPT, NODES, Plan(), overlap="yes")
