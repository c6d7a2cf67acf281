"""Placement from numbers (2.4-c) and the price of crossing hosts (2.4-b, 2.4-e)."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.planner.compute import compute_time
from labkit.planner.placement import (
    crossing_cost,
    host_link,
    placement,
    rate_for_crossing_cost,
    step_on_side,
    tensor_layer,
    tensor_time,
)
from labkit.planner.traffic import Workload
from labkit.spec import Cluster, Gpu, Link

GUIDE = Workload(13e9, 32, 5120, 2048, micro_batch=4)
PLAN = Workload(13e9, 40, 5120, 2048, micro_batch=4, micro_batches=16)


def cluster(peak=312e12, inside=235e9, alpha_inside=5e-6, alpha_across=5e-6):
    """Nodes of eight with eight 25 GB/s ports, half of the peak reached."""
    gpu = Gpu("card", 80e9, {"bf16": peak}, 0.5)
    return Cluster("c", gpu, 2, 8, Link(alpha_inside, inside), Link(alpha_across, 25e9), 8)


def test_one_layer_on_both_sides_of_the_boundary():
    """2.4-b: four ring all_reduces of 80 MiB, inside at 235 GB/s and through one port of 25 GB/s."""
    inside, across = Link(0.0, 235e9), Link(0.0, 25e9)
    assert tensor_layer(GUIDE, 8, inside) == pytest.approx(4 * 2 * 7 / 8 * 80 * 2**20 / 235e9, rel=1e-12)
    assert tensor_layer(GUIDE, 16, across) == pytest.approx(4 * 2 * 15 / 16 * 80 * 2**20 / 25e9, rel=1e-12)


@pytest.mark.parametrize(("alpha_inside", "alpha_across"), [(5e-6, 5e-6), (4e-6, 7e-6)])
def test_a100_class_figures_of_2_4_e(alpha_inside, alpha_across):
    """Ports x rate: 1 x 12.5, 1 x 25, 1 x 50, 8 x 25 GB/s. Without latency the last two are 2.2 and 1.2."""
    ports, rate = np.array([1, 1, 1, 8]), np.array([12.5e9, 25e9, 50e9, 25e9])
    place = cluster(alpha_inside=alpha_inside, alpha_across=alpha_across)
    assert crossing_cost(GUIDE, place, ports, rate).round(1).tolist() == [6.3, 3.6, 2.3, 1.3]


def test_989_tflops_figures_of_2_4_e():
    """Ring plateau inside 367 GB/s; 1.5x with eight ports of 50 GB/s takes 4 us inside, 7 us across."""
    ports, rate = np.array([1, 8]), np.array([25e9, 50e9])
    card = cluster(989e12, 367e9, 4e-6, 7e-6)
    assert crossing_cost(GUIDE, card, ports, rate).round(1).tolist() == [8.3, 1.5]


def test_rate_at_which_crossing_costs_three_times():
    place = cluster()
    rate = rate_for_crossing_cost(GUIDE, place, np.array([3.0, 2.0]))
    assert rate[0] == pytest.approx(32.15e9, rel=1e-3)
    assert crossing_cost(GUIDE, place, 1, rate) == pytest.approx([3.0, 2.0], rel=1e-9)
    # No ports make it free: the latency of 30 steps and a ring no faster than inside remain.
    assert np.isnan(rate_for_crossing_cost(GUIDE, place, 1.0))


def test_more_ports_never_cost_more_and_a_host_is_never_faster_than_inside():
    place = cluster()
    costs = crossing_cost(GUIDE, place, np.arange(1, 33), 25e9)
    assert (np.diff(costs) <= 1e-12).all() and costs[-1] > 1
    assert host_link(place, 8, 100, 25e9).bandwidth == place.intra.bandwidth
    single = [crossing_cost(GUIDE, place, int(ports), 25e9) for ports in (1, 32)]
    assert single == [costs[0], costs[-1]] and isinstance(single[0], float)


def test_the_flat_ring_is_the_clusters_own_ring():
    """At no latency, rings through all ports of two hosts cost what one ring at ports x rate does."""
    place = cluster(alpha_inside=0.0, alpha_across=0.0)
    size = GUIDE.activation_bytes
    ours = collective_cost("all_reduce", "ring", size, 16, host_link(place)).seconds
    assert collective_cost("all_reduce", "ring", size, 16, place).seconds == pytest.approx(ours, rel=1e-9)


def test_placement_follows_from_numbers():
    tensor, data, pipeline = placement(PLAN, cluster())
    assert (tensor.count, data.count, pipeline.count) == (640, 33, 32)
    # compute of a step: 6 x 13e9 x 131072 tokens / 156 TFLOP/s / 32 ranks
    assert tensor.step == pytest.approx(6 * 13e9 * 131072 / 156e12 / 32, rel=1e-12)
    assert tensor.bandwidth_needed == pytest.approx(458.75e9, rel=1e-3)
    assert data.bandwidth_needed == pytest.approx(6.94e9, rel=1e-3)
    assert pipeline.bandwidth_needed == pytest.approx(13.1e9, rel=2e-3)
    assert tensor.latency_budget == pytest.approx(0.1 * tensor.step / 640, rel=1e-12)
    assert (data.placement, pipeline.placement) == ("across", "across")
    assert tensor.placement == "neither" and tensor.share_across > 1 > tensor.share_inside
    # at the 30 % which the guide allows tensor parallel, it may stay inside and nowhere else
    assert placement(PLAN, cluster(), budget=0.3)[0].placement == "inside"


def test_a_short_step_keeps_data_parallel_at_home():
    """With micro-batch 1 the same gradients have a quarter of the time: 11.6 % of a step, unhidden."""
    data = placement(replace(PLAN, micro_batch=1), cluster())[1]
    assert data.placement == "inside" and data.share_across == pytest.approx(0.116, abs=1e-3)


def test_a_group_that_fills_part_of_a_domain_has_part_of_its_ports():
    place = cluster()
    assert host_link(place, 4).bandwidth == 4 * 25e9
    with pytest.raises(InputRefused, match="domain of 8"):
        crossing_cost(GUIDE, place, degree=16)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: placement(PLAN, cluster(), tp=0), "tensor-parallel degree is 0"),
        (lambda: placement(PLAN, cluster(), pp=0), "pipeline-parallel degree is 0"),
        (lambda: placement(PLAN, cluster(), budget=0), "the budget, .* is 0"),
        (lambda: placement(PLAN, cluster(), bucket=0), "size of a bucket, in bytes, is 0"),
        (lambda: crossing_cost(GUIDE, cluster(), degree=0), "ranks of a host is 0"),
        (lambda: crossing_cost(GUIDE, cluster(), hosts=0), "number of hosts is 0"),
        (lambda: crossing_cost(GUIDE, cluster(), ports=0), "ports of a host is 0"),
        (lambda: compute_time(-1, cluster().gpu), "operations is -1; give a number from 0 up"),
        (lambda: compute_time(1, cluster().gpu, "fp4"), "use one of bf16"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InputRefused, match=words):
        call()


def test_at_the_needed_bandwidth_the_share_is_the_budget():
    for row in placement(PLAN, cluster()):
        free = replace(cluster(), intra=Link(0.0, row.bandwidth_needed))
        again = next(other for other in placement(PLAN, free) if other.strategy == row.strategy)
        assert again.share_inside == pytest.approx(0.10, rel=1e-9)


# ---- seconds by degree, and the step on both sides of the boundary


def test_tensor_time_by_hand():
    """13 B, 8192 tokens: 1.024 s of one card's compute; 32 x 4 ring all_reduces of 80 MiB."""
    one_port = replace(cluster(), nics_per_node=1)
    times = tensor_time(GUIDE, one_port, np.array([1, 8, 16]))
    one = 6 * 13e9 * 8192 / 156e12
    assert times.compute == pytest.approx(one / np.array([1, 8, 16]))
    assert times.latency == pytest.approx(128 * 5e-6 * np.array([0, 14, 30]))
    volume = 128 * 2 * 80 * 2**20 * np.array([0, 7 / 8, 15 / 16])
    assert times.bandwidth == pytest.approx(volume / [235e9, 235e9, 25e9])
    assert times.total == pytest.approx(times.compute + times.communication)


