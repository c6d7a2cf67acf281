"""What a mapping does to a plan: which groups cross hosts, what that costs, and the order that puts it right.

The price of a row of the bill is that of its **worst** group, because a step waits for it. Hosts are taken to
fill fast-link domains in the order in which the ranks come to them.
"""

from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import InputRefused
from labkit.evidence.mapping import Mapping
from labkit.planner.bill import step_bill
from labkit.planner.states import MIXED, Recipe
from labkit.planner.traffic import BillRow
from labkit.spec import Cluster, Plan, RankGrid, Transformer
from labkit.spec.checks import noun
from labkit.spec.plan import DIMENSIONS
from labkit.spec.replicas import shard_counts
from labkit.spec.rule import counted
from labkit.spec.rules import check_nouns

# What makes ranks consecutive, host by host, as each launcher spells it.
LAUNCHERS = {
    "Slurm": "srun --distribution=block",
    "Open MPI": "mpirun --map-by slot",
    "torchrun": "one agent a host, --node-rank in the order of the hosts, --nproc-per-node its GPUs",
}


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of one group of a dimension, and the hosts they sit on, each once, in rank order."""

    dimension: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]

    @property
    def crosses(self) -> bool:
        """Whether it is on more than one host."""
        return len(self.hosts) > 1


def groups(mapping: Mapping, plan: Plan, dimension: str) -> list[Group]:
    """Every group of tp, cp, dp, pp or ep with its hosts, by lowest rank.

    Refused: a plan of another number of ranks than the mapping has.

    >>> cyclic = Mapping(("a", "b") * 4)
    >>> [group.hosts for group in groups(cyclic, Plan(tp=4, dp=2), "tp")]
    [('a', 'b'), ('a', 'b')]
    >>> [group.crosses for group in groups(cyclic, Plan(tp=4, dp=2), "dp")]
    [False, False, False, False]
    """
    found = _grid(mapping, plan).groups(dimension).tolist()
    hosts = mapping.hosts
    return [
        Group(dimension, tuple(ranks), tuple(dict.fromkeys(hosts[rank] for rank in ranks))) for ranks in found
    ]


@dataclass(frozen=True, slots=True)
class Crossing:
    """How many groups a dimension has, how many cross hosts as mapped, and how many in block order."""

    groups: int
    across: int
    in_order: int


def crossings(mapping: Mapping, plan: Plan) -> dict[str, Crossing]:
    """Of each dimension with more than one rank a group: how many groups are on more than one host.

    >>> crossings(Mapping(("a", "b") * 8), Plan(tp=8, dp=2))
    {'tp': Crossing(groups=2, across=2, in_order=0), 'dp': Crossing(groups=8, across=0, in_order=8)}
    """
    grid = _grid(mapping, plan)
    here, ordered = (_hosts(one) for one in (mapping, mapping.in_order()))
    found = {}
    for name in (*DIMENSIONS, "ep"):
        if plan.degree(name) > 1:
            members = grid.groups(name)
            found[name] = Crossing(len(members), _across(here[members]), _across(ordered[members]))
    return found


def _grid(mapping: Mapping, plan: Plan) -> RankGrid:
    noun(mapping, Mapping, "the mapping")
    noun(plan, Plan, "the plan")
    grid = RankGrid(plan)
    if plan.ranks != mapping.ranks:
        raise InputRefused(
            f"the plan has tp {plan.tp} x cp {plan.cp} x pp {plan.pp} x dp {plan.dp} = "
            f"{counted(plan.ranks, 'rank')}, the mapping {mapping.ranks}; give the plan of this launch"
        )
    return grid


def _hosts(mapping: Mapping) -> np.ndarray:
    """The host of each rank as a number, in the order in which ranks come to them."""
    numbers = {host: number for number, host in enumerate(mapping.ranks_on)}
    return np.array([numbers[host] for host in mapping.hosts])


def _across(hosts: np.ndarray) -> int:
    """How many of some groups, shape (groups, ranks), have ranks with different numbers."""
    return int(np.sum(hosts.min(axis=1) != hosts.max(axis=1)))


def mapped_bill(
    model: Transformer,
    cluster: Cluster,
    plan: Plan,
    mapping: Mapping,
    *,
    recipe: Recipe = MIXED,
    bucket: float | None = None,
) -> list[BillRow]:
    """``step_bill`` of the plan with every group where the mapping puts it; ``link`` is that of the worst.

    Inside a group the library is taken to order its ring by hosts, so that each is left once: what a wrong
    rank order costs is ports, not a detour at every hop. Refused: what ``step_bill`` refuses, a plan of
    another number of ranks than the mapping has, and a host with more ranks than a node has GPUs.
    """
    (rows,) = _bills(model, cluster, plan, (mapping,), recipe, bucket)
    return rows


def _bills(model, cluster, plan, mappings, recipe, bucket=None) -> list[list[BillRow]]:
    """The bill of the plan under each of some mappings of the same ranks."""
    check_nouns(model=model, cluster=cluster, plan=plan)
    grid = _grid(mappings[0], plan)
    fullest = max(mappings[0].ranks_on.items(), key=lambda entry: len(entry[1]))
    if len(fullest[1]) > cluster.gpus_per_node:
        raise InputRefused(
            f"{fullest[0]} has {len(fullest[1])} ranks and a node of {cluster.name} "
            f"{cluster.gpus_per_node} GPUs; name the cluster that this ran on"
        )
    rows = step_bill(model, cluster, plan, recipe=recipe, bucket=bucket)
    members = [_members(row, plan, grid) for row in rows]
    domains = [_hosts(mapping) * cluster.gpus_per_node // cluster.domain for mapping in mappings]
    return [[_seated(row, of[ranks]) for row, ranks in zip(rows, members, strict=True)] for of in domains]


def _seated(row: BillRow, domains: np.ndarray) -> BillRow:
    """The row with the link and the members of its worst group; ``domains`` has shape (groups, ranks)."""
    count = int(domains.max()) + 1
    places, together = np.unique(domains + count * np.arange(len(domains))[:, None], return_counts=True)
    least = np.full(len(domains), domains.shape[1])
    np.minimum.at(least, places // count, together)
    members = int(least.min())
    link = "across" if members < domains.shape[1] else "inside"
    # Between stages there are just two ranks at a boundary, as in the bill itself.
    return replace(row, link=link, members=1 if row.strategy == "pipeline" else members)


def _members(row: BillRow, plan: Plan, grid: RankGrid) -> np.ndarray:
    """The ranks of each group that a row of the bill speaks of, shape (groups, ranks)."""
    part, _, rest = row.strategy.partition(",")
    if part.startswith(("data", "stage")):
        experts = rest == " experts"
        everyone = _same_experts(plan, grid) if experts else _same_weights(grid)
        shards = int(shard_counts(plan)[experts])
        if part.startswith("stage"):
            return everyone.reshape(-1, shards)
        between = plan.zero > 0  # replicas of the shards
        return everyone.reshape(-1, shards).T.reshape(-1, len(everyone[0]) // shards) if between else everyone
    if part.startswith("embedding"):
        return grid.groups("pp")[:, [0, -1]]
    if part.startswith("pipeline"):
        stages = grid.groups("pp")
        return np.concatenate([stages[:, here : here + 2] for here in range(plan.pp - 1)])
    if rest == " experts":
        return _stages(grid).reshape(-1, plan.expert_tp)
    members = grid.groups({"tensor": "tp", "context": "cp", "expert": "ep"}[part.split()[0]])
    return members.reshape(-1, row.group) if row.group < members.shape[1] else members  # copied kv heads


def _same_weights(grid: RankGrid) -> np.ndarray:
    """Ranks that hold the same weights: the groups of cp and dp taken together, in rank order."""
    names = list(reversed(grid.plan.order.split("-")))
    axes = [names.index(name) for name in names if name in ("cp", "dp")]
    size = grid.plan.cp * grid.plan.dp
    return np.moveaxis(grid.mesh, axes, (-2, -1)).reshape(-1, size)


def _stages(grid: RankGrid) -> np.ndarray:
    """The ranks of each pipeline stage, in rank order."""
    names = list(reversed(grid.plan.order.split("-")))
    return np.moveaxis(grid.mesh, names.index("pp"), 0).reshape(grid.plan.pp, -1)


def _same_experts(plan: Plan, grid: RankGrid) -> np.ndarray:
    """Ranks that hold the same experts: they are ep x etp apart among the ranks of a stage."""
    apart = plan.ep * plan.expert_tp
    ranks = _stages(grid).reshape(plan.pp, -1, apart)
    return np.moveaxis(ranks, 1, -1).reshape(plan.pp * apart, -1)


@dataclass(frozen=True, slots=True)
class MappedRow:
    """A row of the bill in seconds a step, nothing hidden: as mapped, and with the ranks in block order."""

    strategy: str
    collective: str
    mapped: float
    in_order: float


def mapping_cost(
    model: Transformer, cluster: Cluster, plan: Plan, mapping: Mapping, recipe: Recipe = MIXED
) -> list[MappedRow]:
    """What the mapping costs, row by row of the plan's bill, against the same hosts in block order.

    Negative differences are right: an order that breaks tensor parallel up may bring data parallel together.
    Refused: what ``mapped_bill`` refuses.
    """
    noun(mapping, Mapping, "the mapping")
    here, ordered = _bills(model, cluster, plan, (mapping, mapping.in_order()), recipe)
    return [
        MappedRow(row.strategy, row.collective, row.seconds(cluster), same.seconds(cluster))
        for row, same in zip(here, ordered, strict=True)
    ]


def hostfile(mapping: Mapping) -> str:
    """The hosts of a launch in block order, a line a rank, for ``srun --distribution=arbitrary``.

    Slurm reads it from the file that SLURM_HOSTFILE names; Open MPI takes the same under ``--map-by seq``.

    >>> hostfile(Mapping(("a", "b", "a", "b"))).split()
    ['a', 'a', 'b', 'b']
    """
    noun(mapping, Mapping, "the mapping")
    return "".join(f"{host}\n" for host in mapping.in_order().hosts)
