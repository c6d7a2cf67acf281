"""Section 5.1's mapping as tables: which groups cross hosts, and what a wrong order costs."""

from dataclasses import dataclass
from functools import cache

from labkit.course.table import Table, table
from labkit.evidence.mapping import Mapping
from labkit.evidence.mapping_judge import LAUNCHERS, crossings, mapping_cost
from labkit.planner.step import step_time
from labkit.presets import cluster, model
from labkit.spec import Plan
from labkit.units import digits, format_rate, format_time


@dataclass(frozen=True, slots=True)
class Order:
    """One step of a plan in block order and as mapped: seconds of it, and of its tensor parallel alone."""

    in_order: float
    mapped: float
    tensor_in_order: float
    tensor_mapped: float

    @property
    def slower(self) -> float:
        """How many times as long the step is."""
        return self.mapped / self.in_order


def cyclic(hosts: int = 2, per_host: int = 8) -> Mapping:
    """Ranks dealt out to the hosts in turn, as ``srun --distribution=cyclic`` does."""
    return Mapping(tuple(f"node{rank % hosts}" for rank in range(hosts * per_host)), source="made up")


PLAN = Plan(tp=8, dp=2, micro_batch=2, global_batch=64)


@cache
def wrong_order(name: str, plan: Plan = PLAN, id: str = "guide-13b") -> Order:
    """Claim 5.1-b: tensor parallel 8 on two hosts, dealt out in turn instead of host by host.

    Tensor parallel shows to the last byte in either order, so the step grows by what it grows. Gradients,
    which hide, are left as they were.
    """
    shape, machine = model(id), cluster(name, nodes=2)
    in_order = step_time(shape, machine, plan).total
    rows = mapping_cost(shape, machine, plan, cyclic(2, machine.gpus_per_node))
    tensor = [row for row in rows if row.strategy.startswith("tensor")]
    mapped, ordered = sum(row.mapped for row in tensor), sum(row.in_order for row in tensor)
    return Order(in_order, in_order + mapped - ordered, ordered, mapped)


def crossing_table(plan: Plan = PLAN, mapping: Mapping | None = None) -> Table:
    """Which groups cross hosts as mapped, and with the ranks in block order."""
    rows = [
        (name, str(one.groups), str(one.across), str(one.in_order))
        for name, one in crossings(mapping or cyclic(), plan).items()
    ]
    return table(("dimension", "groups", "cross hosts as mapped", "in block order"), rows)


CLUSTERS = ("h100", "a100", "a100-40", "b200", "cloud-25gbe")


def order_table(names=CLUSTERS) -> Table:
    """Claim 5.1-b on several clusters, by the ports of a host."""
    rows = []
    for name in names:
        machine, found = cluster(name, nodes=2), wrong_order(name)
        ports = f"{digits(machine.nics_per_node)} x {format_rate(machine.inter.bandwidth)}"
        rows.append(
            (
                name,
                ports,
                f"{format_time(found.tensor_in_order)} and {format_time(found.tensor_mapped)}",
                f"{format_time(found.in_order)} and {format_time(found.mapped)}",
                f"{found.slower:.2f}x",
            )
        )
    heads = ("two hosts of", "ports of a host", "tensor parallel, block and cyclic", "step", "slower")
    return table(heads, rows)


def launcher_table() -> Table:
    """What makes ranks consecutive, as each launcher spells it."""
    return table(("launcher", "ranks host by host"), LAUNCHERS.items())
