"""Stage 3 on a plan: times of a layer by hand, the break-even of network and batch, latency, hybrids."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.sharding import (
    break_even,
    hybrid,
    latency_passes,
    sharded_layer,
    stage_three,
)
from labkit.planner.states import FP32_GRADIENTS
from labkit.planner.traffic import Workload, sharded
from labkit.presets import cluster, model
from labkit.spec import Cluster, Gpu, Link, Plan, Transformer

GPT = Transformer("gpt", 40, 5120, 40, 50257, 2048)
ALPHA, PORT = 5e-6, 25e9
NODES = Cluster("8 x 8", Gpu("g", 80e9, {"bf16": 312e12}, 0.5), 8, 8, Link(1e-6, 1e15), Link(ALPHA, PORT), 8)
TWO = replace(NODES.gpu, reached=np.array([0.4, 0.5]))
MOE = model("mixtral-8x7b")
LAYER = 12 * 5120**2 + 13 * 5120


def test_a_layer_by_hand():
    """Per token 24 h^2 for the matrices and 4 s h for the scores; eight rings through eight ports."""
    one = sharded_layer(GPT, NODES, Plan(dp=64, micro_batch=4))
    flops = 4 * 2048 * (24 * 5120**2 + 4 * 2048 * 5120)
    assert one.forward == pytest.approx(flops / 156e12) and one.backward == pytest.approx(2 * one.forward)
    assert one.weights == one.gradients == 2 * LAYER
    assert one.gather == pytest.approx(63 * (ALPHA + 2 * LAYER / 64 / (8 * PORT)))
    assert one.scatter == one.gather and one.latency == pytest.approx(63 * ALPHA)
    assert one.bandwidth == pytest.approx(8 * PORT) and one.ranks == 64


def test_what_changes_a_layer():
    plain, plan = sharded_layer(GPT, NODES, Plan(dp=64)), Plan(dp=64)
    again = sharded_layer(GPT, NODES, plan.changed(recompute="full"))
    assert again.backward == pytest.approx(3 * plain.forward) and again.gather == plain.gather
    fp32 = sharded_layer(GPT, NODES, plan, FP32_GRADIENTS)
    assert fp32.gradients == 2 * plain.gradients and fp32.gather == plain.gather < fp32.scatter
    # Eight groups of eight ranks, one in each host, share its ports; each moves an eighth of a layer.
    tensor = sharded_layer(GPT, NODES, Plan(tp=8, dp=8, sequence_parallel=True))
    assert tensor.bandwidth == pytest.approx(PORT)
    assert tensor.forward == pytest.approx(plain.forward / 8)
    assert tensor.weights == pytest.approx(plain.weights / 8, rel=1e-3)
    alone = sharded_layer(GPT, NODES, Plan())
    assert alone.gather == alone.scatter == 0 and alone.bandwidth == np.inf


def test_hybrid_shards_stay_inside():
    one = sharded_layer(GPT, NODES, Plan(dp=64, shard_ranks=8))
    assert one.ranks == 8 and one.gather == pytest.approx(7 * (1e-6 + 2 * LAYER / 8 / 1e15))


@pytest.mark.parametrize("recipe", [None, FP32_GRADIENTS])
@pytest.mark.parametrize("name", ["a100", "cloud-25gbe", "h100"])
def test_at_the_break_even_bandwidth_the_timeline_hides_all_but_its_ends(name, recipe):
    more = {} if recipe is None else {"recipe": recipe}
    # Fast links inside, so that the ports decide.
    nodes = replace(cluster(name, 8), intra=Link(1e-6, 1e15))
    plan = Plan(dp=64, micro_batch=2)
    found = break_even(GPT, nodes, plan, **more)
    for times, hides in ((1.001, True), (0.9, False)):
        rate = nodes.inter.bandwidth * times * found.needs / found.has
        faster = replace(nodes, inter=replace(nodes.inter, bandwidth=rate))
        one, micro = sharded_layer(GPT, faster, plan, **more), stage_three(GPT, faster, plan, **more)
        assert (micro.exposed <= (one.gather + one.scatter) * 1.0001) == hides
        assert break_even(GPT, faster, plan, **more).enough == hides


def test_from_how_many_tokens_on_a_network_is_enough():
    nodes, plan = cluster("cloud-25gbe", 8), Plan(dp=64, micro_batch=1)
    found = break_even(GPT, nodes, plan)
    assert found.tokens == 2048 and not found.enough
    batches = found.enough_tokens / 2048
    one = sharded_layer(GPT, nodes, plan)
    assert max(one.gather / one.forward, 2 * one.gather / one.backward) == pytest.approx(batches)
    enough = plan.changed(micro_batch=int(np.ceil(batches)), accumulation=1)
    assert break_even(GPT, nodes, enough).enough
    assert stage_three(GPT, nodes, enough).coverage == pytest.approx(1 - 2 / 120)


def test_the_sum_of_the_claims_list():
    """One 13B layer, b 4, s 2048, N 64, one 50 GB/s link: gather 12.4 ms; forward 33 ms and the scores."""
    flat = replace(NODES, intra=Link(0, 50e9), inter=Link(0, 50e9), nics_per_node=1)
    one = sharded_layer(GPT, flat, Plan(dp=64, micro_batch=4))
    assert one.gather == pytest.approx(12.4e-3, rel=2e-3)
    assert one.forward == pytest.approx(33e-3 * (1 + 2048 / (6 * 5120)), rel=2e-3)


def test_many_plans_at_once_are_each_alone():
    nodes, ranks = cluster("a100", 128), np.array([2, 8, 64, 1024])
    many, sets = break_even(GPT, nodes, Plan(dp=ranks)), stage_three(GPT, nodes, Plan(dp=ranks))
    for i, n in enumerate(ranks.tolist()):
        alone = break_even(GPT, nodes, Plan(dp=n))
        assert many.needs[i] == pytest.approx(alone.needs) and many.has[i] == pytest.approx(alone.has)
        assert many.enough_tokens[i] == pytest.approx(alone.enough_tokens)
        assert sets.exposed[i] == pytest.approx(stage_three(GPT, nodes, Plan(dp=n)).exposed)
    assert np.all(np.diff(many.needs) > 0)  # more ranks: more of the layer and more latency


def test_depth_of_the_plan_counts():
    nodes = cluster("a100", 8)
    none, one, deep = (stage_three(GPT, nodes, Plan(dp=64, prefetch=d)) for d in (0, 1, 3))
    assert none.coverage < 0.4 < 0.9 < one.coverage and deep.exposed == pytest.approx(one.exposed)


def test_latency_passes_the_bandwidth_term():
    """At N = W/(alpha B) a gather is half latency: (N-1) alpha = (N-1)/N W/B."""
    link = Link(5e-6, 50e9)
    n = latency_passes(0.63e9, link)
    assert n == pytest.approx(2520) and n * link.alpha == pytest.approx(0.63e9 / link.bandwidth)
    assert latency_passes(1.0, Link(0.0, 1.0)) == latency_passes(1e9, Link(0, np.inf)) == np.inf
    assert latency_passes(1e9, Link(1e-6, np.inf)) == 0


def test_experts_are_one_group_of_shards_where_they_sit_on_the_same_ranks():
    """tp 8 and ep 8 with whole experts: the ranks of one data-parallel group hold the same experts."""
    plan = Plan(tp=8, ep=8, etp=1, dp=8, sequence_parallel=True)
    one, parts = sharded_layer(MOE, NODES, plan), MOE.layer_parts()
    # An eighth of attention and of the experts; norms and the router stand whole.
    held = (parts["attention"] + parts["mlp"]) / 8 + parts["norms"] + parts["router"]
    assert one.ranks == 8 and one.weights == pytest.approx(2 * held)


def test_hybrid_by_hand():
    """Shards of 8: stage 3 inside; between 8 replicas one all_reduce of an eighth of the gradients a step."""
    work = Workload(13e9, 40, 5120, 2048, micro_batches=16)
    *inside, between = hybrid(work, 8, 8)
    assert [row.bytes_per_rank for row in inside] == [row.bytes_per_rank for row in sharded(work, 8, 3)]
    assert all(row.link == "inside" for row in inside)
    assert between.bytes_per_rank == pytest.approx(2 * 26e9 / 8 * 7 / 8)
    assert (between.count, between.link, between.group, between.members) == (1, "across", 8, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: sharded_layer(MOE, NODES, Plan(dp=8, ep=8)),
            "tp 1, ep 8 and etp 1 .* use ep = 1 and etp = tp",
        ),
        (lambda: sharded_layer(MOE, NODES, Plan(tp=8, dp=8, etp=1)), "use ep = 1 and etp = tp"),
        (lambda: break_even(MOE, NODES, Plan(tp=8, dp=8, etp=1)), "use ep = 1 and etp = tp"),
        (
            lambda: sharded_layer(MOE, NODES, Plan(tp=8, ep=8, etp=1, dp=8, order="dp-tp-cp-pp")),
            "over different ranks",
        ),
        (
            lambda: break_even(GPT, replace(NODES, gpu=TWO), Plan(dp=np.array([8, 16, 64]))),
            r"not cluster.gpu.reached \(2,\), plan.dp \(3,\)",
        ),
        (lambda: latency_passes(np.ones(2), Link(np.ones(3), 1)), "arrays of a gather must broadcast"),
        (lambda: hybrid(Workload(1e9, 2, 8, 8), np.array([2, 4]), np.array([1, 2, 3])), "must broadcast"),
        (lambda: stage_three(GPT, NODES, Plan(dp=8, prefetch=np.array([0, 1]))), "one depth of prefetch"),
        (lambda: stage_three(GPT, NODES, Plan(dp=8, pp=np.array([1, 2]))), "one number of layers"),
        (lambda: hybrid(Workload(1e9, 2, 8, 8), 0, 8), "set of shards is 0"),
        (lambda: latency_passes(0, Link(1, 1)), "layer's weights is 0"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InputRefused, match=words):
        call()
