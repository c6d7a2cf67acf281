"""StepTime: where the seconds of one step go, predicted or measured, so that both stand side by side."""

from dataclasses import dataclass, fields

import numpy as np

from labkit.spec.checks import amount, together
from labkit.units import digits, format_memory, format_share, format_time, plain

COMMUNICATION = ("tp", "cp", "ep", "pp", "dp")
TERMS = ("compute", *COMMUNICATION, "optimizer", "launch", "bubble", "data", "idle")


@dataclass(frozen=True, slots=True, repr=False)
class StepTime:
    """Exposed seconds of one step on its busiest rank, by cause; they add up to ``total``. Floats or arrays.

    ``compute``: forward, backward and what is recomputed. ``tp``, ``cp``, ``ep``, ``pp``, ``dp``: collectives
    of tensor, context, expert, pipeline and (sharded) data parallel that nothing hides. ``optimizer``: the
    update of the weights. ``launch``: what starting kernels takes. ``bubble``: a pipeline rank without work.
    ``data``: waiting for input. ``idle``: all other waiting.

    ``communication``: seconds of all collectives, hidden or not. ``tokens``, ``model_flops`` and
    ``hardware_flops`` are those of the whole job in a step, on ``gpus`` GPUs of ``peak`` FLOP/s each
    (dense). ``peak_memory``: bytes on the fullest rank. None where it is not known; what rests on it is None
    then too. Refused: seconds and amounts that are not finite or below 0.

    >>> step = StepTime(compute=0.8, dp=0.1, bubble=0.1, communication=0.3, tokens=4096, gpus=8)
    >>> step.total, round(step.coverage, 3), step.tokens_per_s_per_gpu, step.mfu
    (1.0, 0.667, 512.0, None)
    """

    compute: float = 0.0
    tp: float = 0.0
    cp: float = 0.0
    ep: float = 0.0
    pp: float = 0.0
    dp: float = 0.0
    optimizer: float = 0.0
    launch: float = 0.0
    bubble: float = 0.0
    data: float = 0.0
    idle: float = 0.0
    communication: float | None = None
    tokens: float | None = None
    gpus: int | None = None
    model_flops: float | None = None
    hardware_flops: float | None = None
    peak: float | None = None
    peak_memory: float | None = None

    def __post_init__(self):
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            amount(value, f"{name} of a step", zero=name not in ("gpus", "peak"))
        together("one step", **given)

    @property
    def total(self):
        """Seconds of the step: all terms together."""
        return self._sum(TERMS)

    @property
    def exposed(self):
        """Seconds of communication that nothing hides."""
        return self._sum(COMMUNICATION)

    @property
    def hidden(self):
        """Seconds of communication beside other work."""
        if self.communication is None:
            return None
        return plain(np.maximum(np.asarray(self.communication) - self.exposed, 0.0))

    @property
    def coverage(self):
        """Share of the communication that is hidden; 1 where there is none."""
        if self.communication is None:
            return None
        whole = np.asarray(self.communication, float)
        return plain(np.where(whole > 0, self.hidden / np.where(whole > 0, whole, 1.0), 1.0))

    @property
    def tokens_per_s(self):
        """Tokens that the job works through in a second."""
        return _over(self.tokens, self.total)

    @property
    def tokens_per_s_per_gpu(self):
        """Tokens a second for each GPU: what plans with different batches are compared by."""
        return None if self.gpus is None else _over(self.tokens, np.asarray(self.total) * self.gpus)

    @property
    def mfu(self):
        """Model FLOPs, nothing recomputed, over what the GPUs could do at their peak."""
        return self._utilisation(self.model_flops)

    @property
    def hfu(self):
        """All FLOPs that were done, the recomputed ones too, over what the GPUs could do at their peak."""
        return self._utilisation(self.hardware_flops)

    def __repr__(self):
        total = np.asarray(self.total)
        if total.ndim:
            low, high = format_time(total.min()), format_time(total.max())
            return f"step times of {total.size:,} plans, {low} to {high}"
        lines = [f"{'a step':10} {format_time(self.total):>9}"]
        for name in TERMS:
            seconds = getattr(self, name)
            if seconds > 0:
                lines.append(f"  {name:8} {format_time(seconds):>9} {format_share(seconds / total):>7}")
        said = [("exposed communication", format_share(self.exposed / total))] if total > 0 else []
        if self.coverage is not None:
            said.append(("of all communication hidden", format_share(self.coverage)))
        for name, value in (("MFU", self.mfu), ("HFU", self.hfu)):
            said += [] if value is None else [(name, format_share(value))]
        if self.tokens_per_s_per_gpu is not None:
            said.append(("tokens/s a GPU", digits(self.tokens_per_s_per_gpu)))
        if self.peak_memory is not None:
            said.append(("peak memory", format_memory(self.peak_memory)))
        return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in said)])

    def _utilisation(self, flops):
        if self.gpus is None or self.peak is None:
            return None
        return _over(flops, np.asarray(self.total) * self.gpus * self.peak)

    def _sum(self, names):
        return plain(sum(np.asarray(getattr(self, name), float) for name in names))


def _over(amount_done, seconds):
    """What is done per second; None where it is not known."""
    return None if amount_done is None else plain(np.asarray(amount_done, float) / seconds)
