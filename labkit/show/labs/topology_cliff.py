"""The bandwidth cliff of a cluster, and what one tensor-parallel layer costs on both sides of it."""

import numpy as np

from labkit.course import chapter2_topology as topology
from labkit.planner.placement import crossing_cost, rate_for_crossing_cost
from labkit.presets import cluster as load_cluster
from labkit.show import theme, ticks
from labkit.show.lab import Lab
from labkit.show.labels import EndLabels
from labkit.units import format_bytes, format_rate, format_share, format_time

PORTS = np.arange(1, 9)
LAYERS = ("device memory", "links inside a node", "all ports of a node", "one port")
DEGREE = 8  # tensor parallel, or the fast-link domain where that is smaller


def compute(cluster="a100", ports=1, port_rate=1.0, micro_batch=4):
    """The preset's bandwidths, and one layer's four AllReduces inside and across.

    Across, every node has ``ports`` ports of ``port_rate`` times the preset's.
    """
    machine = load_cluster(cluster)
    degree, rate = min(DEGREE, machine.domain), port_rate * machine.inter.bandwidth
    inside, across = topology.layer_seconds(machine, degree, np.append(PORTS, ports), rate, micro_batch)
    rates = (
        machine.gpu.memory_bandwidth,
        machine.intra.bandwidth,
        machine.node_bandwidth,
        machine.inter.bandwidth,
    )
    work = topology.layer(micro_batch)
    return dict(
        machine=machine,
        degree=degree,
        ports=ports,
        rate=rate,
        rates=dict(zip(LAYERS, rates, strict=True)),
        inside=inside,
        across=across,
        payload=work.activation_bytes,
        cost=crossing_cost(work, machine, ports, rate, degree=degree),
        three=rate_for_crossing_cost(work, machine, 3.0, degree=degree),
    )


def build(figure):
    """Left: four bandwidths on a log axis; right: time of a layer against ports."""
    left, right = theme.axes(figure, columns=2, left=0.175, right=0.865, bottom=0.16, top=0.88, wspace=0.38)
    ticks.scale(left.xaxis, "rate", log=10, most=3)
    left.set(xlim=(1e9, 3e13), ylim=(-0.6, 3.6), title="bytes per second, one direction")
    left.set_yticks([3, 2, 1, 0], LAYERS)
    left.grid(False, axis="y")
    colours = [theme.COLOURS[name] for name in ("device", "intra", "inter", "inter")]
    bars = left.barh([3, 2, 1, 0], [0] * 4, height=0.6, left=1e9, color=colours)
    bars[3].set_alpha(0.55)
    ticks.scale(right.yaxis, "time", log=10, most=5)
    right.set(xlim=(0.7, 8.3), ylim=(1e-4, 1e1), xlabel="ports per node", title="one layer, 4 AllReduces")
    lines = [
        right.plot([], [], "o-", ms=4, color=theme.COLOURS[colour], label=name)[0]
        for name, colour in (("two nodes", "inter"), ("one node", "intra"))
    ]
    return dict(
        bars=list(bars),
        says=[left.text(0, y, "", va="center") for y in (3, 2, 1, 0)],
        lines=lines,
        labels=EndLabels(right, lines),
        dot=right.plot([], [], "o", ms=9, color=theme.COLOURS["text"])[0],
        ratio=right.text(0.97, 0.95, "", transform=right.transAxes, ha="right", va="top", fontsize=12),
    )


def update(artists, result):
    """Bars, both curves and the ratio at the chosen ports."""
    for bar, text, rate in zip(artists["bars"], artists["says"], result["rates"].values(), strict=True):
        bar.set_width(rate - 1e9)
        text.set(text=f" {format_rate(rate)}", x=rate)
    across, inside = artists["lines"]
    across.set_data(PORTS, result["across"][:-1])
    inside.set_data(PORTS, np.full(PORTS.shape, result["inside"]))
    artists["dot"].set_data([result["ports"]], [result["across"][-1]])
    artists["ratio"].set_text(f"two nodes: {result['across'][-1] / result['inside']:.1f} x the time")
    return [
        *artists["bars"],
        *artists["says"],
        across,
        inside,
        *artists["labels"].place(),
        artists["dot"],
        artists["ratio"],
    ]


def readout(result):
    """The cliff, the layer, and what crossing costs, in numbers."""
    machine, degree, ports = result["machine"], result["degree"], result["ports"]
    memory, inside, node, port = result["rates"].values()
    many, one = result["across"][-1], result["inside"]
    chosen = f"{ports} x {format_rate(result['rate'])}"
    share = format_share(degree // 2 / machine.gpus_per_node)
    cliff = f"{inside / node:.1f}x less" if node < inside else "more"
    three = "no rate" if np.isnan(result["three"]) else format_rate(result["three"])
    return [
        f"{machine.name}: memory {format_rate(memory)}, inside {format_rate(inside)} "
        f"({memory / inside:.1f}x less), "
        f"all ports {format_rate(node)} ({cliff}), one {format_rate(port)}",
        f"TP {degree}, four AllReduces of {format_bytes(result['payload'])}: one node {format_time(one)}; "
        f"over two, with {share} of {chosen}: {format_time(many)} = {many / one:.1f}x",
        f"TP {2 * degree} over two nodes to TP {degree} in one, per sample and card: "
        f"{result['cost']:.1f}x with "
        f"{chosen}; 3x at {three} per node",
    ]


def alt(result):
    """What a reader who cannot see the picture needs."""
    return (
        f"Left: bandwidths of {result['machine'].name} from device memory to one network port on a log "
        "axis; right: time of the four AllReduces of one tensor-parallel layer, in one node and over two, "
        "against the ports per node."
    )


topology_cliff = Lab("topology_cliff", compute, build, update, readout, alt, size=(9.4, 3.8))
