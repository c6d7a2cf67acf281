"""The view of a log as a topology: small logs of our own, and the shared ones with the facts they show."""

from pathlib import Path

import pytest

from labkit.errors import InputRefused
from labkit.evidence.hang.topology import read_topology
from tests.evidence.hang.test_text import init, nccl

LOGS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "nccl_debug"
shared = pytest.mark.skipif(not LOGS.is_dir(), reason="the shared logs do not stand beside this one")

MACHINE = (
    "=== System : maxWidth 12.0 totalWidth 24.0 ===",
    "CPU/0 (1/1/2)",
    "+ PCI[12.0] - PCI/13000",
    "              + PCI[12.0] - GPU/15000 (0)",
    "              + PCI[12.0] - NIC/16000",
    "                            + NET[12.5] - NET/0 (0/1/12.5)",
    "+ PCI[12.0] - PCI/23000",
    "              + PCI[12.0] - GPU/25000 (1)",
    "CPU/1 (1/1/2)",
    "+ PCI[12.0] - NIC/86000",
    "              + NET[12.5] - NET/1 (0/1/12.5)",
)


def kinds(topology):
    return [finding.kind for finding in topology.findings]


def machine(near="PHB", far="PHB"):
    paths = (
        f"GPU/15000 :GPU/15000 (0/5000.0/LOC) CPU/0 (2/12.0/PHB) NET/0 (3/12.0/{near}) NET/1 (5/9.0/SYS) ",
        f"GPU/25000 :GPU/15000 (4/12.0/PHB) NET/0 (4/12.0/{far}) NET/1 (5/9.0/SYS) ",
    )
    return "".join(nccl(line) for line in (*MACHINE, *paths))


def test_phb_on_one_switch_means_no_gpudirect_rdma():
    """Planner case E9 (NVIDIA/nccl issue 489): GPU and card on one PCIe switch, ACS on, path by the CPU."""
    topology = read_topology(machine())
    assert kinds(topology) == ["gdr_not_active"]
    message = topology.findings[0].message
    assert all(word in message for word in ("GPU/15000", "NET/0", "PCI/13000", "GPUDirect RDMA", "ACS"))


def test_phb_from_another_switch_is_its_place():
    topology = read_topology(machine(near="PIX"))
    assert kinds(topology) == []
    assert topology.distances[("n1", "GPU/15000", "NET/0")] == "PIX"
    assert topology.distances[("n1", "GPU/25000", "NET/0")] == "PHB"
    assert topology.distances[("n1", "GPU/15000", "NET/1")] == "SYS"


@pytest.mark.parametrize("place", ["GPU 0 / HCA 0", "GPU ca000 / HCA 1"])
def test_gpudirect_rdma_disabled_by_distance(place):
    text = nccl(f"GPU Direct RDMA Disabled for {place} (distance 7 > 4)")
    assert kinds(read_topology(text)) == ["gdr_disabled"]
    near = text + nccl(f"GPU Direct RDMA Enabled for {place[:-1]}9 (distance 3 <= 4), read 1")
    assert kinds(read_topology(near)) == []


def test_old_distances():
    topology = read_topology(nccl("CUDA Dev 0[3], IB NIC distance :  PIX NODE"))
    assert topology.distances == {("n1", "GPU 0", "IB 0"): "PIX", ("n1", "GPU 0", "IB 1"): "NODE"}


def test_rings_trees_and_channels_of_each_release():
    new = read_topology(
        nccl("Channel 00/02 :    0   1") + nccl("Trees [0] 1/2/-1->0->-1 [1] -1/-1/-1->0->1")
        + nccl("24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 2 per peer")
    )  # fmt: skip
    assert (new.rings, new.channels) == ({0: (0, 1)}, 24)
    assert new.trees == {0: {0: (None, (1, 2))}, 1: {0: (1, ())}}
    middle = read_topology(nccl("Trees [0] 13/8/-1->12->9|9->12->13/8/-1"))
    assert middle.trees == {0: {12: (9, (13, 8))}}
    old = read_topology(nccl("Channel 01 :    0   1") + nccl("Trees [0] 2->0->3/-1/-1"))
    assert old.channels == 2
    assert old.trees == {0: {0: (2, (3,))}}


@pytest.mark.parametrize(
    ("via", "name", "direct"),
    [
        ("P2P/CUMEM/read", "P2P/CUMEM", None),
        ("P2P/IPC", "P2P/IPC", None),
        ("P2P/direct pointer", "P2P/direct pointer", None),
        ("SHM/direct/direct", "SHM", None),
        ("NET/IB/4(3)/GDRDMA", "NET/IB", True),
        ("NET/IBext/0", "NET/IBext", False),
        ("NET/Socket/0", "NET/Socket", False),
        ("NET/AWS Libfabric/0/GDRDMA/Shared", "NET/AWS Libfabric", True),
    ],
)
def test_transports(via, name, direct):
    topology = read_topology(nccl(f"Channel 00/0 : 0[0] -> 1[1] [send] via {via}"))
    assert (topology.transports, topology.direct) == ({name: 1}, direct)
    assert ("host_memory" in kinds(topology)) == (name == "SHM")
    assert "unknown" not in repr(topology)


