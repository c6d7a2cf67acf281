"""The card of a rank: bound first, named, and on which cards of its host the process holds a context."""

import ctypes
import os
import platform

from labkit.errors import InputRefused

_FIRST_CARDS = 64  # no host has more


def choose_backend(wanted: str | None, here: int | None = None) -> str:
    """The backend asked for, else nccl where the host has GPUs, else gloo; refused where it cannot run.

    ``here``: ranks on this host, as torchrun says where it is None.
    """
    import torch

    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backend = wanted or ("nccl" if cards else "gloo")
    here = here or int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if backend == "nccl" and not cards:
        raise InputRefused(
            f"{platform.node()} has no GPU that torch can use, which nccl needs; use --backend gloo"
        )
    if backend == "nccl" and here > cards:
        raise InputRefused(
            f"{platform.node()} has {cards} GPUs for {here} ranks; start one rank for each GPU, or use "
            "--backend gloo"
        )
    return backend


def bind(backend: str, local_rank: int):
    """The device of the rank that is ``local_rank`` on its host, made the current one: a GPU for nccl."""
    import torch

    if backend != "nccl":
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def name_of(device) -> str:
    """What the device is: the GPU's name, or the processor's architecture."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def contexts() -> tuple[int, ...]:
    """The cards on which this process holds a context, as CUDA numbers them for it; none without CUDA.

    Asks the driver (``cuDevicePrimaryCtxGetState``), which makes no context itself.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    found = []
    for card in range(min(count.value, _FIRST_CARDS)):
        failed = driver.cuDevicePrimaryCtxGetState(card, ctypes.byref(flags), ctypes.byref(active))
        if not failed and active.value:
            found.append(card)
    return tuple(found)
