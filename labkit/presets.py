"""Named clusters from ``data/hardware.toml`` and from a reader's own file of the same form.

Only this module knows where ``data/`` is. Figures are checked here once, so that the formulas need not check
them.
"""

import os
import tomllib
from difflib import get_close_matches
from functools import cache
from numbers import Integral
from pathlib import Path

from labkit.errors import InputRefused
from labkit.spec import Cluster, Gpu, Link
from labkit.units import GB

_PRECISIONS = ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "fp4")
_LARGEST_FILE = 200_000  # bytes; the shipped file is about a tenth of it


def data_path(name: str) -> Path:
    """Where the shipped file or folder ``name`` lies: ``labkit/data`` in a wheel, ``data`` in a checkout.

    >>> data_path("hardware.toml").name
    'hardware.toml'
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "data", package.parent / "data"):
        if (folder / name).exists():
            return folder / name
    raise InputRefused(
        f"no shipped data file {name!r}; reinstall labkit-workbook or run from a complete checkout"
    )


def sample_sweeps() -> dict[str, Path]:
    """The shipped sweep logs by name, in alphabetical order: ``data/sweeps/NAME.txt``."""
    return {path.stem: path for path in sorted(data_path("sweeps").glob("*.txt"))}


def cluster_ids() -> list[str]:
    """The ids that ``cluster`` knows.

    >>> cluster_ids()[:3]
    ['a100', 'a100-40', 'h100']
    """
    return list(_shipped()["cluster"])


def cluster(id: str | os.PathLike, nodes: int = 1) -> Cluster:
    """``nodes`` hosts of the preset ``id``, or of the one cluster described in a TOML file at that path.

    Links carry both figures: ``bandwidth`` is what was reached in practice, ``rated`` the vendor's. ``inter``
    is one port of a host. ``sources`` says where each figure is from (keys as in the file,
    ``"intra.reached_GBps"``, ``"gpu.memory_GB"``).

    A reader's own file has the keys of ``data/hardware.toml``: one ``[cluster.NAME]`` with its ``intra`` and
    ``inter`` tables, and a ``[gpu.NAME]`` unless ``gpu`` names a shipped one. Sources and ``rated_GBps`` may
    be left out there.

    Raises InputRefused for an unknown id (with the nearest one), for a number of nodes below 1, and for a
    file that cannot be read, is too large, or has a missing, unknown or senseless entry.

    >>> dgx = cluster("h100", nodes=4)
    >>> dgx.n_gpus, dgx.intra.rated / 1e9, round(dgx.inter.bandwidth / 1e9, 1)
    (32, 450.0, 49.1)
    """
    if not isinstance(nodes, Integral) or nodes < 1:
        raise InputRefused(f"a cluster cannot have {nodes!r} nodes; give a whole number from 1 up")
    shipped = _shipped()
    if str(id) in shipped["cluster"]:
        return _cluster(str(id), shipped, shipped, "hardware.toml", int(nodes))
    path = Path(str(id))
    if path.suffix != ".toml" and len(path.parts) < 2:
        begins = [known for known in shipped["cluster"] if id and known.startswith(str(id))]
        near = begins or get_close_matches(str(id).lower(), shipped["cluster"], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join(shipped["cluster"])
        raise InputRefused(f"no cluster {str(id)[:40]!r}: known are {known}, or a path to a .toml file{hint}")
    own = _load(path)
    _keys(own, path.name, "the file", required={"cluster"}, optional={"gpu"})
    clusters = _table(own, "cluster", path.name, "")
    if len(clusters) != 1:
        raise InputRefused(
            f"{path.name} describes {len(clusters)} clusters; keep one [cluster.NAME] table in the file"
        )
    return _cluster(next(iter(clusters)), own, shipped, path.name, int(nodes))


@cache
def _shipped() -> dict:
    return _load(data_path("hardware.toml"))


def _load(path: Path) -> dict:
    try:
        with open(path, "rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputRefused(f"{path.name} cannot be read ({reason}); check the path") from None
    if len(raw) > _LARGEST_FILE:
        raise InputRefused(
            f"{path.name} is larger than {_LARGEST_FILE:,} bytes; a cluster file is a few lines of TOML"
        )
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputRefused(
            f"{path.name} is not a TOML file ({error}); compare it with data/hardware.toml"
        ) from None


def _cluster(name: str, file: dict, shipped: dict, where: str, nodes: int) -> Cluster:
    table = _table(file["cluster"], name, where, "cluster.")
    at = f"[cluster.{name}]"
    counts = {"gpus_per_node", "domain", "nics_per_node"}
    _keys(table, where, at, required={"gpu", "intra", "inter", *counts}, optional={"sources"})
    gpu_id = table["gpu"]
    own = _table(file, "gpu", where, "") if "gpu" in file else {}
    gpus = own if str(gpu_id) in own else shipped["gpu"]
    if not isinstance(gpu_id, str) or gpu_id not in gpus:
        raise InputRefused(
            f"{where}: {at} has gpu = {str(gpu_id)[:40]!r}, which is neither a [gpu.NAME] table of the file "
            f"nor one of {', '.join(shipped['gpu'])}; add the table or use one of these"
        )
    gpu, gpu_sources = _gpu(gpu_id, gpus, where if gpus is own else "hardware.toml")
    intra, intra_sources = _link(table, "intra", where, name)
    inter, inter_sources = _link(table, "inter", where, name)
    per_node, domain = (
        _number(table, key, where, at, whole=True, least=1) for key in ("gpus_per_node", "domain")
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
        nics_per_node=_number(table, "nics_per_node", where, at, above=0),
        domain=int(domain),
        sources=_sources(table, where, at)
        | {f"gpu.{key}": text for key, text in gpu_sources.items()}
        | {f"intra.{key}": text for key, text in intra_sources.items()}
        | {f"inter.{key}": text for key, text in inter_sources.items()},
    )


def _gpu(name: str, gpus: dict, where: str) -> tuple[Gpu, dict[str, str]]:
    at = f"[gpu.{name}]"
    table = _table(gpus, name, where, "gpu.")
    _keys(
        table,
        where,
        at,
        required={"name", "memory_GB", "memory_bandwidth_GBps", "peak_TFLOPs", "reached_share"},
        optional={"sources"},
    )
    if not isinstance(table["name"], str):
        raise InputRefused(f"{where}: {at} has a name that is not text; put it in quotes")
    peaks = _table(table, "peak_TFLOPs", where, f"gpu.{name}.")
    peaks_at = f"{at} peak_TFLOPs"
    _keys(peaks, where, peaks_at, required=set(), optional=set(_PRECISIONS))
    if not peaks:
        raise InputRefused(f"{where}: {peaks_at} is empty; give at least one of {', '.join(_PRECISIONS)}")
    gpu = Gpu(
        name=table["name"],
        memory=_number(table, "memory_GB", where, at, above=0) * GB,
        peak={key: _number(peaks, key, where, peaks_at, above=0) * 1e12 for key in peaks},
        reached=_number(table, "reached_share", where, at, above=0, most=1),
        memory_bandwidth=_number(table, "memory_bandwidth_GBps", where, at, above=0) * GB,
    )
    return gpu, _sources(table, where, at)


def _link(parent: dict, key: str, where: str, name: str) -> tuple[Link, dict[str, str]]:
    at = f"[cluster.{name}.{key}]"
    table = _table(parent, key, where, f"cluster.{name}.")
    _keys(table, where, at, required={"reached_GBps", "alpha_us"}, optional={"rated_GBps", "sources"})
    link = Link(
        alpha=_number(table, "alpha_us", where, at, least=0) / 1e6,
        bandwidth=_number(table, "reached_GBps", where, at, above=0) * GB,
        rated=_number(table, "rated_GBps", where, at, above=0) * GB if "rated_GBps" in table else None,
    )
    return link, _sources(table, where, at)


def _table(parent: dict, key: str, where: str, prefix: str) -> dict:
    if not isinstance(parent[key], dict):
        raise InputRefused(f"{where}: {prefix}{key} is not a table; write it as [{prefix}{key}]")
    return parent[key]


def _keys(table: dict, where: str, at: str, required: set[str], optional: set[str]) -> None:
    """Refuses a table that lacks a key or has one nobody reads: a misspelt figure must not be ignored."""
    for key in sorted(required - table.keys()):
        raise InputRefused(f"{where}: {at} lacks {key}; add it as in data/hardware.toml")
    for key in sorted(table.keys() - required - optional):
        near = get_close_matches(key, required | optional, n=1)
        hint = (
            f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(required | optional))}"
        )
        raise InputRefused(f"{where}: {at} has an unknown key {key[:40]!r}{hint}")


def _number(
    table: dict, key: str, where: str, at: str, *, whole=False, least=None, above=None, most=None
) -> float:
    """The figure as a float within its bounds."""
    value = table[key]
    wanted = ("a whole number" if whole else "a number") + "".join(
        f" {word} {bound}"
        for word, bound in (("from", least), ("above", above), ("up to", most))
        if bound is not None
    )
    good = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e15  # also keeps out infinity, NaN and integers too long for a float
        and (not whole or value == int(value))
        and (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
    )
    if not good:
        raise InputRefused(f"{where}: {at} has {key} = {str(value)[:40]}; it must be {wanted}")
    return float(value)


def _sources(table: dict, where: str, at: str) -> dict[str, str]:
    sources = table.get("sources", {})
    figures = {
        key
        for key, value in table.items()
        if not isinstance(value, str) and key not in ("sources", "intra", "inter")
    }
    if not isinstance(sources, dict) or not all(isinstance(text, str) for text in sources.values()):
        raise InputRefused(
            f'{where}: the sources of {at} are not texts; write key = "where the figure is from"'
        )
    _keys(sources, where, f"the sources of {at}", required=set(), optional=figures)
    return sources
