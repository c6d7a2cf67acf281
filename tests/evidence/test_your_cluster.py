"""Links fitted from sweeps: hops by hand, ports by hand, and what stays because a log cannot tell it."""

from dataclasses import replace

import numpy as np
import pytest

from labkit import cluster, collective_cost
from labkit.errors import InputRefused
from labkit.evidence.sweep import Sweep, read_sweep
from labkit.evidence.your_cluster import fitted_cluster
from labkit.presets import sample_sweeps
from labkit.spec import Link

H100 = replace(cluster("h100", nodes=4), sources={})
SAMPLES = sample_sweeps()


def sweep(n, alpha, bandwidth, collective="all_reduce", sizes=None):
    """A sweep of a ring whose hops are exactly these: 2(N-1) hops of an all_reduce, half of them else."""
    size = 2.0 ** np.arange(3, 34) if sizes is None else sizes
    rounds = 2 * (n - 1) if collective == "all_reduce" else n - 1
    time = rounds * alpha + rounds / n * size / bandwidth
    rate = size / time
    return Sweep(collective, n, size, time, rate, rate * rounds / n, 0 * size)


def near(link, alpha, bandwidth):
    assert link.alpha == pytest.approx(alpha, rel=1e-3) and link.bandwidth == pytest.approx(
        bandwidth, rel=1e-3
    )


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_ring_inside_gives_back_its_hops(collective):
    found = fitted_cluster(H100, intra=sweep(8, 2e-6, 300e9, collective))
    near(found.intra, 2e-6, 300e9)
    assert found.inter == H100.inter and found.intra.rated == H100.intra.rated
    assert f"{collective} on 8 ranks as ring" in found.sources["intra.alpha_us"]
    assert set(found.sources) == {"intra.alpha_us", "intra.reached_GBps"}


@pytest.mark.parametrize(
    ("n", "each", "ports"),
    [(16, None, 8), (32, None, 8), (16, 4, 4), (4, 1, 1)],
    ids=["two hosts", "four hosts", "half of each", "one of each"],
)
def test_a_port_has_the_rate_of_a_hop_over_the_ports_of_a_hosts_ranks(n, each, ports):
    found = fitted_cluster(H100, inter=sweep(n, 6e-6, ports * 40e9), ranks_per_node=each)
    near(found.inter, 6e-6, 40e9)


def test_what_goes_in_comes_out_of_the_cost_model():
    measured = sweep(16, 6e-6, 8 * 40e9)
    found = replace(fitted_cluster(H100, intra=sweep(8, 2e-6, 340e9), inter=measured), nodes=2)
    seconds = collective_cost("all_reduce", "ring", measured.size[-1], 16, found).seconds
    assert seconds == pytest.approx(measured.time[-1], rel=1e-3)


def test_fewer_ranks_than_ports_have_one_port_at_least():
    cloud = replace(H100, nics_per_node=2)
    near(fitted_cluster(cloud, inter=sweep(4, 6e-6, 45e9), ranks_per_node=1).inter, 6e-6, 45e9)


def test_hosts_are_read_from_the_log():
    gh200 = replace(H100, gpus_per_node=4, domain=4, nics_per_node=4, inter=Link(2e-6, 20e9))
    found = fitted_cluster(gh200, inter=SAMPLES["gh200-2x4-sockets"])
    assert found.inter.bandwidth == pytest.approx(5.73e9 / 4, rel=0.01)
    assert "gh200-2x4-sockets.txt: all_reduce on 8 ranks" in found.sources["inter.reached_GBps"]
    # the same log on a cluster of 8 GPUs a host: the log says that hosts had 4 ranks
    found = fitted_cluster(replace(H100, nics_per_node=8), inter=SAMPLES["gh200-2x4-sockets"])
    assert found.inter.bandwidth == pytest.approx(5.73e9 / 4, rel=0.01)


def test_a_log_as_text():
    text = SAMPLES["a100-8gpu-nvswitch"].read_text(encoding="utf-8")
    a100 = cluster("a100")
    assert fitted_cluster(a100, intra=text).intra == fitted_cluster(a100, SAMPLES["a100-8gpu-nvswitch"]).intra


