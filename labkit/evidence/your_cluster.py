"""Your cluster: a preset or a file whose links are replaced by those that your own sweeps show.

A sweep measures a whole collective; a cluster describes hops. ``fit.link`` converts by algorithm and ranks,
and between a hop over hosts and one port lies how many ports the ranks of a host had.
"""

import os
from dataclasses import dataclass, replace
from math import isfinite

from labkit.errors import InputRefused
from labkit.evidence.mapping import read_mapping
from labkit.evidence.sweep import Sweep, read_sweep
from labkit.spec import Cluster, Link
from labkit.spec.checks import noun, whole
from labkit.spec.rule import counted
from labkit.units import format_rate, format_share, format_size, format_time

_KEYS = {"alpha": "alpha_us", "bandwidth": "reached_GBps"}
_AS_INSIDE = 0.9  # of the rate inside: a hop over hosts as fast as that may have been slowed inside
_BY_HAND = "run the sweep with NCCL_ALGO=Ring, or sweep all_gather"
_HIDDEN = "switches did a part of the sum, or a tree ran"


def fitted_cluster(
    cluster: Cluster,
    intra: Sweep | str | os.PathLike | None = None,
    inter: Sweep | str | os.PathLike | None = None,
    algorithm: str = "ring",
    ranks_per_node: int | None = None,
) -> Cluster:
    """The cluster with the links that sweeps show: ``intra`` of one fast-link domain, ``inter`` over several.

    Each is a ``Sweep``, the path of a log, or its text; of a log with several tables the first that gives a
    link. Latency and bandwidth of a hop are those with which ``algorithm`` takes the fitted time. One port
    has the hop's rate divided by the ports that the ranks of a host share; how many ranks each host had is
    ``ranks_per_node``, else what the log tells, else all its GPUs.

    A figure stays as it was where the rows cannot tell it, and where it cannot be that of a hop, because
    switches or another algorithm did a part of the work: a rate above the link's rated one, and a latency
    over hosts below that inside one. ``sources`` says of every figure what it is from, under the keys
    ``intra.alpha_us``, ``intra.reached_GBps`` and so on.

    Refused: what ``read_sweep`` and ``fit.link`` refuse, a sweep of an intra link over several hosts or with
    more ranks than the domain has, and one of an inter link in one domain.

    >>> from labkit.presets import cluster, sample_sweeps
    >>> mine = fitted_cluster(cluster("a100"), intra=sample_sweeps()["a100-8gpu-nvswitch"])
    >>> round(mine.intra.alpha * 1e6, 2), round(mine.intra.bandwidth / 1e9)
    (2.98, 230)
    """
    noun(cluster, Cluster, "the cluster")
    if ranks_per_node is not None:
        ranks_per_node = whole(ranks_per_node, "ranks_per_node of a sweep over hosts")
    found = cluster
    if intra is not None:
        log = _read(intra, "intra", algorithm)
        _check_inside(log, cluster)
        found = _with_link(found, "intra", log, 1.0)
    if inter is not None:
        log = _read(inter, "inter", algorithm)
        ports = _ports(log, cluster, ranks_per_node)
        found = _with_link(found, "inter", log, ports)
    return found


@dataclass(frozen=True, slots=True)
class _Log:
    """A sweep, its fit, what a sentence calls it, its hosts and the most ranks that one had, where told."""

    sweep: Sweep
    fit: object
    name: str
    algorithm: str
    hosts: int | None
    per_host: int | None


def _read(given, side: str, algorithm: str) -> _Log:
    """The sweep of a log; of several tables the first that gives a link, of none the reason."""
    if isinstance(given, Sweep):
        tables, name, seats = [given], f"your {side} sweep", None
    else:
        tables, seats = read_sweep(given), _seats(given)
        is_path = isinstance(given, os.PathLike) or "\n" not in given
        name = os.path.basename(given)[:60] if is_path else f"your {side} log"
    refusal = None
    for sweep in tables:
        fit = sweep.fit()
        try:
            _hop(fit, algorithm)
        except InputRefused as error:
            refusal = refusal or error
            continue
        told = seats is not None and seats.ranks == sweep.n_ranks
        hosts = [len(ranks) for ranks in seats.ranks_on.values()] if told else []
        return _Log(sweep, fit, name, algorithm, len(hosts) or None, max(hosts, default=None))
    raise InputRefused(f"{name}: {refusal}")


def _seats(log):
    """Where the ranks of a log ran; None where it does not tell."""
    try:
        return read_mapping(log)
    except InputRefused:
        return None


def _hop(fit, algorithm: str) -> Link:
    """The hop of a fit; alpha 0 or a bandwidth without end stand for what the rows cannot tell.

    Refused: a fit that tells neither.
    """
    if not (isfinite(fit.alpha) or isfinite(fit.bandwidth)):
        return fit.link(algorithm)
    alpha = fit.alpha if isfinite(fit.alpha) else 0.0
    bandwidth = fit.bandwidth if isfinite(fit.bandwidth) else 1.0
    return replace(fit, alpha=alpha, bandwidth=bandwidth).link(algorithm)


