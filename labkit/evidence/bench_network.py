"""Which network a backend was told to use, and which one it chose.

Two settings: the interface of the sockets (start-up, and data where there is no RDMA), and NCCL's list of
RDMA devices. Naming the first does not choose the second.
"""

import os
import platform
import re
import socket
import struct
import tempfile
from pathlib import Path

from labkit.errors import InputRefused
from labkit.spec.checks import shown

_SOCKETS = {"nccl": "NCCL_SOCKET_IFNAME", "gloo": "GLOO_SOCKET_IFNAME"}
_RDMA = "NCCL_IB_HCA"
_CHOSEN = re.compile(r"NCCL INFO (NET/\w+ : Using .{1,200}|Using network .{1,60})")
_ADDRESS_OF = 0x8915  # SIOCGIFADDR of Linux
_MOST_READ = 1_000_000  # bytes of NCCL's own log


def check_interface(interface: str | None) -> None:
    """Refuses a name that no interface of this host has, and lists those it has."""
    known = [name for _, name in socket.if_nameindex()]
    if interface is not None and interface not in known:
        raise InputRefused(
            f"--interface {shown(interface)}: {platform.node()} has {', '.join(known)}; name one of them"
        )


def name_interface(backend: str, interface: str | None) -> None:
    """Tell the backend which interface to use; NCCL takes a name for a prefix unless "=" stands before it."""
    if interface is not None:
        os.environ[_SOCKETS[backend]] = f"={interface}" if backend == "nccl" else interface


def told(backend: str) -> str:
    """What the environment tells the backend, as one line."""
    names = [_SOCKETS[backend], *([_RDMA] if backend == "nccl" else [])]
    return ", ".join(f"{name} {os.environ.get(name) or 'not set'}" for name in names)


def log_of_nccl(backend: str) -> Path | None:
    """Have NCCL write what it chooses to a file, before it starts; None where the reader has set its log."""
    if backend != "nccl" or "NCCL_DEBUG" in os.environ:
        return None
    handle, name = tempfile.mkstemp(prefix="labkit-nccl-")
    os.close(handle)
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=name)
    return Path(name)


def chosen(backend: str, log: Path | None) -> str:
    """The network that the backend chose, as far as it tells; asked after the first collective."""
    if backend == "gloo":
        return _chosen_by_gloo(os.environ.get(_SOCKETS[backend]))
    if log is None:
        return "see NCCL's own log (NCCL_DEBUG is set)"
    try:
        text = log.read_bytes()[:_MOST_READ].decode("utf-8", errors="replace")
    finally:
        log.unlink(missing_ok=True)
    found = dict.fromkeys(line.strip() for line in _CHOSEN.findall(text))
    return "; ".join(found) or "NCCL does not say"


def _chosen_by_gloo(interface: str | None) -> str:
    """gloo takes the interface named, else the one with the address of the host's name, else the loopback."""
    addresses = {name: address for _, name in socket.if_nameindex() if (address := address_of(name))}
    if interface:
        return f"{interface} {addresses.get(interface, '')}".strip()
    try:
        own = socket.gethostbyname(socket.gethostname())
    except OSError:
        return "loopback (the host's name has no address)"
    owner = next((name for name, address in addresses.items() if address == own), "")
    if not owner and own.startswith("127."):
        owner = "loopback"
    return f"{owner} {own}".strip()


def address_of(interface: str) -> str:
    """The IPv4 address of an interface, empty where it has none or the system is not Linux."""
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            request = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(asked.fileno(), _ADDRESS_OF, request)[20:24])
    except (ImportError, OSError):
        return ""
