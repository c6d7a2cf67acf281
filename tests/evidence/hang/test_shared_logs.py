"""The shared logs, each with the facts of its source line; a claim that does not stand here fails."""

from pathlib import Path

import pytest

from tests.evidence.hang.told import read, told

LOGS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "nccl_debug"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the shared logs do not stand beside this one")

NO_CALLS = "no calls in this log"
SEEN_1580 = "all_reduce #1580 x466119168 -> 466119168 limit 600"
SEEN_808 = "0(default_pg): all_reduce #808 x9801523 -> 9801523 limit 600"
BY_DEVICE = (
    "no line tells the ranks of these processes: the number of the device in brackets is taken, as all lines "
    "are of one host"
)


def taken_as_one(processes, ranks):
    return (
        f"each of {processes} processes has one communicator of {ranks} ranks and no id is printed: these "
        "are taken as one"
    )


def sixty_four():
    """64 ranks on 16 hosts of 4; the first rank of each host that finished the start. Host 11's lines of
    the bootstrap are cut out: its interface stands in the line of its cards."""
    first = dict(
        zip(
            (f"node{number:02d}" for number in range(1, 17)),
            (0, 40, 32, 4, 44, 20, 12, 8, 24, 16, 28, 60, 56, 48, 52, 36),
            strict=True,
        )
    )
    communicators = {
        f"{rank + local} {host}[{local}] communicator of 64 ranks of 64 began completed"
        for host, rank in first.items()
        for local in range(4)
    }
    with_cards = {1, 2, 3, 4, 6, 10, 11}
    interfaces = {f"ib hfi1_{card}:1 node{number:02d}" for number in with_cards for card in range(4)} | {
        f"bootstrap ib0 10.0.0.{2 * number - 1} node{number:02d}" for number in range(1, 12)
    }
    interfaces |= {f"bootstrap ib1 10.0.0.{2 * number} node{number:02d}" for number in range(1, 11)}
    return {
        "communicators": communicators,
        "interfaces": sorted(interfaces),
        "warnings": [NO_CALLS, taken_as_one(64, 64)],
    }