def _check_inside(log: _Log, cluster: Cluster) -> None:
    most = cluster.domain // cluster.gpus_per_node
    if log.hosts is not None and log.hosts > most:
        raise InputRefused(
            f"{log.name} ran on {log.hosts} hosts, so it does not measure a link inside one; give it as inter"
        )
    if log.sweep.n_ranks > cluster.domain:
        raise InputRefused(
            f"{log.name} has {log.sweep.n_ranks} ranks and a fast-link domain of {cluster.name} has "
            f"{cluster.domain} GPUs; give it as inter, or name the cluster that it ran on"
        )


def _ports(log: _Log, cluster: Cluster, ranks_per_node: int | None) -> float:
    """Ports that the ranks of one domain had together: their share of a host's, and one at least."""
    each = ranks_per_node or log.per_host or cluster.gpus_per_node
    if each > cluster.gpus_per_node:
        raise InputRefused(
            f"{log.name} had {each} ranks on a host and {cluster.name} has {cluster.gpus_per_node} GPUs in "
            "one; name the cluster that it ran on"
        )
    members = each * (cluster.domain // cluster.gpus_per_node)
    if log.hosts == 1 or log.sweep.n_ranks <= members:
        raise InputRefused(
            f"{log.name} has {log.sweep.n_ranks} ranks, which one fast-link domain of {cluster.name} holds, "
            "so nothing went over the network; give it as intra, or, where hosts had fewer ranks than GPUs, "
            "a log that lists them, or ranks_per_node"
        )
    shared = cluster.nics_per_node * members / cluster.gpus_per_node
    return max(shared, min(1.0, cluster.nics_per_node))


def _with_link(cluster: Cluster, side: str, log: _Log, ports: float) -> Cluster:
    """The cluster with what a log tells of one link; the rest, and why it stays, in its sources."""
    fit, link, hop = log.fit, getattr(cluster, side), _hop(log.fit, log.algorithm)
    found = {"alpha": hop.alpha, "bandwidth": hop.bandwidth / ports}
    why = {
        "alpha": _why_no_alpha(fit, found["alpha"], cluster, side),
        "bandwidth": _why_no_rate(fit, found["bandwidth"], link, side),
    }
    of = f"{fit.collective} on {counted(fit.n_ranks, 'rank')} as {log.algorithm}"
    sizes = f"{fit.rows} sizes from {format_size(fit.range[0])} to {format_size(fit.range[1])}"
    says = {
        "alpha": f"{format_time(fit.alpha)} in all{_error(fit.alpha_error, fit.alpha)}",
        "bandwidth": f"{ports:g} ports" * (ports != 1) + _error(fit.bandwidth_error, fit.bandwidth),
    }
    if side == "inter" and hop.bandwidth > _AS_INSIDE * cluster.intra.bandwidth:
        says["bandwidth"] += ", as fast as inside a host: the ports may be faster than that"
    sources = dict(cluster.sources)
    for figure, key in _KEYS.items():
        before = sources.get(f"{side}.{key}", "")
        sources[f"{side}.{key}"] = (
            f"kept, {log.name} cannot tell: {why[figure]}" + f"; from {before}" * bool(before)
            if why[figure]
            else ", ".join(part for part in (f"{log.name}: {of}, {sizes}", says[figure].lstrip(", ")) if part)
        )
    kept = {figure: getattr(link, figure) for figure in found if why[figure]}
    return replace(cluster, **{side: Link(**{**found, **kept}, rated=link.rated)}, sources=sources)


def _why_no_alpha(fit, alpha: float, cluster: Cluster, side: str) -> str:
    if not isfinite(fit.alpha):
        return _warning(fit, "latency")
    if side == "inter" and alpha < cluster.intra.alpha:
        hop = f"a hop would take {format_time(alpha)}, one inside {format_time(cluster.intra.alpha)}"
        return f"{hop}: {_HIDDEN}; {_BY_HAND}"
    return ""


def _why_no_rate(fit, rate: float, link: Link, side: str) -> str:
    if not isfinite(fit.bandwidth):
        return _warning(fit, "bandwidth")
    if link.rated is not None and rate > link.rated:
        what = "a port" if side == "inter" else "the link"
        above = f"{what} would carry {format_rate(rate)}, above its rated {format_rate(link.rated)}"
        return f"{above}: {_HIDDEN}; {_BY_HAND}"
    return ""


def _warning(fit, what: str) -> str:
    """What a fit says about one of its two figures that it cannot tell."""
    said = next((one for one in fit.warnings if one.startswith(f"the {what} cannot be told")), "")
    return said.partition(": ")[2] or f"the {what} is unknown"


def _error(error: float, value: float) -> str:
    return f", ± {format_share(error / value)}" if isfinite(error) and error > 0 else ""
