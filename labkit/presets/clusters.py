"""Named clusters from ``data/hardware.toml`` and from a reader's own file of the same form."""

import os
from dataclasses import replace

from labkit.errors import InputRefused
from labkit.presets.files import (
    called,
    check_keys,
    load_toml,
    number,
    path_of,
    shipped,
    source_texts,
    sub_table,
    unknown_id,
)
from labkit.spec import Cluster, Gpu, Link
from labkit.spec.checks import label, shown, whole
from labkit.spec.kernels import RANGES, SECONDS, Kernels
from labkit.units import GB, GiB, MiB

_PRECISIONS = ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "fp4")
_OR = "a path to a .toml file"


def cluster_ids() -> list[str]:
    """The ids that ``cluster`` knows.

    >>> cluster_ids()[:3]
    ['a100', 'a100-40', 'h100']
    """
    return list(shipped("hardware.toml")["cluster"])


def cluster(id: str | os.PathLike, nodes: int = 1) -> Cluster:
    """``nodes`` hosts of the preset ``id``, or of the one cluster described in a TOML file at that path.

    Links carry both figures: ``bandwidth`` is what was reached in practice, ``rated`` the vendor's. ``inter``
    is one port of a host. ``sources`` says where each figure is from (keys as in the file,
    ``"intra.reached_GBps"``, ``"gpu.memory_GiB"``).

    A reader's own file has the keys of ``data/hardware.toml``: one ``[cluster.NAME]`` with its ``intra`` and
    ``inter`` tables, and a ``[gpu.NAME]`` unless ``gpu`` names a shipped one. Sources, ``rated_GBps``,
    ``reserve_GB`` and ``[gpu.NAME.kernels]``, all of it or single constants, may be left out there.

    Raises InputRefused for an unknown id (with the nearest one), for a number of nodes below 1, and for a
    file that cannot be read, is too large, or has a missing, unknown or senseless entry.

    >>> dgx = cluster("h100", nodes=4)
    >>> dgx.n_gpus, dgx.intra.rated / 1e9, round(dgx.inter.bandwidth / 1e9, 1)
    (32, 450.0, 49.1)
    """
    nodes = whole(nodes, "the number of nodes of a cluster")
    ours = shipped("hardware.toml")
    path = path_of(id, "cluster", cluster_ids(), _OR)
    if str(id) in ours["cluster"]:
        return _cluster(str(id), ours, ours, "hardware.toml", nodes)
    if path.suffix != ".toml" and len(path.parts) < 2:
        raise unknown_id(str(id), "cluster", cluster_ids(), _OR)
    own = load_toml(path, "a cluster file is a few lines of TOML", "hardware.toml")
    check_keys(own, called(path), "the file", required={"cluster"}, optional={"gpu"})
    clusters = sub_table(own, "cluster", called(path), "")
    if len(clusters) != 1:
        raise InputRefused(
            f"{called(path)} describes {len(clusters)} clusters; keep one [cluster.NAME] table in the file"
        )
    return _cluster(next(iter(clusters)), own, ours, called(path), nodes)


def _cluster(name: str, file: dict, ours: dict, where: str, nodes: int) -> Cluster:
    label(name, f"the name of a cluster in {where}")
    table = sub_table(file["cluster"], name, where, "cluster.")
    at = f"[cluster.{name}]"
    counts = {"gpus_per_node", "domain", "nics_per_node"}
    check_keys(table, where, at, required={"gpu", "intra", "inter", *counts}, optional={"sources"})
    gpu_id = table["gpu"]
    own = sub_table(file, "gpu", where, "") if "gpu" in file else {}
    gpus = own if isinstance(gpu_id, str) and gpu_id in own else ours["gpu"]
    if not isinstance(gpu_id, str) or gpu_id not in gpus:
        raise InputRefused(
            f"{where}: {at} has gpu = {shown(gpu_id)}, which is neither a [gpu.NAME] table of the file "
            f"nor one of {', '.join(ours['gpu'])}; add the table or use one of these"
        )
    gpu, gpu_sources = _gpu(gpu_id, gpus, where if gpus is own else "hardware.toml")
    intra, intra_sources = _link(table, "intra", where, name)
    inter, inter_sources = _link(table, "inter", where, name)
    per_node, domain = (
        number(table, key, where, at, whole=True, least=1) for key in ("gpus_per_node", "domain")
    )
    if domain % per_node:
        raise InputRefused(
            f"{where}: {at} has domain = {domain:g}, not a multiple of gpus_per_node = {per_node:g}; "
            "a domain is one host or several whole hosts"
        )
    return Cluster(
        name=name,
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=int(per_node),
        intra=intra,
        inter=inter,
        nics_per_node=number(table, "nics_per_node", where, at, above=0),
        domain=int(domain),
        sources=source_texts(table, where, at)
        | {f"gpu.{key}": text for key, text in gpu_sources.items()}
        | {f"intra.{key}": text for key, text in intra_sources.items()}
        | {f"inter.{key}": text for key, text in inter_sources.items()},
    )


