"""Two levels on purpose: inside the domain first, so that each GPU sends only 1/domain of the data across.

All GPUs of a domain cross at once and share its ports: the fullest port carries ``at.sharing`` of them. Each
function takes ``size`` in bytes and gives (seconds, rounds), phase after phase without overlap. The phases
are those of Cho et al., "BlueConnect" (2019) for reductions, here with two levels, and of DeepSpeed-MoE's
hierarchical all_to_all (Rajbhandari et al. 2022).
"""

from labkit.collectives.levels import ceil_log2
from labkit.collectives.place import Place


def half(size, n, at: Place):
    """reduce_scatter (backwards: all_gather): a ring inside, then rings among equal local indices."""
    inside, domains, _ = at.spread(n)
    near = (inside - 1) * at.near(size / inside)
    far = (domains - 1) * at.far(at.sharing * size / n)
    return near + far, inside - 1 + domains - 1


def all_reduce(size, n, at: Place):
    """reduce_scatter inside, all_reduce across on the shard, all_gather inside: twice ``half``."""
    seconds, steps = half(size, n, at)
    return 2 * seconds, 2 * steps


def all_to_all(size, n, at: Place):
    """Inside first, sorted by local index; then one message to the same index of every other domain."""
    inside, domains, _ = at.spread(n)
    near = (inside - 1) * at.near(size / inside)
    far = (domains - 1) * at.far(at.sharing * size / domains)
    return near + far, inside - 1 + domains - 1


def broadcast(size, n, at: Place):
    """Scatter in the root's domain, a binomial tree across for each local index, ring all_gather inside."""
    inside, domains, _ = at.spread(n)
    scatter = ceil_log2(inside) * at.alpha + (inside - 1) / inside * size / at.bandwidth
    across = ceil_log2(domains) * at.far(at.sharing * size / inside)
    gather = (inside - 1) * at.near(size / inside)
    return scatter + across + gather, ceil_log2(inside) + ceil_log2(domains) + inside - 1
