"""The start of the bench without its processes: interfaces, what NCCL chose, contexts, the topology."""

import ctypes
import socket

import pytest

from labkit.errors import InputRefused
from labkit.evidence import bench_device, bench_network
from labkit.evidence.bench_group import Place, contexts_per_card, rank_in_job, topology
from labkit.evidence.mapping import read_mapping
from labkit.presets import data_path
from tests.evidence.torch_jobs import LOOPBACK, needs_torch

# Lines as NCCL 2.18 to 2.28 writes them with NCCL_DEBUG=INFO.
IB = "node01:71:90 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>\n"
SOCKET = "node01:71:90 [0] NCCL INFO NET/Socket : Using [0]eth0:10.9.0.1<0>\n"
NETWORK = "node01:71:90 [0] NCCL INFO Using network Socket\n"


@pytest.fixture
def bare(monkeypatch):
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name in ("NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "")
    return monkeypatch


def test_naming_an_interface_is_exact_and_chooses_no_rdma_device(bare):
    bench_network.name_interface(
        "nccl", "eth1"
    )  # for NCCL a name alone is a prefix, and would take eth10 too
    assert bench_network.told("nccl") == "NCCL_SOCKET_IFNAME =eth1, NCCL_IB_HCA not set"
    bench_network.name_interface("gloo", "eth1")
    assert bench_network.told("gloo") == "GLOO_SOCKET_IFNAME eth1"


def test_without_a_name_the_readers_own_setting_stays(bare):
    bare.setenv("GLOO_SOCKET_IFNAME", "ib0")
    bench_network.name_interface("gloo", None)
    assert bench_network.told("gloo") == "GLOO_SOCKET_IFNAME ib0"


def test_an_interface_that_is_not_there_is_refused_with_those_that_are():
    bench_network.check_interface(LOOPBACK)
    bench_network.check_interface(None)
    with pytest.raises(InputRefused, match=rf"--interface 'eth99': \S+ has .*{LOOPBACK}.*; name one of them"):
        bench_network.check_interface("eth99")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            IB + NETWORK.replace("Socket", "IB"),
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>; Using network IB",
        ),
        (SOCKET + NETWORK + SOCKET, "NET/Socket : Using [0]eth0:10.9.0.1<0>; Using network Socket"),
        ("node01:71:90 [0] NCCL INFO comm 0x5 rank 0 nranks 2\n", "NCCL does not say"),
        ("", "NCCL does not say"),
    ],
)
def test_what_nccl_chose_is_read_from_its_own_log_which_goes(text, says, bare):
    log = bench_network.log_of_nccl("nccl")
    log.write_text(text)
    assert bench_network.chosen("nccl", log) == says and not log.exists()


def test_the_readers_own_log_of_nccl_is_left_alone(bare):
    bare.setenv("NCCL_DEBUG", "WARN")
    assert bench_network.log_of_nccl("nccl") is None and bench_network.log_of_nccl("gloo") is None
    assert "NCCL's own log" in bench_network.chosen("nccl", None)


def test_what_gloo_chose(bare):
    bare.setenv("GLOO_SOCKET_IFNAME", LOOPBACK)
    assert bench_network.chosen("gloo", None).startswith(LOOPBACK)
    bare.delenv("GLOO_SOCKET_IFNAME")
    bare.setattr(socket, "gethostbyname", lambda name: (_ for _ in ()).throw(OSError()))
    assert "loopback" in bench_network.chosen("gloo", None)


class Driver:
    """A driver of three cards, with a context of this process on the second."""

    def cuInit(self, flags):
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = 3
        return 0

    def cuDevicePrimaryCtxGetState(self, card, flags, active):
        active._obj.value = int(card == 1)
        return 0


def test_contexts_are_those_that_the_driver_names(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert bench_device.contexts() == (1,)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError()))
    assert bench_device.contexts() == ()


def places(contexts):
    return [
        Place(f"node0{1 + r // 2}", r % 2, 70 + r, f"cuda:{r % 2}", "H200", held, "NCCL_IB_HCA not set")
        for r, held in enumerate(contexts)
    ]


def test_a_card_with_more_than_one_context_is_said():
    right, wrong = places([(0,), (1,), (0,), (1,)]), places([(0,), (0, 1), (0,), (0, 1)])
    assert set(contexts_per_card(right).values()) == {1}
    assert contexts_per_card(wrong) == {
        ("node01", 0): 2,
        ("node01", 1): 1,
        ("node02", 0): 2,
        ("node02", 1): 1,
    }
    assert "touched it before it bound its own" not in topology(right)
    assert "node01 2 on card 0, 1 on card 1; node02 2 on card 0" in topology(wrong)
    assert "touched it before it bound its own" in topology(wrong)


def test_the_print_is_a_mapping_that_labkit_reads():
    mapping = read_mapping(topology(places([(0,), (1,), (0,), (1,)])) + "\n")
    assert mapping.hosts == ("node01", "node01", "node02", "node02") and mapping.devices == (0, 1, 0, 1)
    recorded = read_mapping(data_path("launch") / "two-hosts-eth0.txt")
    assert recorded.hosts == mapping.hosts and recorded.source == mapping.source


def test_started_by_hand_it_says_what_is_missing(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(
        InputRefused, match=r"LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set: start"
    ):
        rank_in_job()


@needs_torch
def test_nccl_without_a_gpu_is_refused(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench_device.choose_backend(None) == "gloo"
    with pytest.raises(InputRefused, match="no GPU that torch can use"):
        bench_device.choose_backend("nccl")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(InputRefused, match="has 2 GPUs for 4 ranks"):
        bench_device.choose_backend(None)
    assert bench_device.choose_backend("gloo") == "gloo"
