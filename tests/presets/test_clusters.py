"""Presets: every figure sourced, a reader's own file read or refused, predictions near published sweeps."""

import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import collective_cost
from labkit.errors import InputRefused
from labkit.presets import cluster, cluster_ids, data_path, sample_sweeps
from labkit.spec import Link
from labkit.spec.kernels import Kernels

SHIPPED = tomllib.loads(data_path("hardware.toml").read_text(encoding="utf-8"))

OWN = """
[gpu.mine]
name = "Mine"
memory_GiB = 24
reserve_GB = 1.5
memory_bandwidth_GBps = 500
peak_TFLOPs = { bf16 = 100, fp8 = 200 }
reached_share = 0.5

[cluster.desk]
gpu = "mine"
gpus_per_node = 2
domain = 2
nics_per_node = 1
[cluster.desk.intra]
reached_GBps = 20
alpha_us = 3
[cluster.desk.inter]
rated_GBps = 12.5
reached_GBps = 11
alpha_us = 10
[cluster.desk.inter.sources]
reached_GBps = "measured on Tuesday"
"""


def tables_with_figures(table, path=()):
    """Every (path, table, figures) of the file that holds at least one number itself."""
    figures = [k for k, v in table.items() if isinstance(v, int | float) or k == "peak_TFLOPs"]
    if figures:
        yield ".".join(path), table, figures
    for key, value in table.items():
        if isinstance(value, dict) and key not in ("sources", "peak_TFLOPs"):
            yield from tables_with_figures(value, (*path, key))


def test_the_ids_others_rely_on_are_there():
    binding = ["a100", "a100-40", "h100", "h200", "b200", "gb200-nvl72", "v100", "l40s-pcie", "cloud-25gbe"]
    assert set(binding) <= set(cluster_ids())


def test_every_figure_has_a_source():
    tables = list(tables_with_figures(SHIPPED))
    assert len(tables) == 2 * len(SHIPPED["gpu"]) + 3 * len(SHIPPED["cluster"])
    for path, table, figures in tables:
        assert sorted(figures) == sorted(table["sources"]), path
        assert all(len(text) >= 10 for text in table["sources"].values()), path


@pytest.mark.parametrize("id", cluster_ids())
def test_every_preset_loads_and_reaches_no_more_than_it_is_rated(id):
    c = cluster(id, nodes=3)
    assert c.name == id and c.n_gpus == 3 * c.gpus_per_node
    for link in (c.intra, c.inter):
        assert 0 < link.alpha < 1e-3
        assert link.rated is None or link.bandwidth <= link.rated
    assert c.intra.alpha < c.inter.alpha
    assert 0 < c.gpu.reached < 1
    assert "gpu.kernels.product" in c.sources
    sourced = {"gpu.memory_GiB", "gpu.reserve_GB", "intra.reached_GBps", "inter.alpha_us", "nics_per_node"}
    assert sourced <= set(c.sources)


@pytest.mark.parametrize(
    "id, precision, peak",
    [
        ("a100", "bf16", 312e12),
        ("a100-40", "bf16", 312e12),
        ("h100", "bf16", 989.4e12),
        ("h200", "fp8", 1978.9e12),
        ("b200", "bf16", 2250e12),
        ("gb200-nvl72", "bf16", 2500e12),
        ("v100", "fp16", 125e12),
        ("l40s-pcie", "fp8", 733e12),
    ],
)
def test_peaks_are_the_dense_ones(id, precision, peak):
    assert cluster(id).gpu.peak[precision] == pytest.approx(peak)


def test_v100_has_no_bf16():
    assert "bf16" not in cluster("v100").gpu.peak


@pytest.mark.parametrize("id", cluster_ids())
def test_eight_bit_products_are_twice_as_fast_where_there_are_any(id):
    peak = cluster(id).gpu.peak
    assert peak["fp16"] / peak["fp32"] > 3
    if "fp8" in peak:
        assert peak["fp8"] == pytest.approx(2 * peak["bf16"], rel=0.02)


def test_domain_is_the_rack_for_nvl72_and_the_host_elsewhere():
    assert (cluster("gb200-nvl72").domain, cluster("gb200-nvl72").gpus_per_node) == (72, 4)
    assert all(cluster(i).domain == cluster(i).gpus_per_node for i in cluster_ids() if i != "gb200-nvl72")


