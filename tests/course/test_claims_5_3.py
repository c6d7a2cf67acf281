"""Section 5.3's claims: figures from the guide, the claim lists, sums by hand, and the recorded files."""

import re

import numpy as np
import pytest

from labkit.course import chapter5_launch as launch
from labkit.course.claims import all_claims
from labkit.errors import InputRefused
from labkit.presets import data_path
from tests.course.claim_values import figures, value
from tests.evidence.torch_jobs import needs_torch

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "5.3"}
EXPECTED = {
    "5.3-a": ["bind, init_process_group, gathered, say, barrier", "limit 30 min", "GLOO_SOCKET_IFNAME eth0"],
    "5.3-d": ["rank 0 waits in the gather, 3 others in the barrier, all 4", "gather outside of the branch"],
    "5.3-f": ["NCCL 10 min", "others 30 min", "30 min x 64 cards = 32 card-hours", "operation ALLREDUCE"],
    "5.3-g": ["10x to 40x"],
    "5.3-h": ["1 context a card", "8 on card 0, 1 on the others"],
    "5.3-i": ["the first collective"],
    "5.3-j": ["bind → init_process_group → gathered → say (rank 0) → barrier"],
}
VERDICTS = {"5.3-d": "corrected", "5.3-f": "approximately"}


@pytest.mark.parametrize("id", EXPECTED)
def test_values(id):
    found = value(id)
    assert [text for text in EXPECTED[id] if text not in found] == []
    assert CLAIMS[id].verdict == VERDICTS.get(id, "holds")


def test_the_claims_of_this_section():
    """5.3-b, 5.3-c and 5.3-e are jobs that hang, abort or go wrong: they come with chapter 6."""
    assert set(EXPECTED) <= set(CLAIMS)


def test_a_hang_costs_its_limit_on_every_card():
    assert launch.card_hours(30, 64) == 32
    assert launch.card_hours(np.array([6.0, 60.0]), np.array([[1], [10]]), 2).tolist() == [[0.2, 2], [2, 20]]
    assert launch.card_hours(30, 64, 0) == 0
    for wrong in ((0, 64), (30, "many"), (float("nan"), 8), (30, 8, -1)):
        with pytest.raises(InputRefused):
            launch.card_hours(*wrong)


def test_contexts_by_hand():
    """Eight processes: seven strays of 0.92 GiB on card 0."""
    assert [launch.contexts_of(order)[0] for order in launch.ORDERS] == [1, 1, 8, 8]
    (lost,) = figures("5.3-h", r"([\d.]+) GB of card 0 lost")
    assert lost == pytest.approx(7 * 0.92 * 2**30 / 1e9, abs=0.01)
    assert launch.contexts_of(("load weights",), 3) == [3, 0, 0]
    with pytest.raises(InputRefused, match="no step of the start"):
        launch.contexts_of(("reboot",))


def test_the_recorded_interfaces_reach_their_rates():
    """Rings of two hosts send 2 x 3/4 of the message through each port: busbw is what the port carried."""
    for name, rate in (("eth0", 1e9 / 8), ("mgmt0", 1e8 / 8)):
        sweep = launch.interface_sweep(name)
        assert (sweep.n_ranks, sweep.warnings, sweep.wrong.sum()) == (4, [], 0)
        assert np.all(sweep.busbw < 1.02 * rate) and np.all(sweep.busbw > 0.85 * rate)
    assert 9 < launch.interface_ratio() < 11
    fast, slow, ratio = figures("5.3-g", r"busbw (\d+) MB/s and ([\d.]+) MB/s, ([\d.]+)x")
    assert fast / slow == pytest.approx(ratio, rel=0.05)


def test_the_shipped_print_is_what_the_launcher_prints():
    lines = launch.topology_print().splitlines()
    ranks = [
        re.match(r"# rank (\d): host (node0\d), local rank (\d), device cpu", line) for line in lines[:4]
    ]
    assert ["".join(rank.groups()) for rank in ranks] == ["0node010", "1node011", "2node020", "3node021"]
    assert [line.split(":")[0] for line in lines[4:]] == [
        "# network told",
        "# network chosen",
        "# seconds of the start, on rank 0",
    ]
    assert list(launch.start_seconds()) == ["process group", "gather", "barrier"]


def test_every_recorded_file_says_how_it_was_made():
    for path in (*data_path("launch").glob("*.txt"), *data_path("sweeps").glob("gloo-*.txt")):
        assert path.read_text("utf-8").startswith("# Recorded by this project, 2026-")


def test_the_gloo_sweeps_read_without_a_warning_and_show_the_scheduler():
    """The same program on the same loopback: what differs is who has the cores."""
    for name, ranks in ((launch.ALONE, 2), (launch.QUIET, 4), (launch.BUSY, 4)):
        sweep, _ = launch.sample(name)
        assert (sweep.collective, sweep.n_ranks, sweep.size.size) == ("all_reduce", ranks, 17)
        assert sweep.warnings == [] and sweep.skipped == []
    alone, quiet, busy = (launch.sample(name)[1].link("ring").alpha for name in launch.GLOO)
    assert quiet > 2 * alone and busy > 4 * quiet
    assert [row[0] for row in launch.gloo_table().rows] == list(launch.GLOO.values())
    assert [row[0] for row in launch.gloo_sizes_table().rows][2:6] == ["1 MiB", "2 MiB", "4 MiB", "8 MiB"]


@needs_torch
def test_the_default_limits_are_those_of_torch():
    from torch.distributed import constants

    assert constants.default_pg_timeout.total_seconds() == 60 * launch.DEFAULT_LIMITS["gloo and others"]
    nccl = constants.default_pg_nccl_timeout  # None in a build without NCCL
    assert nccl is None or nccl.total_seconds() == 60 * launch.DEFAULT_LIMITS["NCCL"]


def test_tables():
    assert [row[1:3] for row in launch.waits_table().rows] == [("gather", "5 s"), *[("barrier", "5 s")] * 3]
    assert launch.price_table().rows[1][2:] == ("4", "32", "512", "8,192")
    assert [row[2] for row in launch.message_table().rows] == ["not named"] * 3 + ["5 s", "not named"]
    assert [row[3][-1] for row in launch.interface_table().rows] == ["x"] * 4
    assert [row[1] for row in launch.contexts_table().rows] == ["1", "1", "8", "8"]
