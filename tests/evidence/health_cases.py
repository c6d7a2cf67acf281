"""Measured jobs that the tests of the scorecard share."""

from labkit.evidence.health import health
from labkit.evidence.measured import Measured
from labkit.spec import StepTime

ALL = ("bubble", "idle", "data")


def step(mfu=0.45, gpus=64, again=0.0, **terms):
    """A step of 1 s in all, the rest of which is compute, with this MFU."""
    terms = {"compute": 1 - sum(terms.values()), **terms}
    flops = mfu * gpus * 312e12
    return dict(
        step=StepTime(
            **terms,
            communication=sum(terms.get(name, 0) for name in ("tp", "dp", "ep")),
            gpus=gpus,
            tokens=1e5,
            peak=312e12,
            model_flops=flops,
            hardware_flops=flops * (1 + again),
        )
    )


def of(metric, **measured):
    return health(Measured(**measured)).of(metric)
