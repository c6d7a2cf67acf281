"""Memory of the shipped cards: what the driver reports, and what of it is left for a plan."""

import pytest

from labkit.presets import cluster
from labkit.units import format_memory


@pytest.mark.parametrize(
    "id, mib, free",
    # nvidia-smi's total in MiB, and GiB free for a program of PyTorch once its kernels are loaded: as
    # published for the A100 (78.23), on the others what CUDA programs get less the same 0.92.
    [
        ("a100", 81920, 78.23),
        ("a100-40", 40960, 39.50 - 0.92),
        ("h100", 81559, 79.19 - 0.92),
        ("h200", 143771, 139.81 - 0.92),
        ("b200", 183359, 178.35 - 0.92),
        ("gb200-nvl72", 189471, 184.31 - 0.92),
        ("v100", 32768, 31.74 - 0.92),
        ("l40s-pcie", 46068, 44.40 - 0.92),
    ],
)
def test_memory_is_what_the_driver_reports_less_what_no_tensor_gets(id, mib, free):
    gpu = cluster(id).gpu
    assert gpu.memory == pytest.approx(mib * 2**20, abs=0.6 * 2**20)
    assert gpu.usable == pytest.approx(free * 2**30, abs=0.06e9)


def test_an_a100_has_80_gib_and_84_gb_of_them_for_a_plan():
    gpu = cluster("a100").gpu
    assert (gpu.memory, gpu.reserve) == (85_899_345_920, 1.9e9)
    assert format_memory(gpu.memory) == "85.9 GB (80 GiB)" and format_memory(gpu.usable) == "84 GB (78.2 GiB)"
