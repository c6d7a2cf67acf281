"""Machines and pairs that the tests of this folder share."""

from labkit.collectives import ALGORITHMS
from labkit.collectives.names import takes_segments
from labkit.spec import Cluster, Gpu, Link

LINK = Link(5e-6, 50e9)
SLOW = Link(9e-6, 25e9)
PAIRS = [(op, algorithm) for op, names in ALGORITHMS.items() for algorithm in names]
FLAT_PAIRS = [pair for pair in PAIRS if pair[1] != "hierarchical"]


def machine(nodes, gpus, ports, inter=SLOW) -> Cluster:
    """A cluster whose two links share no figure."""
    gpu = Gpu("card", 80e9, {}, 0.5)
    return Cluster(f"{nodes}x{gpus}, {ports} ports", gpu, nodes, gpus, Link(2e-6, 450e9), inter, ports)


def segment_choices(op, algorithm):
    """Segment numbers that reach both tree shapes and every end effect."""
    return (1, 2, 5) if takes_segments(op, algorithm) else (1,)


def rank_counts(algorithm, cluster):
    """All counts, partly filled domains included, or whole domains for hierarchical algorithms."""
    domain = cluster.domain
    return [
        n
        for n in range(2, cluster.n_gpus + 1)
        if algorithm != "hierarchical" or n < domain or n % domain == 0
    ]
