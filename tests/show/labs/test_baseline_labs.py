"""The labs of section 5.1 draw what a ring and a rank order do, held against sums written out here."""

import numpy as np
import pytest
from pytest import approx

from labkit.presets import cluster
from labkit.show import labs, still


def ring(n, size, alpha, rate):
    return 2 * (n - 1) * (alpha + size / n / rate)


@pytest.mark.parametrize(("n", "alpha_us", "rate", "k"), [(8, 5, 50, 1), (64, 20, 25, 16), (2, 1, 450, 64)])
def test_ring_knee(drawn, n, alpha_us, rate, k):
    setting = dict(n=n, alpha_us=alpha_us, bandwidth_GBps=rate, messages=k)
    artists, _ = drawn("ring_knee", **setting)
    alpha, speed = alpha_us * 1e-6, rate * 1e9
    for name, messages in (("one", 1), ("apart", k)):
        times, rates = artists["curves"][name]
        sizes, seconds = times.get_data()
        assert seconds == approx(messages * ring(n, sizes / messages, alpha, speed))
        assert rates.get_ydata() == approx(2 * (n - 1) / n * sizes / seconds)
        assert times.get_visible() == (name == "one" or k > 1)
    knee = k * n * alpha * speed
    (x,), (y,) = artists["half"].get_data()
    assert (x, y) == approx((knee, speed / 2))
    # Half of the bandwidth lies on the curve of the messages that are drawn.
    sizes, rates = artists["curves"]["apart"][1].get_data()
    assert np.interp(np.log(knee), np.log(sizes), rates) == approx(speed / 2, rel=0.01)
    assert {line.get_xdata()[0] for line in artists["knee"]} == {knee}
    assert artists["hop"][0].get_xdata()[0] == approx(alpha * speed)


def test_ring_knee_says_what_a_sweep_misses():
    assert "misses: latency" in still(labs.ring_knee).facts[2]
    assert "misses: nothing" in still(labs.ring_knee, start=1024).facts[2]
    assert "misses: plateau" in still(labs.ring_knee, n=64, messages=16).facts[2]
    assert "15 latencies of 630 µs saved" in still(labs.ring_knee, n=64, messages=16).facts[3]


def test_what_the_sweep_leaves_out_is_veiled(drawn):
    artists, _ = drawn("ring_knee", start=64 * 1024)
    low, high = artists["veils"][:2]
    assert (low.get_x(), low.get_x() + low.get_width()) == approx((8, 64 * 1024))
    assert high.get_x() == approx(1e9)


def words(numbers):
    return numbers.texts


def test_launch_order_deals_the_ranks_out(drawn):
    artists, result = drawn("launch_order", nodes=2, tp=8, launch="cyclic", dimension="tp")
    assert words(artists["ranks"]) == [str(rank) for rank in range(16)]
    node = result.seat // 8
    assert node.tolist() == [0, 1] * 8 and sorted(result.seat.tolist()) == list(range(16))
    assert len(artists["rings"].get_paths()) == 16
    artists, result = drawn("launch_order", nodes=2, tp=8, launch="block", dimension="tp")
    assert result.seat.tolist() == list(range(16)) and len(artists["rings"].get_paths()) == 0


def test_launch_order_by_hand():
    """TP 8 of guide-13b on two nodes in turn: 4 of a group's ranks in each, and half of the ports."""
    facts, machine = still(labs.launch_order).facts, cluster("a100")
    assert "tp 2 of 2" in facts[1] and "dp 0 of 8" in facts[1]
    size, rate = 2 * 2048 * 5120, machine.node_bandwidth / 2
    times = ring(8, size, machine.inter.alpha, rate) / ring(
        8, size, machine.intra.alpha, machine.intra.bandwidth
    )
    assert float(facts[2].split()[-1][:-1]) == approx(times, rel=0.02)
    same = still(labs.launch_order, launch="block").facts
    assert same[2].endswith("1.00x") and same[3].endswith("1.00x") and "tp 0 of 2" in same[1]


def test_launch_order_writes_the_price_into_the_picture(drawn):
    """So that the cluster, which leaves the cells where they are, changes the picture too."""
    prices = set()
    for name in ("a100", "h100", "b200"):
        artists, result = drawn("launch_order", cluster=name)
        prices.add(artists["price"].get_text())
        assert f"{result.tensor[0] / result.tensor[1]:.2f}x" in artists["price"].get_text()
    assert len(prices) == 3
    artists, _ = drawn("launch_order", tp=1)
    assert artists["price"].get_text() == ""


def test_a_rack_is_one_domain():
    """Ranks dealt out over the hosts of a rack still share its fast links."""
    assert still(labs.launch_order, cluster="gb200-nvl72", nodes=8, tp=4).facts[2].endswith("1.00x")
