"""Supply and demand of samples, by hand; the remedies of the guide; refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from labkit.errors import InputRefused
from labkit.practice.data_loading import (
    LEAST,
    REMEDIES,
    Host,
    host_demand,
    loader_wait,
    remedy,
    storage_demand,
    supply,
    workers_needed,
)


def test_demand_is_linear_in_the_cards_of_a_host():
    assert host_demand(np.array([1, 2, 4, 8]), 25.0).tolist() == [25, 50, 100, 200]


def test_hosts_count_for_what_they_share_alone():
    assert storage_demand(np.array([1, 32]), 8, 25.0, 1e6).tolist() == [2e8, 6.4e9]


def test_workers_needed_by_hand():
    """8 cards x 25 samples x 40 ms = 8 cores busy."""
    assert workers_needed(8, 25.0, 0.04) == 8 and workers_needed(8, 25.0, 0.041) == 9
    assert workers_needed(1, 0.1, 0.04) == 1


def test_waiting_by_hand():
    """64 samples x 40 ms = 2.56 s of a core in a step of 0.32 s."""
    assert loader_wait(0.32, 64, np.array([1, 2, 8, 16]), 0.04) == approx([2.24, 0.96, 0, 0], abs=1e-12)
    assert loader_wait(0.32, 64, 0, 0.04) == approx(2.56)  # nothing runs beside the step
    assert loader_wait(0.32, 64, 16, 0.04, cores=4) == approx(0.32)  # 16 workers on 4 cores are 4


@given(st.integers(1, 16), st.floats(0.1, 100), st.floats(1e-3, 1), st.integers(1, 64), st.integers(1, 64))
def test_nobody_waits_exactly_where_there_are_the_workers_needed(cards, rate, seconds, samples, more):
    needed = workers_needed(cards, rate, seconds)
    step = samples / rate
    assert loader_wait(step, cards * samples, needed + more - 1, seconds) == approx(0, abs=1e-9 * step)
    assert supply(needed, seconds) >= host_demand(cards, rate) * (1 - 1e-9)
    if needed > 1:
        assert loader_wait(step, cards * samples, needed - 1, seconds) > 0


def test_arrays_agree_with_numbers():
    workers = np.array([0, 1, 8, 100])
    waits = loader_wait(0.32, 64, workers, 0.04, 64)
    assert waits.tolist() == [loader_wait(0.32, 64, int(one), 0.04, 64) for one in workers]


# ---- remedies


def test_each_remedy_by_hand():
    """64 samples x 60 ms on 8 workers = 0.48 s in a step of 0.32 s: 0.16 s of waiting."""
    host = Host(workers=8)
    assert host.wait == approx(0.16)
    more, card, encoded = (remedy(host, name) for name in REMEDIES)
    assert more.host.workers == 12 and more.step == approx(0.32)
    # 60 % of 0.48 s is 0.288 s, within a step of 0.32 s and 8 samples x 1 ms on the card
    assert card.step == approx(0.328) and card.price == "8 ms of each card a step"
    assert encoded.host.seconds == approx(0.006) and encoded.step == approx(0.32)
    assert encoded.price == "samples of 600 kB, not 150 kB"


def test_more_workers_end_at_the_cores():
    few = remedy(Host(workers=1, cores=4), "more workers")
    assert few.host.workers == 4 and few.step == approx(64 * 0.06 / 4) and few.price == "3 more cores"
    assert remedy(Host(workers=16), "more workers").price == "0 more cores"


def test_everything_taken_away_still_takes_the_least():
    assert remedy(Host(decode=0.6, transform=0.4), "fixed-length encoded data").host.seconds == LEAST


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: host_demand(0, 25.0), "cards of a host"),
        (lambda: host_demand(8, "x"), "rate of a card"),
        (lambda: host_demand(np.ones(2), np.ones(3)), "must broadcast"),
        (lambda: storage_demand(0, 8, 25.0, 1e6), "number of hosts"),
        (lambda: supply(-1, 0.04), "loader workers"),
        (lambda: supply(1, 0), "seconds of a sample"),
        (lambda: supply(1, 0.04, None), "cores of a host"),
        (lambda: workers_needed(8, 25.0, np.nan), "seconds of a sample"),
        (lambda: loader_wait(0, 64, 1, 0.04), "seconds of a step"),
        (lambda: loader_wait(0.3, 1.5, 1, 0.04), "samples of a step"),
        (lambda: Host(cards=0), "cards of a host"),
        (lambda: Host(decode=0.7, transform=0.5), "together they are at most 1"),
        (lambda: Host(decode=2), "share of decoding"),
        (lambda: remedy(Host(), "pray"), "use more workers"),
        (lambda: remedy(3, "more workers"), "the host"),
        (lambda: remedy(Host(), "more workers", growth=0), "growth of a stored sample"),
    ],
)
def test_refused(call, says):
    with pytest.raises(InputRefused, match=says):
        call()