def test_tensor_time_counts_every_micro_batch():
    twice = replace(GUIDE, micro_batches=2)
    assert tensor_time(twice, cluster(), 8).total == pytest.approx(2 * tensor_time(GUIDE, cluster(), 8).total)


def test_smaller_micro_batches_leave_the_bytes_and_multiply_the_latency():
    """3.2-i at a fixed 64 samples."""
    micro = np.array([1, 2, 4, 8])
    times = tensor_time(replace(GUIDE, micro_batch=micro, micro_batches=64 / micro), cluster(), 8)
    assert times.bandwidth == pytest.approx(times.bandwidth[0])
    assert times.compute == pytest.approx(times.compute[0])
    assert times.latency == pytest.approx(times.latency[0] / micro)


def test_the_step_on_both_sides_by_hand():
    """TP 8 x DP 2 on two nodes of eight: the group that crosses has 1 of 8 members, or 4 of 8, in a node."""
    work, place = replace(GUIDE, micro_batches=8), cluster()
    compute, gradients = 8 * 6 * 13e9 * 8192 / 156e12 / 8, 13e9 * 2 / 8
    calls, payload, ring = 8 * 128, 80 * 2**20, 2 * 7 / 8
    right = step_on_side(work, place, 8, 2, ports=1, port_rate=25e9)
    assert right.compute == pytest.approx(compute)
    assert right.tensor == pytest.approx(calls * (14 * 5e-6 + ring * payload / 235e9))
    assert right.data == pytest.approx(2 * 5e-6 + gradients / (25e9 / 8))
    wrong = step_on_side(work, place, 8, 2, tensor_inside=False, ports=1, port_rate=25e9)
    assert wrong.compute == right.compute
    assert wrong.tensor == pytest.approx(calls * (14 * 5e-6 + ring * payload / 12.5e9))
    assert wrong.data == pytest.approx(2 * 5e-6 + gradients / 235e9)


def test_inside_one_host_the_order_does_not_matter():
    place = cluster()
    work = replace(GUIDE, micro_batches=8)
    assert step_on_side(work, place, 4, 2) == step_on_side(work, place, 4, 2, tensor_inside=False)


def test_steps_that_do_not_fill_hosts_are_refused():
    with pytest.raises(InputRefused, match="8 x 3 ranks do not fill domains of 72"):
        step_on_side(GUIDE, replace(cluster(), domain=72), 8, 3)
