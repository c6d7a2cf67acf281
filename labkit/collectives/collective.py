"""What a collective promises: who holds what at the start, and who must hold what at the end.

State is "rank r's copy of chunk c contains the contributions of ranks i": a boolean array (rank, chunk,
contributor). A collective is an initial state and a postcondition, as in MSCCLang (Cowan et al. 2023).
"""

from dataclasses import dataclass

import numpy as np

from labkit.collectives.sends import Trace


@dataclass(frozen=True, slots=True)
class Collective:
    """Initial state and postcondition, as boolean arrays.

    ``holds`` (rank, chunk): what a rank has at the start, its own data and nothing else. ``wants`` (rank,
    chunk): what it must have at the end, with exactly the ``contributors`` (chunk, contributor). Other chunks
    are not looked at.
    """

    holds: np.ndarray
    wants: np.ndarray
    contributors: np.ndarray

    def start(self) -> np.ndarray:
        """The initial state, boolean (rank, chunk, contributor)."""
        return self.holds[:, :, None] & np.eye(len(self.holds), dtype=bool)[:, None, :]


def collective(trace: Trace) -> Collective:
    """What the trace's operation starts from and promises, root rank 0.

    >>> from labkit.collectives import trace
    >>> c = collective(trace("reduce", "linear", 3))
    >>> c.holds[:, 0].tolist(), c.wants[:, 0].tolist(), c.contributors[0].tolist()
    ([True, True, True], [True, False, False], [True, True, True])
    """
    source, destination = _ends(trace)
    rank = np.arange(trace.n)[:, None]
    holds = wants = np.ones((trace.n, trace.chunks), dtype=bool)
    contributors = (rank == source).T
    if trace.op in ("all_reduce", "reduce_scatter", "reduce"):
        contributors = np.ones_like(contributors)
    else:
        holds = rank == source
    if trace.op not in ("all_reduce", "all_gather", "broadcast", "barrier"):
        wants = rank == destination
    return Collective(holds, wants, contributors)


def _ends(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """(source, destination) rank of every chunk: the root is 0, a block belongs to the rank of its place."""
    chunk = np.arange(trace.chunks)
    root = np.zeros_like(chunk)
    owner = chunk * trace.n // trace.chunks
    sender, piece = chunk // trace.parts, chunk % trace.parts  # where every rank has its own message
    if trace.op == "all_to_all":
        return sender, piece * trace.n // trace.parts
    if trace.op == "send_recv":
        return sender, (sender + 1) % trace.n
    if trace.op in ("all_gather", "barrier", "gather"):
        return owner, root
    return root, root if trace.op == "reduce" else owner