# Figures of published all_reduce runs: preset, nodes, ranks, bytes, seconds measured. All rings, or
# bandwidth-bound runs over three nodes and more; sources as in the file.
LARGE = [
    ("a100", 1, 8, 2**29, 4225.9e-6),  # aiconfigurator a100_sxm
    ("a100", 1, 8, 2**33, 64074e-6),  # ml-engineering
    ("h100", 1, 4, 2**29, 2299.71e-6),  # aiconfigurator h100_sxm, 4 GPUs: a ring
    ("h200", 1, 4, 2**29, 2311e-6),  # aiconfigurator h200_sxm, 4 GPUs: a ring, 348.4 GB/s
    ("h100", 2, 16, 2**30, 5236.2e-6),  # gjaion, ring forced
    ("h100", 2, 16, 2**33, 41015e-6),
    ("h100", 8, 64, 2**33, 43211e-6),  # gjaion, 8 nodes: no figure of the preset comes from this run
    ("a100-40", 3, 24, 133_169_160, 2666e-6),  # nccl-tests issue 119
    ("v100", 1, 4, 4e9, 48e-3),  # Jean Zay
    ("v100", 16, 64, 4e9, 1.162),
    ("l40s-pcie", 1, 8, 2**28, 323906e-6),  # aiconfigurator l40s
    ("l40s-pcie", 1, 8, 2**29, 649471e-6),
]


@pytest.mark.parametrize("id, nodes, n, size, measured", LARGE)
def test_preset_predicts_the_large_sizes_of_its_sweep(id, nodes, n, size, measured):
    predicted = collective_cost("all_reduce", "ring", size, n, cluster(id, nodes)).seconds
    assert predicted == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    "id, nodes, n, size, measured",
    [
        ("a100", 1, 8, 8192, 21.27e-6),
        ("h100", 1, 8, 8192, 15.96e-6),
        ("b200", 1, 8, 8192, 26.02e-6),
        ("h100", 2, 16, 2**21, 156.6e-6),
    ],
)
def test_preset_predicts_the_small_sizes_of_its_sweep(id, nodes, n, size, measured):
    predicted = collective_cost("all_reduce", "ring", size, n, cluster(id, nodes)).seconds
    assert predicted == pytest.approx(measured, rel=0.15)


def test_galvatron_profile_both_levels():
    def rate(n, c):
        seconds = collective_cost("all_reduce", "ring", 2**30, n, c).seconds
        return 2**30 / seconds * 2 * (n - 1) / n  # bus bandwidth

    two = cluster("a100-galvatron", 2)
    assert rate(8, cluster("a100-galvatron")) == pytest.approx(154.2e9, rel=0.02)
    assert rate(16, two) == pytest.approx(44.68e9, rel=0.02)
    # Equal groups over both nodes at once, 4 of the 8 GPUs each: their share of the ports. Groups with 1 or 2
    # GPUs a node measured 45 % more than their share, so they are not held here.
    assert rate(8, two.group(4)) == pytest.approx(20.77e9, rel=0.1)


def test_one_gradient_reduction_of_13b_at_the_rated_figures():
    dgx = cluster("a100", nodes=4)
    rated = replace(dgx, inter=Link(0.0, dgx.inter.rated), intra=Link(0.0, dgx.intra.rated))
    size = 12.85e9 * 2 / 8
    seconds = collective_cost("all_reduce", "ring", size, 4, rated.group(1)).seconds
    assert seconds == pytest.approx(0.193, abs=0.0005)


def test_own_file_is_read_as_written(tmp_path):
    path = tmp_path / "desk.toml"
    path.write_text(OWN)
    for given_as in (path, str(path)):
        c = cluster(given_as, nodes=4)
        assert (c.name, c.nodes, c.gpus_per_node, c.nics_per_node, c.domain) == ("desk", 4, 2, 1, 2)
        assert c.intra == Link(3e-6, 20e9, None)
        assert c.inter == Link(10e-6, 11e9, 12.5e9)
        assert (c.gpu.name, c.gpu.reached) == ("Mine", 0.5)
        assert (c.gpu.memory, c.gpu.reserve, c.gpu.usable) == (24 * 2**30, 1.5e9, 24 * 2**30 - 1.5e9)
        assert c.gpu.peak == {"bf16": 100e12, "fp8": 200e12}
        assert c.sources == {"inter.reached_GBps": "measured on Tuesday"}


