"""What an engineer has of a running job: the noun that the scorecard reads. Everything may be missing."""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import StepTime
from labkit.spec.checks import amount, floats, label, noun, shown, whole, without_arrays
from labkit.spec.step_time import COMMUNICATION, TERMS
from labkit.strategies.checks import flag, shaped, share


@dataclass(frozen=True, slots=True)
class Throughput:
    """``per_s`` samples or tokens a second of a job of ``gpus`` GPUs together; ``what`` names the job.

    >>> Throughput(240, 8, "one node").per_gpu
    30.0
    """

    per_s: float
    gpus: int
    what: str = "the job"

    def __post_init__(self):
        amount(self.per_s, "the throughput of a job, per second,", arrays=False)
        whole(self.gpus, "the number of GPUs of a job")
        label(self.what, "the name of a job")

    @property
    def per_gpu(self) -> float:
        """What one GPU gets done in a second."""
        return self.per_s / self.gpus


@dataclass(frozen=True, slots=True)
class Measured:
    """A job as measured. Seconds, samples or tokens a second, shares; None where it is not known.

    ``step``: one step by cause, single numbers. A term that is 0 there counts as not looked at, unless
    ``known`` names it, as in ``known=("bubble", "idle")``. ``causal``: whether its ``model_flops`` count
    attention causally.

    ``throughput``: of the job (else that of the step, in tokens). ``base``: the same of the smallest replica
    that runs, with the plan and the batch of each replica of the job. ``base_mfu``: the MFU of that base.
    ``steps``: seconds of every step, not their mean.

    Of each rank: ``rank_steps``, seconds of its step; ``rank_work``, of its own work outside of collectives;
    ``rank_arrivals``, when it came to one collective. The last two may be of several steps, shape (steps,
    ranks). ``rank_stage``: its pipeline stage; ``rank_tokens``, ``rank_expert_tokens``: tokens of its
    samples, tokens that its experts were given. ``bucket_share``: the part of its bandwidth that a link
    reaches with one gradient bucket (``labkit.collectives.bandwidth_share``, or from a sweep
    ``labkit.evidence.baseline.plateau_share``).

    Refused: other nouns, arrays of other shapes, seconds below 0, a step of 0 s, terms that no step has.
    """

    step: StepTime | None = None
    known: tuple[str, ...] = ()
    causal: bool | None = None
    throughput: Throughput | None = None
    base: Throughput | None = None
    base_mfu: float | None = None
    steps: np.ndarray | None = None
    rank_steps: np.ndarray | None = None
    rank_work: np.ndarray | None = None
    rank_arrivals: np.ndarray | None = None
    rank_stage: np.ndarray | None = None
    rank_tokens: np.ndarray | None = None
    rank_expert_tokens: np.ndarray | None = None
    bucket_share: float | None = None

    def __post_init__(self):
        self._check_step()
        if self.causal is not None:
            flag(self.causal, "causal, whether attention is counted causally,")
        for name in ("throughput", "base"):
            if getattr(self, name) is not None:
                noun(getattr(self, name), Throughput, f"{name} of a measured job")
        for name in ("base_mfu", "bucket_share"):
            value = getattr(self, name)
            if value is not None and not share(value, f"{name} of a measured job"):
                raise InputRefused(f"{name} of a measured job is 0; give a share above 0, or None if unknown")
        ranks: dict[str, int] = {}
        for name in ("rank_work", "rank_arrivals"):
            self._array(name, ranks, several_steps=True)
        for name in ("rank_steps", "rank_stage", "rank_tokens", "rank_expert_tokens"):
            self._array(name, ranks)
        self._array("steps", {})
        if len(set(ranks.values())) > 1:
            many = ", ".join(f"{name} {count}" for name, count in ranks.items())
            raise InputRefused(f"a measured job has one number of ranks, not {many}; give all ranks in each")

    def _check_step(self) -> None:
        if self.step is not None:
            noun(self.step, StepTime, "the step of a measured job")
            without_arrays("a measured step", step=self.step)
            if not self.step.total:
                raise InputRefused("the step of a measured job takes 0 seconds; give its seconds by cause")
        if not isinstance(self.known, tuple | list) or not all(isinstance(name, str) for name in self.known):
            raise InputRefused(f"known is {shown(self.known)}; give the names of terms, as ('bubble',)")
        for name in self.known:
            if name not in TERMS:
                raise InputRefused(f"a step has no term {shown(name)}; its terms are {', '.join(TERMS)}")

    def _array(self, name: str, ranks: dict[str, int], several_steps: bool = False) -> None:
        value = getattr(self, name)
        if value is None:
            return
        many = "steps" if name == "steps" else "ranks"
        what = f"{name} of a measured job"
        several = several_steps and floats(value).ndim == 2
        array = shaped(value, what, *(("steps", many) if several else (many,))).astype(float)
        if np.any(array < 0) or (name in ("steps", "rank_steps") and np.any(array == 0)):
            raise InputRefused(f"{what} has values that are too small; seconds and counts are not negative")
        object.__setattr__(self, name, array)
        ranks[name] = array.shape[-1]

    def knows(self, term: str) -> bool:
        """Whether a term of the step was looked at: it is above 0, named in ``known``, or communication of
        a step whose communication was measured."""
        if self.step is None:
            return False
        counted = term in COMMUNICATION and self.step.communication is not None
        return getattr(self.step, term) > 0 or term in self.known or counted

    @property
    def rate(self) -> Throughput | None:
        """The job's throughput, given or from its step."""
        step = self.step
        if self.throughput is not None or step is None or step.tokens is None or step.gpus is None:
            return self.throughput
        return Throughput(step.tokens_per_s, step.gpus)

    @property
    def work(self) -> np.ndarray | None:
        """Seconds of own work, shape (steps, ranks)."""
        return None if self.rank_work is None else np.atleast_2d(self.rank_work)

    @property
    def late(self) -> float | None:
        """Seconds by which the mean rank waits for the last one in a step (median of the steps)."""
        for times in (self.work, self.rank_arrivals):
            if times is not None:
                times = np.atleast_2d(times)
                return float(np.median(times.max(-1) - times.mean(-1)))
        return None
