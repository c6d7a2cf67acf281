"""The rank grid: which rank sits where, which ranks form a group, and which groups leave a node."""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import whole
from labkit.spec.plan import DIMENSIONS, Plan

MOST_RANKS = 10**6


@dataclass(frozen=True, eq=False, slots=True)
class RankGrid:
    """The ranks of one plan, numbered in its order, ``per_node`` of them on each node.

    The mesh of Megatron-LM and PyTorch: rank numbers count up along the first dimension of the order, then
    along the second ("Efficient Large-Scale Language Model Training on GPU Clusters", 2021, section 3).
    Refused: a plan of arrays or of more than a million ranks, and ``per_node`` not whole or below 1.

    >>> grid = RankGrid(Plan(tp=8, pp=4, dp=2), per_node=8)
    >>> grid.groups("dp")[0].tolist(), grid.crossing("tp"), grid.crossing("dp")
    ([0, 8], 0, 32)
    """

    plan: Plan
    per_node: int = 8

    def __post_init__(self):
        if not isinstance(self.plan, Plan) or not self.plan.single:
            raise InputRefused("a rank grid shows one Plan; give one with single numbers, not arrays")
        if self.plan.ranks > MOST_RANKS:
            raise InputRefused(
                f"a rank grid lists every rank, and this plan has {self.plan.ranks:,}; give one of at most "
                f"{MOST_RANKS:,}"
            )
        object.__setattr__(self, "per_node", whole(self.per_node, "GPUs per node of a rank grid"))

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return self.plan.ranks

    @property
    def nodes(self) -> int:
        """Nodes that hold them."""
        return -(-self.ranks // self.per_node)

    @property
    def mesh(self) -> np.ndarray:
        """Rank numbers, one axis a dimension, the last axis the first of the order."""
        sizes = [getattr(self.plan, name) for name in reversed(self.plan.order.split("-"))]
        return np.arange(self.ranks).reshape(sizes)

    def position(self, rank: int) -> dict[str, int]:
        """Where a rank sits in each dimension.

        >>> RankGrid(Plan(tp=2, pp=2, dp=2)).position(5)
        {'tp': 1, 'cp': 0, 'dp': 0, 'pp': 1}
        """
        rank = whole(rank, "a rank of this plan", least=0, most=self.ranks - 1)
        return {name: rank // self.plan.stride(name) % self.plan.degree(name) for name in DIMENSIONS}

    def groups(self, dimension: str) -> np.ndarray:
        """Ranks of every group of tp, cp, dp, pp or ep, shape (groups, degree), by their lowest rank.

        The ranks of a group differ in that dimension alone. Expert groups take the ranks of a pipeline stage
        in order. Refused: an unknown dimension, and expert groups that do not fill the stage.
        """
        degree = self.plan.degree(dimension)
        if dimension == "ep":
            return self._expert_groups(degree)
        names = list(reversed(self.plan.order.split("-")))
        groups = np.moveaxis(self.mesh, names.index(dimension), -1).reshape(-1, degree)
        return groups[np.argsort(groups[:, 0])]

    def _expert_groups(self, degree: int) -> np.ndarray:
        names = list(reversed(self.plan.order.split("-")))
        stages = np.moveaxis(self.mesh, names.index("pp"), 0).reshape(self.plan.pp, -1)
        inner = self.plan.expert_tp
        if stages.shape[1] % (degree * inner):
            raise InputRefused(
                f"{degree} x {inner} expert ranks do not fill the {stages.shape[1]} ranks of a stage; "
                "choose ep and etp whose product divides them"
            )
        groups = stages.reshape(stages.shape[0], -1, degree, inner)
        groups = np.moveaxis(groups, 2, -1).reshape(-1, degree)
        return groups[np.argsort(groups[:, 0])]

    def node(self, ranks) -> np.ndarray:
        """The node of each rank."""
        ranks = whole(ranks, "a rank of this plan", least=0, most=self.ranks - 1, arrays=True)
        return np.asarray(ranks) // self.per_node

    def crossing(self, dimension: str) -> int:
        """How many groups of the dimension have ranks on more than one node."""
        nodes = self.node(self.groups(dimension))
        return int(np.sum(nodes.min(axis=1) != nodes.max(axis=1)))
