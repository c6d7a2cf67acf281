"""Public reports of scaling and bandwidth, with the answers worked out beside them (cases E1 to E15)."""

from dataclasses import replace

import numpy as np
import pytest
from pytest import approx

from labkit.collectives import bandwidth_share, busbw, collective_cost, node_factor
from labkit.evidence.health import UNHEALTHY, health
from labkit.evidence.limits import scaling_efficiency
from labkit.evidence.measured import Measured, Throughput
from labkit.evidence.pairs import slow_pairs
from labkit.presets import cluster
from labkit.spec import Link, StepTime
from labkit.units import GB, MiB

ONE_NODE = Throughput(8 * 30, 8, "one node of 8")


def test_e1_negative_scaling():
    """mlfoundations/open_clip issue 466: 30, 10 and 5 samples/s of a GPU on 1, 2 and 3 nodes of 8."""
    nodes, per_gpu = np.array([1, 2, 3]), np.array([30, 10, 5])
    totals = 8 * nodes * per_gpu
    assert totals.tolist() == [240, 160, 120]
    assert scaling_efficiency(totals, 8 * nodes, 240, 8) == approx([1, 1 / 3, 1 / 6])
    for total, gpus in ((160, 16), (120, 24)):
        found = health(Measured(throughput=Throughput(total, gpus), base=ONE_NODE))[0]
        assert found.verdict == UNHEALTHY
        assert found.look_at.startswith("the network, before anything else")
        assert f"{gpus} GPUs get less done together than 8" in found.look_at
    assert [
        f"{100 * health(Measured(throughput=Throughput(t, g), base=ONE_NODE))[0].value:.0f}"
        for t, g in ((160, 16), (120, 24))
    ] == ["33", "17"]


# facebookresearch/fairseq issue 789: 38,000 words/s on one machine of 4 GPUs, 10,000 on two, over Ethernet;
# bucket-cap-mb up to 150 MB and more made no difference.
ETHERNET = Link(50e-6, 0.117 * GB)  # gigabit, as TCP carries it; 50 us a message
# A GPU does 1/7.6 of the work per second, so its step is 7.6 times as long: 6.6 s more for each of compute.
SLOWED = StepTime(compute=1.0, dp=6.6, communication=6.6)


def test_e3_efficiency():
    found = health(Measured(throughput=Throughput(10e3, 8), base=Throughput(38e3, 4, "one machine")))[0]
    assert found.value == approx(0.1316, abs=1e-4) and "the network" in found.look_at


@pytest.mark.parametrize("bandwidth", [0.117 * GB, 1.17 * GB])  # gigabit, ten gigabit
def test_e3_no_bucket_can_help(bandwidth):
    """Whatever the bucket above the default, the bandwidth sets the pace: at most a few percent are left."""
    link = replace(ETHERNET, bandwidth=bandwidth)
    share = bandwidth_share(np.array([25, 150]) * MiB, 8, link)
    assert np.all(share > 0.98) and 1 / share[0] < 1.02
    found = health(Measured(step=SLOWED, bucket_share=float(share[0]))).of("data_parallel_exposed")
    assert found.verdict == UNHEALTHY and "bytes and bandwidth, not the buckets" in found.look_at


def test_e3_small_buckets_would_have_been_another_matter():
    small = bandwidth_share(64 * 1024, 8, ETHERNET)
    found = health(Measured(step=SLOWED, bucket_share=small))
    assert small < 0.6 and found.of("data_parallel_exposed").look_at.startswith("the size of the buckets")


def nodes_of(gpus, nics, rate=24 * GB, nodes=2):
    """Nodes of H100 with ports of this rate."""
    link = Link(5e-6, rate)
    return replace(cluster("h100", nodes), gpus_per_node=gpus, domain=gpus, nics_per_node=nics, inter=link)


def ring_busbw(machine, size=16 * GB):
    n = machine.n_gpus
    seconds = collective_cost("all_reduce", "ring", size, n, machine).seconds
    return busbw("all_reduce", n, size / seconds)


def test_e11_four_ports_of_24_make_a_busbw_of_96_with_four_or_eight_gpus_a_node():
    """NVIDIA/nccl-tests issue 252: 95.3 GB/s over 2 x 4 H100 with 4 ports of about 24 GB/s each is good."""
    four, eight = nodes_of(4, 4), nodes_of(8, 4)
    assert ring_busbw(four) == approx(4 * 24 * GB, rel=2e-3)
    assert ring_busbw(eight) == approx(4 * 24 * GB, rel=2e-3)
    assert ring_busbw(nodes_of(8, 8)) == approx(8 * 24 * GB, rel=2e-3)
    assert 0.99 < 95.3 * GB / ring_busbw(four) < 1
    # The factor from algbw to the rate of a node's ports is busbw's own, whatever the GPUs of a node.
    for gpus in (4, 8):
        assert busbw("all_reduce", 2 * gpus, 1.0) == node_factor("all_reduce", 2 * gpus, gpus)


def test_e13_two_groups_of_nodes_are_told_apart_by_pairs():
    """NVIDIA/nccl-tests issue 106: good pairs reach 80 GB/s and bad ones 40, with the same hardware list."""
    nodes, bad = [f"n{i}" for i in range(6)], {"n2", "n3"}
    measured = {}
    while following := slow_pairs(nodes, measured).next_pairs:
        measured |= {pair: 40 * GB if set(pair) & bad else 80 * GB for pair in following}
    report = slow_pairs(nodes, measured)
    assert set(report.slow_nodes) == bad and not report.slow_links
    assert len(measured) < 15  # of all pairs


def test_e15_busbw_of_all_to_all_is_no_rate_of_a_port():
    """NVIDIA/nccl-tests issue 181: 3.92 GB/s printed over 2 x 8; half of each rank's data leaves its node."""
    per_node = node_factor("all_to_all", 16, 8)
    assert per_node == 8 * 1 / 2
    algbw = 3.92 * GB / (15 / 16)
    assert per_node * algbw == approx(16.7 * GB, rel=2e-3)
    # As with any two nodes a GPU's share of the ports is about half of busbw, and busbw itself only for many.
    rate = node_factor("all_to_all", 16, 8) / 8
    assert busbw("all_to_all", 16, 1.0) / rate == approx(15 / 8)
    many = busbw("all_to_all", 8192, 1.0) / (node_factor("all_to_all", 8192, 8) / 8)
    assert many == approx(1, rel=1e-3)


def test_e15_the_model_carries_these_bytes_through_the_ports():
    machine, size = nodes_of(8, 8), 16 * GB
    seconds = collective_cost("all_to_all", "pairwise", size, 16, machine).seconds
    # The exchange inside the node, 7 of 15 rounds over links 15 times as fast, takes the rest.
    assert 0.93 < node_factor("all_to_all", 16, 8) * size / seconds / (8 * 24 * GB) < 1