def test_a_file_without_a_reserve_reserves_nothing(tmp_path):
    path = tmp_path / "desk.toml"
    path.write_text(OWN.replace("reserve_GB = 1.5\n", ""))
    assert cluster(path).gpu.usable == cluster(path).gpu.memory == 24 * 2**30


def test_kernels_of_an_own_file_may_be_left_out_or_given_one_by_one(tmp_path):
    path = tmp_path / "desk.toml"
    path.write_text(OWN)
    assert cluster(path).gpu.kernels == Kernels.usual(0.5)
    given = (
        "[gpu.mine.kernels]\nlaunch_us = 4\nmultiprocessors = 46\ntile = 128\ncache_MiB = 32\nproduct = 0.5\n"
    )
    path.write_text(OWN.replace("[cluster.desk]", given + "[cluster.desk]"))
    expected = dict(launch=4e-6, multiprocessors=46, tile=128, cache=32 * 2**20, product=0.5)
    assert cluster(path).gpu.kernels == replace(Kernels.usual(0.5), **expected)


@pytest.mark.parametrize(
    "line, says",
    [
        ("launch_us = 0", "[gpu.mine.kernels] has launch_us = 0; it must be a number from 0.5 up to 20"),
        ("wave = 2", "[gpu.mine.kernels] has wave = 2; it must be a number from 0.05 up to 1"),
        ("wafe = 0.5", "did you mean wave?"),
        ("launch = 3e-6", "did you mean launch_us?"),
        ("tile = 192", "its largest tile has 128 or 256 columns"),
        ("multiprocessors = 1.5", "a whole number from 1"),
        ("cache_MiB = -1", "a number from 0"),
    ],
)
def test_kernels_that_cannot_be_are_refused(line, says, tmp_path):
    path = tmp_path / "desk.toml"
    path.write_text(OWN.replace("[cluster.desk]", f"[gpu.mine.kernels]\n{line}\n[cluster.desk]", 1))
    with pytest.raises(InputRefused, match=re.escape(says)):
        cluster(path)


def test_own_file_may_name_a_shipped_gpu(tmp_path):
    path = tmp_path / "desk.toml"
    path.write_text(OWN[OWN.index("[cluster") :].replace('"mine"', '"h100"'))
    assert cluster(path).gpu == cluster("h100").gpu