def _gpu(name: str, gpus: dict, where: str) -> tuple[Gpu, dict[str, str]]:
    label(name, f"the name of a GPU in {where}")
    at = f"[gpu.{name}]"
    table = sub_table(gpus, name, where, "gpu.")
    if "memory_GB" in table:
        raise InputRefused(
            f"{where}: {at} has memory_GB, the size on the label; write memory_GiB, what nvidia-smi reports "
            "in MiB / 1024"
        )
    check_keys(
        table,
        where,
        at,
        required={"name", "memory_GiB", "memory_bandwidth_GBps", "peak_TFLOPs", "reached_share"},
        optional={"reserve_GB", "kernels", "sources"},
    )
    label(table["name"], f"{where}: the name under {at}")
    peaks = sub_table(table, "peak_TFLOPs", where, f"gpu.{name}.")
    peaks_at = f"{at} peak_TFLOPs"
    check_keys(peaks, where, peaks_at, required=set(), optional=set(_PRECISIONS))
    if not peaks:
        raise InputRefused(f"{where}: {peaks_at} is empty; give at least one of {', '.join(_PRECISIONS)}")
    memory = number(table, "memory_GiB", where, at, above=0) * GiB
    reserve = number({"reserve_GB": 0.0} | table, "reserve_GB", where, at, least=0) * GB
    if reserve >= memory:
        raise InputRefused(
            f"{where}: {at} has reserve_GB = {reserve / GB:g} of memory_GiB = {memory / GiB:g}; "
            "it must leave something of the memory"
        )
    reached = number(table, "reached_share", where, at, above=0, most=1)
    kernels, kernel_sources = _kernels(table, reached, where, name)
    gpu = Gpu(
        name=table["name"],
        memory=memory,
        reserve=reserve,
        peak={key: number(peaks, key, where, peaks_at, above=0) * 1e12 for key in peaks},
        reached=reached,
        memory_bandwidth=number(table, "memory_bandwidth_GBps", where, at, above=0) * GB,
        kernels=kernels,
    )
    return gpu, source_texts(table, where, at) | {
        f"kernels.{key}": text for key, text in kernel_sources.items()
    }


def _kernels(parent: dict, reached: float, where: str, name: str) -> tuple[Kernels, dict[str, str]]:
    """The constants under ``[gpu.NAME.kernels]``; those left out as for any GPU with this reached share."""
    usual = Kernels.usual(reached)
    if "kernels" not in parent:
        return usual, {}
    at = f"[gpu.{name}.kernels]"
    table = sub_table(parent, "kernels", where, f"gpu.{name}.")
    keys = {(f"{key}_us" if key in SECONDS else key): key for key in RANGES}
    facts = {"multiprocessors", "tile", "cache_MiB", "residual"}
    check_keys(table, where, at, required=set(), optional={*keys, *facts, "sources"})
    given = {}
    for key in table.keys() & keys.keys():
        scale = 1e-6 if key.endswith("_us") else 1.0
        low, high = (bound / scale for bound in RANGES[keys[key]])
        given[keys[key]] = number(table, key, where, at, least=low, most=high) * scale
    for key in table.keys() & {"multiprocessors", "tile"}:
        given[key] = int(number(table, key, where, at, whole=True, least=1, most=1e6))
    if "tile" in given and given["tile"] not in (128, 256):
        raise InputRefused(
            f"{where}: {at} has tile = {given['tile']}; its largest tile has 128 or 256 columns"
        )
    if "cache_MiB" in table:
        given["cache"] = number(table, "cache_MiB", where, at, least=0) * MiB
    if "residual" in table:
        given["residual"] = number(table, "residual", where, at, least=0)
    return replace(usual, **given), source_texts(table, where, at)


def _link(parent: dict, key: str, where: str, name: str) -> tuple[Link, dict[str, str]]:
    at = f"[cluster.{name}.{key}]"
    table = sub_table(parent, key, where, f"cluster.{name}.")
    check_keys(table, where, at, required={"reached_GBps", "alpha_us"}, optional={"rated_GBps", "sources"})
    link = Link(
        alpha=number(table, "alpha_us", where, at, least=0) / 1e6,
        bandwidth=number(table, "reached_GBps", where, at, above=0) * GB,
        rated=number(table, "rated_GBps", where, at, above=0) * GB if "rated_GBps" in table else None,
    )
    return link, source_texts(table, where, at)
