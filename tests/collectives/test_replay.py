"""What the replay counts: bytes, rounds, busy links."""

import numpy as np
import pytest

from labkit.collectives import replay, trace, unchunked_all_reduce
from labkit.errors import InputRefused
from labkit.spec import Link
from tests.collectives.collective_cases import LINK, machine


def test_a_ring_without_chunks_takes_n_times_longer():
    n, size = 8, 8 * 2**20
    chunks = replay(trace("all_reduce", "ring", n), size, Link(0.0, 50e9))
    whole = replay(unchunked_all_reduce(n), size, Link(0.0, 50e9))
    assert whole.seconds == pytest.approx(n * chunks.seconds)
    assert chunks.occupancy == pytest.approx(1)
    assert whole.occupancy == pytest.approx(1 / n)
    assert (np.count_nonzero(whole.busy, axis=1) == 1).all()


def test_chunks_use_the_link_for_s_over_s_plus_n_alpha_b():
    n, size = 8, 2**20
    knee = n * LINK.alpha * LINK.bandwidth
    assert replay(trace("all_reduce", "ring", n), size, LINK).occupancy == pytest.approx(size / (size + knee))


def test_a_round_trip_per_step_would_double_the_latency_only():
    """Claim 2.2-f: alpha is one way and enters 2(N-1) times."""
    once, twice = (
        replay(trace("all_reduce", "ring", 8), 2**20, Link(a, 50e9)).seconds for a in (5e-6, 10e-6)
    )
    assert twice - once == pytest.approx(14 * 5e-6)


def test_the_slowest_link_of_a_round_sets_its_time():
    cluster = machine(2, 2, 1)
    counted = replay(trace("broadcast", "tree", 4, cluster), 1e6, cluster)
    assert counted.round_seconds == pytest.approx([9e-6 + 1e6 / 25e9, 2e-6 + 1e6 / 450e9])
    assert counted.crossing == 1e6


def test_ranks_that_cross_at_once_share_the_ports():
    exchange = trace("all_reduce", "recursive_doubling", 8)
    rounds = [replay(exchange, 1e6, machine(2, 4, ports)).round_seconds for ports in (1, 2, 4)]
    inside = 2e-6 + 1e6 / 450e9
    for counted, sharing in zip(rounds, (4, 2, 1), strict=True):
        assert counted == pytest.approx([inside, inside, 9e-6 + sharing * 1e6 / 25e9])


def test_ports_that_no_message_uses_are_idle():
    cluster = machine(2, 4, 4)
    counted = replay(trace("broadcast", "tree", 8, cluster), 1e6, cluster)
    assert np.flatnonzero(counted.busy[0]).tolist() == [0]


def test_fractions_of_bytes_are_split_evenly():
    assert replay(trace("all_reduce", "ring", 4), 10.5, LINK).sent == pytest.approx([15.75] * 4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputRefused, match="cluster has 4"):
        replay(trace("all_reduce", "ring", 8), 1e6, machine(2, 2, 1))
    with pytest.raises(InputRefused, match="message size"):
        replay(trace("all_reduce", "ring", 8), float("nan"), LINK)