@pytest.mark.parametrize("id", cluster_ids())
def test_a_shipped_preset_comes_back_from_its_own_file(id, tmp_path):
    """Cutting one cluster and its GPU out of the shipped file gives a reader's file with the same cluster."""
    blocks = re.split(r"(?m)^(?=\[)", data_path("hardware.toml").read_text(encoding="utf-8"))
    gpu = SHIPPED["cluster"][id]["gpu"]
    wanted = re.compile(rf"\[(cluster\.{id}|gpu\.{gpu})[\].]")
    path = tmp_path / "one.toml"
    path.write_text("".join(b for b in blocks if wanted.match(b)))
    assert cluster(path, nodes=2) == cluster(id, nodes=2)


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("reached_GBps = 20\n", "", "lacks reached_GBps"),
        ("alpha_us = 3", "alpha_ms = 3", "lacks alpha_us"),
        ("alpha_us = 3", "alpha_us = 3\nalpha = 1", "did you mean alpha_us"),
        ("alpha_us = 3", "alpha_us = -3", "a number from 0"),
        ("alpha_us = 3", "alpha_us = nan", "a number from 0"),
        ("alpha_us = 3", 'alpha_us = "3"', "a number from 0"),
        ("gpus_per_node = 2", "gpus_per_node = 2.5", "a whole number from 1"),
        ("gpus_per_node = 2", "gpus_per_node = true", "a whole number from 1"),
        ("gpus_per_node = 2", "gpus_per_node = 0", "a whole number from 1"),
        ("gpus_per_node = 2", "gpus_per_node = 1" + "0" * 400, "a whole number from 1"),
        ("domain = 2", "domain = 3", "not a multiple"),
        ("nics_per_node = 1", "nics_per_node = 0", "a number above 0"),
        ("reached_share = 0.5", "reached_share = 50", "above 0 up to 1"),
        ("memory_GiB = 24", "memory_GB = 24", "write memory_GiB, what nvidia-smi reports"),
        ("memory_GiB = 24", "memory_GiB = 24\nmemory_GB = 24", "has memory_GB, the size on the label"),
        ("reserve_GB = 1.5", "reserve_GB = -1", "a number from 0"),
        ("reserve_GB = 1.5", "reserve_GB = 26", "must leave something of the memory"),
        ("{ bf16 = 100, fp8 = 200 }", "{ bf61 = 100 }", "did you mean bf16"),
        ("{ bf16 = 100, fp8 = 200 }", "{}", "is empty"),
        ("{ bf16 = 100, fp8 = 200 }", "100", "not a table"),
        ('gpu = "mine"', 'gpu = "yours"', "neither a [gpu.NAME] table"),
        ('gpu = "mine"', "gpu = [1]", "neither a [gpu.NAME] table"),
        ('"measured on Tuesday"', "2", "are not texts"),
        ("[cluster.desk]", "[cluster.desk]\n[cluster.other]", "describes 2 clusters"),
        ("[cluster.desk]", "[misc]\n[cluster.desk]", "unknown key 'misc'"),
        ("[gpu.mine]", "[gpu.mine", "not a TOML file"),
    ],
)
def test_own_file_with_a_fault_is_refused_in_one_sentence(old, new, says, tmp_path):
    assert OWN.count(old) >= 1
    path = tmp_path / "desk.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(InputRefused, match=re.escape(says)) as refused:
        cluster(path)
    text = str(refused.value)
    assert "desk.toml" in text and "\n" not in text


@pytest.mark.parametrize(
    "raw, says",
    [
        (b"", "lacks cluster"),
        (b"cluster = 1", "not a table"),
        (b"[cluster]\nx = 1", "not a table"),
        (b"[cluster.x]\n" + b"#" * 300_000, "larger than"),
        (b"\xff\xfe", "not a text file in UTF-8"),
        (b"a = " + b"[" * 50_000, "not a TOML file"),
        (b"a = " + b"9" * 5_000, "not a TOML file"),
    ],
)
def test_files_of_another_kind_are_refused(raw, says, tmp_path):
    path = tmp_path / "desk.toml"
    path.write_bytes(raw)
    with pytest.raises(InputRefused, match=says):
        cluster(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(InputRefused, match="cannot be read"):
            cluster(path)


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(OWN)))
def test_damaged_files_raise_nothing_else(tmp_path_factory, junk, at):
    path = tmp_path_factory.mktemp("damaged") / "desk.toml"
    path.write_bytes(OWN[:at].encode() + junk + OWN[at + len(junk) :].encode())
    try:
        c = cluster(path)
    except InputRefused:
        return
    assert np.isfinite([c.intra.bandwidth, c.inter.bandwidth, c.gpu.usable]).all()


def test_unknown_ids_are_answered_with_the_known_and_the_nearest():
    with pytest.raises(InputRefused, match=r"known are a100, .*did you mean gb200-nvl72\?"):
        cluster("gb200")
    for id in ("", "\0", 5, 10**5000, None, "two\nlines", "x" * 100_000, "no/such/file\0.toml"):
        with pytest.raises(InputRefused) as refused:
            cluster(id)
        assert str(refused.value).isprintable()


@pytest.mark.parametrize("nodes", [0, -1, 2.5, "2", float("nan"), None])
def test_impossible_node_counts_are_refused(nodes):
    with pytest.raises(InputRefused, match="a whole number from 1 up"):
        cluster("a100", nodes)


def test_shipped_files_are_found_and_others_refused():
    assert data_path("hardware.toml").is_file()
    with pytest.raises(InputRefused, match="no shipped data file"):
        data_path("no-such-file")
    assert all(path.stem == name and path.suffix == ".txt" for name, path in sample_sweeps().items())
