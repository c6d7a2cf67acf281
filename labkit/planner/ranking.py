"""What a table of plans answers: time against memory, what a run costs, how sure the first place is."""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.planner.search import carried
from labkit.spec.checks import amount
from labkit.spec.rule import counted
from labkit.units import format_share, plain

_DAY, _HOUR = 86_400.0, 3_600.0

# What neither the time nor the memory of a plan knows of, and a search therefore never proposes.
NOT_MODELLED = (
    "offload of optimizer states, parameters or activations to host memory or disks",
    "optimizers other than Adam, and states in 8 bits",
    "training of a part of the weights: LoRA, adapters, frozen layers",
    "matrix products in 8 or 4 bits, and what they need beside: scales, copies in 16 bits",
    "sequences of different lengths: packing, padding, and replicas that wait for the longest",
    "experts that get more tokens than others, capacity limits and dropped tokens",
    "stages with unlike layers: dense and expert layers in turn, an encoder, a vision tower",
    "recompute of some layers only, or of other parts than attention and whole layers",
    "compression of gradients, updates from older weights, several steps between two all_reduces",
    "networks that others use too, and collectives that are slower beside kernels",
    "reading of input, checkpoints, failures and restarts",
    "clusters of unlike GPUs or unlike links, and a part of the GPUs left idle",
)


def front(table):
    """Rows of a table of ``search`` that no other beats in both seconds and memory, the fastest first.

    Each row takes less memory than all that are faster. Refused: what is no such table.
    """
    carried(table, "seconds", "memory")
    if np.ndim(table["seconds"]) == 0:
        raise InputRefused("a front is that of a table; give the table, not one row")
    seconds, memory = table["seconds"].to_numpy(), table["memory"].to_numpy()
    order = np.lexsort((memory, seconds))
    least = np.minimum.accumulate(memory[order])
    return table.iloc[order[np.append(True, least[1:] < least[:-1])[: order.size]]]


def tokens_per_day(plans):
    """Tokens that one row, or each row of a table, works through in a day without a pause."""
    carried(plans, "tokens_per_s")
    return plain(np.asarray(plans["tokens_per_s"], float) * _DAY)


def gpu_hours(plans, tokens: float):
    """GPU-hours to train on so many tokens, of one row or of each row of a table, without a pause.

    Refused: what is no such row or table, and tokens that are not above 0.
    """
    carried(plans, "tokens_per_s_per_gpu")
    tokens = amount(tokens, "the number of tokens", arrays=False)
    return plain(tokens / np.asarray(plans["tokens_per_s_per_gpu"], float) / _HOUR)


@dataclass(frozen=True, slots=True, repr=False)
class Lead:
    """How far the first plan of a table is ahead: ``gap``, what the second takes longer, as a share.

    ``error``: of the model, a share of a step. ``near``: plans, the first not counted, that take at most so
    much longer; which of them is the fastest the model cannot tell.
    """

    gap: float
    error: float
    near: int

    @property
    def sure(self) -> bool:
        """Whether the gap is larger than the error of the model."""
        return self.gap > self.error

    def __repr__(self):
        said = f"the runner-up takes {format_share(self.gap)} longer"
        if self.sure:
            return f"{said}, more than the model's error of {format_share(self.error)}"
        return (
            f"{said}, less than the model's error of {format_share(self.error)}, within which "
            f"{counted(self.near, 'more plan')} lie{'s' if self.near == 1 else ''}: measure a few of them"
        )


def stated_error(table) -> float:
    """The error of a step that the model states for the cluster of a table of ``search``, a share."""
    return carried(table)["cluster"].gpu.kernels.residual


def runner_up(table, error: float | None = None) -> Lead:
    """How close the second plan of a table is to the first, against the ``error`` of the model, a share.

    Unless given it is the ``kernels.residual`` of the cluster's GPU, below which no prediction tells apart.

    Refused: what is no table of ``search``, one of fewer than two plans, and an error below 0.
    """
    carried(table, "seconds")
    error = stated_error(table) if error is None else error
    error = amount(error, "the error of the model, a share of a step,", zero=True, arrays=False).item()
    seconds = np.sort(np.atleast_1d(table["seconds"]))
    if seconds.size < 2:
        raise InputRefused(f"the table has {counted(seconds.size, 'plan')}; a runner-up takes two")
    longer = seconds / seconds[0] - 1
    return Lead(longer[1].item(), error, int(np.count_nonzero(longer <= error)) - 1)
