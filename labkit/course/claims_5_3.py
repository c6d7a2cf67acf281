"""Section 5.3's claims on the start of a job: its order, its limits, its interface and its barrier."""

from labkit.course import chapter5_launch as launch
from labkit.course.claims import claim
from labkit.evidence.bench_options import parse
from labkit.units import GB, format_rate, format_share

CARD = 80 * GB


@claim(
    "5.3-a",
    "Order of the start 初始化顺序: set the device, init the group, print the ranks, then a barrier",
    guide="this order; timeout 30 min; network interface named",
)
def order_of_the_start():
    steps = ", ".join(name for name, _ in launch.launcher_order())
    told = launch.topology_print().split("network told: ")[1].split("\n")[0]
    limit = parse(["all_reduce"]).timeout
    seconds = ", ".join(f"{step} {took}" for step, took in launch.start_seconds().items())
    return f"launcher: {steps}; limit {limit:g} min, {told}; as run on two hosts with gloo: {seconds}"


@claim(
    "5.3-d",
    "Rank 0 prints the topology of all: if global_rank() == 0: print_topology() 打印拓扑",
    guide="the print stands under a rank condition",
    verdict="corrected",
    why="rank 0 does not know where the others are, and a gather inside the branch is the very call that the "
    "section forbids: all ranks gather, rank 0 prints",
)
def gather_outside_of_the_branch():
    gather, others = launch.waits()[0], launch.waits()[1:]
    under = {name: inside for name, inside in launch.launcher_order()}
    kept = "outside of the branch" if under["say"] and not under["gathered"] else "inside"
    places = {f"the {where}" for _, _, where, _ in others}
    return (
        f"run with the gather inside: rank 0 waits in the {gather[2]}, {len(others)} others in "
        f"{', '.join(places)}, all {1 + len(others)} until the limit of {gather[1]:g} s; launcher: gather "
        f"{kept}, print inside"
    )


@claim(
    "5.3-f",
    "The default timeout 超时 of ten minutes is too short, 30 minutes are right; the error says nothing",
    guide="10 min by default; 30 min; only 连接超时",
    verdict="approximately",
    why="10 min is the default of NCCL, 30 that of the others; NCCL's error names operation, number and "
    "sizes (gloo's does not); the limit runs only while somebody waits; a long one costs its length on every "
    "card, so use two: long for the start, short afterwards",
)
def price_of_a_limit():
    defaults = ", ".join(f"{name} {minutes:g} min" for name, minutes in launch.DEFAULT_LIMITS.items())
    hang = launch.card_hours(launch.GUIDE_LIMIT, launch.CARDS)
    short = launch.card_hours(launch.RUN_LIMIT, launch.CARDS)
    named = ", ".join(f"{what} {value}" for what, value in launch.message_fields().items())
    return (
        f"defaults: {defaults}; {launch.GUIDE_LIMIT:g} min x {launch.CARDS} cards = {hang:g} card-hours a "
        f"hang, {short:.3g} with {launch.RUN_LIMIT:g} min afterwards; NCCL's error: {named}"
    )


@claim(
    "5.3-g",
    "Name the network interface 通信网卡, or detection takes the management interface",
    guide="10x less bandwidth",
    why="it is two settings: the sockets' interface does not choose the RDMA devices",
)
def wrong_interface():
    low, *_, high = (rate / launch.MANAGEMENT_RATE for rate in launch.PORT_RATES)
    rates = (format_rate(launch.interface_sweep(name).busbw[0]) for name in (launch.DATA, launch.MANAGEMENT))
    fast, slow = rates
    return (
        f"{launch.MANAGEMENT_RATE:g} Gb/s against {launch.PORT_RATES[0]:g} to {launch.PORT_RATES[-1]:g}: "
        f"{low:g}x to {high:g}x; run on interfaces of 1 and 0.1 Gb/s: busbw {fast} and {slow}, "
        f"{launch.interface_ratio():.1f}x"
    )


@claim(
    "5.3-h",
    "Bind the device before the process group 设备绑定, or memory allocation fails",
    guide="set_device first",
    why="what counts is that no card is touched before: each process would make its context on card 0",
)
def contexts_of_the_wrong_order():
    right, _, wrong, _ = (launch.contexts_of(order) for order in launch.ORDERS)
    lost = (wrong[0] - 1) * launch.CONTEXT
    return (
        f"8 processes, bound first: {max(right)} context a card; touched before: {wrong[0]} on card 0, "
        f"{wrong[1]} on the others; {lost / GB:.3g} GB of card 0 lost, {format_share(lost / CARD)} of 80 GB"
    )


@claim(
    "5.3-i",
    "A barrier 屏障 once, so that all processes are there before anything goes on",
    guide="barrier at the end of the start",
    why="the first collective connects the ranks (with gloo the group itself does), so that a wrong "
    "interface fails there and not after the model has been loaded; where a gather comes before, it is that",
)
def first_collective():
    seconds = launch.start_seconds()
    return (
        f"as run on two hosts: gather (the first collective) {seconds['gather']}, barrier after it "
        f"{seconds['barrier']}"
    )


@claim(
    "5.3-j",
    "The code block 代码: device, process group, topology, barrier",
    guide="four numbered steps, flattened into one line",
    why="restored as the launcher's own code; its third step mended as in 5.3-d",
)
def code_block():
    marks = (f"{name}{' (rank 0)' * inside}" for name, inside in launch.launcher_order())
    return " → ".join(marks)
