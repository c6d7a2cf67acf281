"""Clusters that cannot be are refused; shares of ports are sums by hand."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.presets import cluster
from labkit.spec import Cluster, Gpu, Link
from labkit.spec.hardware import one_direction

GPU = Gpu("any", 80e9, {"bf16": 312e12}, 0.5)
LINKS = (Link(1e-6, 235e9), Link(5e-6, 25e9))


def test_node_bandwidth_and_gpus_are_products():
    four = Cluster("four", GPU, 4, 8, *LINKS, nics_per_node=8)
    assert (four.n_gpus, four.node_bandwidth, four.domain) == (32, 200e9, 8)


@pytest.mark.parametrize(("members", "ports"), [(1, 1.0), (2, 2.0), (8, 8.0)])
def test_a_group_gets_its_share_of_the_ports(members, ports):
    group = Cluster("four", GPU, 4, 8, *LINKS, nics_per_node=8).group(members)
    assert (group.nics_per_node, group.gpus_per_node, group.nodes) == (ports, members, 4)


def test_of_many_groups_each_gets_its_share():
    four, members = Cluster("four", GPU, np.array([4, 8, 8]), 8, *LINKS, nics_per_node=8), np.array([1, 2, 8])
    many = four.group(members)
    assert many.nics_per_node.tolist() == [1, 2, 8] and many.domain.tolist() == [1, 2, 8]
    assert many.nodes.tolist() == [4, 8, 8]
    with pytest.raises(InputRefused, match="domain of 8 GPUs"):
        four.group(np.array([1, 9]))


def test_a_group_in_a_rack_gets_its_share_of_the_racks_ports():
    rack = cluster("gb200-nvl72", nodes=36)
    assert rack.group(8).nics_per_node == 8  # 8 of 72 GPUs, 72 ports in the rack
    assert rack.group(8).nodes == 2


@pytest.mark.parametrize("members", [0, 9])
def test_a_group_larger_than_the_domain_is_refused(members):
    with pytest.raises(InputRefused, match="domain of 8 GPUs"):
        Cluster("one", GPU, 1, 8, *LINKS, nics_per_node=8).group(members)


@pytest.mark.parametrize(
    ("counts", "says"),
    [((0, 8, 8), "nodes"), ((2.5, 8, 8), "nodes"), ((1, 0, 8), "gpus_per_node"), ((1, 8, 12), "multiple")],
)
def test_clusters_that_cannot_be_are_refused(counts, says):
    nodes, gpus, domain = counts
    with pytest.raises(InputRefused, match=says):
        Cluster("odd", GPU, nodes, gpus, *LINKS, nics_per_node=1, domain=domain)


WRONG = [
    "8",
    "",
    None,
    [8],
    (),
    {},
    True,
    0,
    -1,
    1.5,
    float("nan"),
    float("inf"),
    10**30,
    1j,
    np.array(["8"]),
]


@pytest.mark.parametrize("value", WRONG)
def test_wrong_kinds_of_numbers_are_refused_in_one_sentence(value):
    good = Cluster("four", GPU, 4, 8, *LINKS, nics_per_node=8)
    for name in ("nodes", "gpus_per_node"):
        with pytest.raises(InputRefused, match=f"{name} of a cluster is .*; give a whole number"):
            replace(good, **{name: value})
    with pytest.raises(InputRefused, match=r"members_per_node of a group .* from 1 to 8"):
        good.group(value)


@pytest.mark.parametrize(
    "value", ["8", None, [8], {}, True, 0, -1, float("nan"), float("inf"), np.array(["8"])]
)
def test_ports_that_cannot_be_are_refused(value):
    with pytest.raises(InputRefused, match=r"nics_per_node of a cluster is .*; give a number.* above 0"):
        Cluster("four", GPU, 4, 8, *LINKS, nics_per_node=value)


@pytest.mark.parametrize("value", ["8", None, [8], -8, 1.5, float("nan")])
def test_a_domain_that_cannot_be_is_refused(value):
    with pytest.raises(InputRefused, match=r"domain of a cluster is .* from 0 up"):
        Cluster("four", GPU, 4, 8, *LINKS, nics_per_node=8, domain=value)


@pytest.mark.parametrize("value", ["h100", None, 8, [LINKS[0]]])
def test_parts_of_another_kind_are_refused(value):
    good = Cluster("four", GPU, 4, 8, *LINKS, nics_per_node=8)
    for name, kind in (("gpu", "Gpu"), ("intra", "Link"), ("inter", "Link")):
        with pytest.raises(InputRefused, match=f"{name} of a cluster is .*; give a {kind}"):
            replace(good, **{name: value})


def test_clusters_of_arrays_and_numpy_numbers():
    nodes = np.array([1, 2, 4])
    many = Cluster("several", GPU, nodes, np.int64(8), *LINKS, nics_per_node=np.array([1.0, 8.0, 8.0]))
    assert many.n_gpus.tolist() == [8, 16, 32] and many.domain == 8
    with pytest.raises(InputRefused, match="nodes of a cluster is an array of 3 values"):
        replace(many, nodes=nodes - 1)


@pytest.mark.parametrize("value", ["8", "a\nb", [8], {}, True, -1, float("nan"), 1j, np.array(["8"])])
def test_figures_that_cannot_be_are_refused(value):
    for field in ("alpha", "bandwidth", "rated"):
        with pytest.raises(InputRefused, match=r"of a link, in .*, is "):
            Link(**{"alpha": 1e-6, "bandwidth": 1e9, field: value})
    for field in ("memory", "memory_bandwidth", "reached", "peak", "reserve"):
        given = {"name": "g", "memory": 80e9, "peak": {"bf16": 3e14}, "reached": 0.5}
        with pytest.raises(InputRefused, match=r"of a GPU.* is "):
            Gpu(**{**given, field: value if field != "peak" or value != {} else {"bf16": 0}})


def test_usable_is_the_memory_less_the_reserve():
    assert GPU.usable == GPU.memory == 80e9
    several = Gpu("two", np.array([40e9, 80e9]), {"bf16": 3e14}, 0.5, reserve=2e9)
    assert several.usable.tolist() == [38e9, 78e9]


def test_refusals_in_words():
    for arguments, says in (
        ((-1e-6, 1e9), "alpha of a link, in seconds, is -1e-06; give a number from 0 up"),
        ((5e-6, 0.0), "bandwidth of a link, in bytes/s, is 0.0; give a number above 0"),
    ):
        with pytest.raises(InputRefused, match=says):
            Link(*arguments)
    with pytest.raises(InputRefused, match="give a share above 0 up to 1"):
        Gpu("g", 80e9, {"bf16": 3e14}, 50)
    with pytest.raises(InputRefused, match=r"the bf16 peak of a GPU, in FLOP/s, is '312'"):
        Gpu("g", 80e9, {"bf16": "312"}, 0.5)
    with pytest.raises(InputRefused, match="the reserve of a GPU leaves nothing of its memory"):
        Gpu("g", 80e9, {"bf16": 3e14}, 0.5, reserve=80e9)
    with pytest.raises(InputRefused, match="at most 1,000,000,000 GPUs"):
        Cluster("all", GPU, 10**9, 8, *LINKS, nics_per_node=8)
    with pytest.raises(InputRefused, match=r"must broadcast, not nodes \(2,\), nics_per_node \(3,\)"):
        Cluster("two", GPU, np.array([1, 2]), 8, *LINKS, nics_per_node=np.ones(3))
    with pytest.raises(InputRefused, match="a domain of 12 GPUs is not a multiple of the 8 of a node"):
        Cluster("two", GPU, 2, 8, *LINKS, nics_per_node=8, domain=np.array([8, 12]))
    with pytest.raises(InputRefused, match="bits is 8; use False or True"):
        one_direction(400e9, bits=8)