@pytest.mark.parametrize(
    ("sizes", "kept", "why"),
    [
        (2.0 ** np.arange(24, 34), "alpha", "start the sweep at 1 KiB or below"),
        (2.0 ** np.arange(3, 14), "bandwidth", "go on to larger sizes"),
    ],
)
def test_what_the_rows_cannot_tell_stays_and_says_so(sizes, kept, why):
    before = replace(H100, sources={"intra.alpha_us": "a source", "intra.reached_GBps": "a source"})
    found = fitted_cluster(before, intra=sweep(8, 2e-6, 300e9, sizes=sizes))
    keys = {"alpha": "intra.alpha_us", "bandwidth": "intra.reached_GBps"}
    for figure, key in keys.items():
        stays = getattr(found.intra, figure) == getattr(H100.intra, figure)
        assert stays == (figure == kept)
        said = found.sources[key]
        assert said.startswith("kept, your intra sweep cannot tell: ") == (figure == kept)
        assert (why in said and said.endswith("; from a source")) == (figure == kept)


def test_a_rate_that_no_hop_has_is_not_taken():
    found = fitted_cluster(H100, SAMPLES["h100-8gpu-nvswitch"], SAMPLES["h100-2x8-infiniband"])
    assert found.intra.bandwidth == H100.intra.bandwidth and found.inter == H100.inter
    assert found.intra.alpha == pytest.approx(17.2e-6 / 14, rel=0.01)
    assert "would carry 468 GB/s, above its rated 450 GB/s" in found.sources["intra.reached_GBps"]
    assert "a port would carry 58.9 GB/s, above its rated 50 GB/s" in found.sources["inter.reached_GBps"]
    assert "a hop would take 981 ns, one inside 1.23 µs" in found.sources["inter.alpha_us"]


def test_a_hop_as_fast_as_inside_may_hide_faster_ports():
    found = fitted_cluster(H100, inter=sweep(16, 6e-6, 360e9))
    assert "the ports may be faster" in found.sources["inter.reached_GBps"]


def test_nothing_given_changes_nothing():
    assert fitted_cluster(H100) == H100


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"intra": SAMPLES["h100-2x8-infiniband"]},
            "ran on 2 hosts, so it does not measure a link inside one",
        ),
        ({"intra": sweep(16, 1e-6, 1e9)}, "has 16 ranks and a fast-link domain of h100 has 8 GPUs"),
        ({"inter": SAMPLES["h100-8gpu-nvswitch"]}, "has 8 ranks, which one fast-link domain of h100 holds"),
        ({"inter": sweep(8, 1e-6, 1e9)}, "give it as intra"),
        ({"inter": sweep(64, 1e-6, 1e9), "ranks_per_node": 16}, "had 16 ranks on a host and h100 has 8"),
        ({"inter": sweep(16, 1e-6, 1e9), "ranks_per_node": 0}, "ranks_per_node"),
        ({"intra": sweep(8, 1e-6, 1e9), "algorithm": "best"}, "your intra sweep: "),
        ({"intra": replace(sweep(8, 1e-6, 1e9), n_ranks=None)}, "does not say its number of ranks"),
        ({"intra": sweep(8, 1e-6, 1e9, sizes=np.array([8.0, 16.0]))}, "too few for a fit"),
        ({"intra": "/no/such.log"}, "there is no file"),
        ({"intra": 7}, "not from int"),
    ],
)
def test_refused_in_one_sentence(given, says):
    with pytest.raises(InputRefused, match=says) as refused:
        fitted_cluster(H100, **given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("machine", ["h100", None, 7])
def test_no_cluster(machine):
    with pytest.raises(InputRefused, match="give a Cluster"):
        fitted_cluster(machine)


def test_the_first_table_that_gives_a_link_is_taken():
    tables = read_sweep(SAMPLES["a100-8gpu-nvswitch"])
    assert fitted_cluster(cluster("a100"), tables[0]).intra.bandwidth == pytest.approx(230e9, rel=0.01)