TWO_OF_TWO = "0x753d166fb39e1659 of 16"
# file: everything that may be claimed
FACTS = {
    "fingerprint_01_shape_mismatch": {
        "pairs": [
            "1 all_gather #0 [[359, 1, 1435, 16]] bfloat16 / 2 all_gather #0 [[359, 1, 1436, 16]] bfloat16"
        ]
    },
    "fingerprint_02_numel_mismatch_bucket": {
        "pairs": ["0 all_reduce #3104 [[51123456]] bfloat16 / 1 all_reduce #3104 [[195812480]] bfloat16"],
        "ranks": [1],
    },
    # The warning is a hint at ranks, not more; its bracket is a device.
    "nccl_2_04_mismatched_collective_warn": {
        "notes": [
            f"mismatch on node01 names [{rank}] | Mismatched collective de" for rank in (11, 15, 9, 13)
        ],
        "communicators": {
            f"{rank} node02[{rank}] communicator of 16 ranks of 16 began completed" for rank in (1, 7)
        },
        "warnings": [NO_CALLS, taken_as_one(2, 16)],
    },
    "nccl_2_07_8_init_64gpu_16nodes_interleaved": sixty_four(),
    # Hexadecimal numbers in steps of two; two communicators of one process, so nothing can be compared.
    "nccl_2_07plus_coll_send_recv_opcount_hex": {
        "calls": [
            *(
                f"1 in 0x7f5128002e10 of node01:199574 of 2: send #{number} x2420736 float"
                for number in (0x12, 0x14, 0x16, 0x18)
            ),
            f"1 in 0x7f5128002e10 of node01:199574 of 2: recv #{0xD60} x2420736 float",
            *(
                f"1 in 0x7f516c002e10 of node01:199574 of 2: send #{number} x2420736 float"
                for number in (0xD60, 0xD62)
            ),
        ],
        "communicators": {
            f"1 node01[1] {address} of node01:199574 of 2 completed"
            for address in ("0x7f5128002e10", "0x7f516c002e10")
        },
        "warnings": [BY_DEVICE],
        "calls_recorded": True,
    },
    # libibverbs is harmless, and the start is cut: no rank can be blamed.
    "nccl_2_10_3_socket_four_ranks_one_node": {
        "notes": ["harmless on node01 | Failed to open libibverb"] * 3,
        "interfaces": ["bootstrap eth0 10.0.0.1 node01", "socket eth0 10.0.0.1 node01"],
        "warnings": [NO_CALLS],
    },
    "nccl_2_18_5_roce_h800": {
        "interfaces": [
            "bootstrap enp24s0np0 10.0.0.1 node01",
            "bootstrap enp24s0np0 10.0.0.3 node02",
            "ib mlx5_4:1 node01",
            "ib mlx5_4:1 node02",
        ],
        "warnings": [NO_CALLS],
    },
    # Of rank 10's last line the beginning is cut off.
    "nccl_2_19_3_init_ib_sharp_nvls": {
        "communicators": {
            f"{rank} node0{1 + rank // 8}[{rank % 8}] {TWO_OF_TWO} began"
            + ("" if rank in (8, 11, 12, 14, 15) else " completed")
            for rank in range(16)
        },
        "interfaces": ["bootstrap eth0 10.0.0.1 node01", *(f"ib mlx5_{card}:1 node01" for card in range(8))],
        "warnings": [NO_CALLS],
    },
    "nccl_2_26_2_srun_prefix_mixed_with_training": {"warnings": [NO_CALLS]},
    "nccl_net_plugin_not_found": {
        "notes": [
            "no network on node01 | Error: network AWS Libfa",
            "no network on node01 | NET/Plugin: Could not fi",
            "no network on node01 | Error: network AWS Libfa",
            "no network on node02 | Error: network AWS Libfa",
            "exited on node02 | Test NCCL failure common",
        ],
        "warnings": [NO_CALLS],
    },
    "rccl_allgather_vs_allreduce_same_opcount": {
        "calls": [
            f"0 in communicator of 4 ranks of 4: all_reduce #{0x28C} x9984512 float",
            f"0 in communicator of 4 ranks of 4: all_reduce #{0x28D} x8149504 float",
            f"2 in communicator of 4 ranks of 4: all_gather #{0x28C} x59205120 int8",
            f"2 in communicator of 4 ranks of 4: all_gather #{0x28D} x15360 int8",
        ],
        "communicators": {f"{rank} node01[{rank}] communicator of 4 ranks of 4 completed" for rank in (0, 2)},
        "warnings": [taken_as_one(2, 4), BY_DEVICE],
        "calls_recorded": True,
    },
    "watchdog_01_torch_1x_no_SeqNum": {
        "waits": ["6 in ?: all_reduce - limit 1800 waited 1802.25"],
        "notes": ["loading 1801 s passed, 3434 left | a transfer: 35 % after 3"],
    },
    "watchdog_03_torch_112_SeqNum_no_Numel": {
        "waits": [
            f"{rank} in ?: all_reduce #469508 limit 1800 waited {waited}"
            for rank, waited in ((1, 1802.21), (3, 1802.21), (2, 1802.21), (6, 1802.21), (7, 1802.22))
        ]
    },
    "watchdog_05_torch_23_heartbeat_no_collective": {
        "waits": ["1 in 0: waited 600 pending 103", "0 in 0: pending 84", "2 in 0: pending 103"],
        "ranks": [0, 1, 2],
    },
    "watchdog_07_torch_24_PG_Rank_enqueued_completed": {
        "waits": [
            f"0 in 1: {SEEN_1580} waited 600.06 enqueued 1582 completed 1579",
            f"4 in 1: {SEEN_1580} waited 600.067",
            "3 in 1: enqueued 1582 completed 1579",
            f"2 in 1: {SEEN_1580}",
        ],
        "ranks": [0, 2, 3, 4],
    },
    "watchdog_09_torch_25_PG_GUID_desc": {
        "waits": [
            f"1 in {SEEN_808} waited 600.02 enqueued 811 completed 807",
            f"0 in {SEEN_808} waited 600.03 enqueued 811 completed 807",
            f"2 in {SEEN_808} waited 600.061",
        ],
        "ranks": [0, 1, 2],
    },
    # Each work is reported twice in two wordings.
    "watchdog_11_torch_26_blocking_wait_pair": {
        "waits": [
            f"{rank} in ?: all_reduce #2521 x160672064 -> 160672064 limit 600 waited 600"
            for rank in (1, 7, 5)
        ],
        "ranks": [1, 5, 7],
    },
    # 311164928 / 19447808 = 16 ranks.
    "watchdog_12_torch_28plus_work_sequence_id_with_stack": {
        "waits": [
            "9 in 0(default_pg) of 16: all_gather #190346 x19447808 -> 311164928 limit 600 "
            "at all_gather_into_tensor distributed_c10d.py:4186 at wrapper c10d_logger.py:83 "
            "at __call__ _fsdp_collectives.py:89 at foreach_all_gather _fsdp_collectives.py:276 "
            "waited 600.01 enqueued 190346 completed 190345"
        ],
        "ranks": [9],
    },
    "watchdog_15_pdsh_prefix_default_pg": {
        "waits": ["6 in 0(default_pg): all_reduce #2070 x1 -> 1 limit 600 waited 600.022"],
        "ranks": [6],
    },
    # The report counts from 1 and names who lags, which is not who is guilty.
    "watchdog_16_desync_report": {
        "waits": [
            "0 in ?: all_reduce #2 x4 -> 4 limit 8 at buggy collective_mismatch.py:8 "
            "at main collective_mismatch.py:15 at <module> collective_mismatch.py:18 waited 8.097",
            "0 in ?: all_reduce #2 enqueued 2",
            "1 in ?: enqueued 1 completed 1",
        ],
        "notes": ["desync names [1] | [1] finished collective "],
    },
}  # fmt: skip


def test_every_shared_log_has_its_facts_here():
    assert {path.stem for path in LOGS.glob("*.txt")} == FACTS.keys()


@pytest.mark.parametrize("name", FACTS)
def test_nothing_is_claimed_beyond_the_facts(name):
    claimed = told(read((LOGS / f"{name}.txt").read_text("utf-8")))
    if "communicators" in claimed:
        assert len(set(claimed["communicators"])) == len(claimed["communicators"])
        claimed["communicators"] = set(claimed["communicators"])
    assert claimed == FACTS[name]