def test_algorithms_by_name_and_by_number():
    topology = read_topology(
        nccl("AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15} comm 0x1") * 2
        + nccl("AllReduce: 1024 Bytes -> Algo 0 proto 0 time 23.4")
    )
    assert topology.algorithms == (
        ("AllReduce", 1024, "TREE", "LL", None, 1),
        ("AllReduce", 1048576, "RING", "SIMPLE", 16, 2),
    )
    assert "AllReduce of 1 MiB: RING with SIMPLE on 16 channels, 2 times" in repr(topology)


def test_findings_on_the_network():
    card = nccl("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>")
    assert kinds(read_topology(card + nccl("Using network IB"))) == []
    assert kinds(read_topology(card + nccl("Using network Socket"))) == ["socket_beside_ib"]
    for name in ("docker0", "lo", "virbr0"):
        virtual = nccl(f"Bootstrap : Using {name}:172.17.0.1<0>")
        assert kinds(read_topology(virtual)) == ["virtual_interface"]
    hosts = [nccl(f"Bootstrap : Using {name}:{at}<0>", host=host) for name, at, host in (
        ("eth0", "10.0.0.1", "n1"), ("eth1", "10.0.0.2", "n2"), ("eth0", "10.9.0.3", "n3"))]  # fmt: skip
    assert kinds(read_topology(hosts[0] + hosts[1])) == ["interfaces_differ"]
    assert kinds(read_topology(hosts[0] + hosts[2])) == ["subnets_differ"]
    assert kinds(read_topology(hosts[0])) == []
    versions = nccl("NCCL version 2.26.2+cuda12.2") + nccl("NCCL version 2.27.3+cuda12.2", host="n2")
    assert kinds(read_topology(versions)) == ["versions_differ"]


def test_several_files_are_one_job(tmp_path):
    for rank in range(2):
        (tmp_path / f"{rank}.log").write_text(
            init(rank, host=f"h{rank}") + nccl("NCCL version 2.26.2+cuda12")
        )
    topology = read_topology([tmp_path / "0.log", tmp_path / "1.log"])
    assert topology.hosts == {"h0": (0,), "h1": (1,)}
    assert (topology.n_ranks, topology.version) == (2, "NCCL 2.26.2+cuda12")


def test_a_log_without_any_of_it_is_refused():
    with pytest.raises(InputRefused, match="NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING"):
        read_topology("step 1 loss 2.5\n")


@shared
def test_64_ranks_of_which_the_rings_show_20():
    topology = read_topology(LOGS / "nccl_2_07_8_init_64gpu_16nodes_interleaved.txt")
    assert (topology.version, topology.n_ranks, topology.channels) == ("NCCL 2.7.8+cuda10.2", 64, 4)
    assert len(topology.hosts) == 16 and {len(ranks) for ranks in topology.hosts.values()} == {4}
    assert topology.rings_cut and "cut by NCCL after 20 ranks" in repr(topology)
    assert topology.networks == ("IB",) and topology.findings == ()


@shared
def test_two_hosts_of_h100_with_sharp():
    topology = read_topology(LOGS / "nccl_2_19_3_init_ib_sharp_nvls.txt")
    assert topology.hosts == {"node01": tuple(range(8)), "node02": tuple(range(8, 16))}
    assert (topology.channels, len(topology.rings), topology.rings_cut) == (16, 16, False)
    assert (topology.networks, topology.direct) == (("IBext",), True)
    assert topology.nvls and topology.sharp and topology.findings == ()
    assert topology.transports == {"NET/IBext": 4, "P2P/CUMEM": 14}


@shared
def test_plugins_that_differ_between_hosts():
    topology = read_topology(LOGS / "nccl_2_26_2_srun_prefix_mixed_with_training.txt")
    assert topology.version == "NCCL 2.26.2+cuda12.2"
    assert kinds(topology) == ["plugins_differ"]
    assert "1.13.2-aws on node02" in topology.findings[0].message
    assert kinds(read_topology(LOGS / "nccl_net_plugin_not_found.txt")) == ["network_not_found"] * 2


@shared
@pytest.mark.parametrize(
    ("name", "network", "version"),
    [
        ("nccl_2_10_3_socket_four_ranks_one_node", "Socket", "NCCL 2.10.3+cuda11.3"),
        ("nccl_2_18_5_roce_h800", "IB", "NCCL 2.18.5+cuda12.0"),
    ],
)
def test_networks_of_the_other_logs(name, network, version):
    topology = read_topology(LOGS / f"{name}.txt")
    assert (topology.networks, topology.version, topology.findings) == ((network,), version, ())
