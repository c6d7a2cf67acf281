"""What a line at level WARN of NCCL tells: most are a consequence, some are none at all."""

import re

_KINDS = (
    ("harmless", r"libibverbs|Failed to find nccl\w+ symbol|set by environment|NUMA auto balancing"),
    ("mismatch", r"[Mm]ismatched collective"),
    ("out of memory", r"out of memory|Failed to CUDA calloc|Failed to CUDA host alloc"),
    (
        "completion error",
        r"[Gg]ot (?:completion|CQE|async)|completed with error|fatal event|port error|Call to ibv_\w+ failed"
        r"|ibv_poll_cq|Request .{0,80}completed with error|link (?:is )?down",
    ),
    (
        "no network",
        r"[Nn]etwork .{0,80}not found|[Nn]o (?:socket )?interface found"
        r"|NET/Plugin.{0,40}(?:Could not|Failed to) (?:find|load|initialize)",
    ),
    (
        "connection",
        r"[Cc]onnection (?:refused|reset|closed|timed out|abort)|No route to host|[Nn]etwork is unreachable"
        r"|Broken pipe|[Cc]onnect(?: to \S+)? (?:failed|returned)|[Cc]onnect to .{0,80}failed"
        r"|software caused connection abort|Host is down",
    ),
    ("no rendezvous", r"[Bb]ootstrap.{0,80}(?:time[d ]*out|mismatch|not all)"),
)
_WARNINGS = [(kind, re.compile(words)) for kind, words in _KINDS]
_OWN_PLUGINS = {"libnccl-net.so", "none", "libnccl-net-none.so"}


def kind_of_warning(words: str) -> str:
    """One of ``records.NOTES`` for the text of an NCCL warning.

    >>> kind_of_warning("Failed to open libibverbs.so[.1]")
    'harmless'
    >>> kind_of_warning("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129")
    'completion error'
    """
    return next((kind for kind, pattern in _WARNINGS if pattern.search(words)), "warning")


def wanted_plugin(words: str) -> bool:
    """Whether a plugin was asked for by name and not found; that of no name is missing on most machines.

    >>> wanted_plugin("NET/Plugin: Could not find: ofi libnccl-net-ofi.so. Using internal network plugin.")
    True
    """
    found = re.search(r"NET/Plugin ?: Could not find: ?(.{0,200}?)\. Using", words)
    return bool(found) and not set(found[1].split()) <= _OWN_PLUGINS
