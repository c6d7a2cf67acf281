"""A predicted and a measured step side by side, term by term."""

from collections.abc import Sequence

from labkit.errors import InputRefused
from labkit.spec import StepTime
from labkit.spec.checks import noun, without_arrays
from labkit.spec.step_time import TERMS


def beside(predicted: StepTime, measured: StepTime | Sequence[StepTime]) -> list[tuple[str, float, float]]:
    """Rows (term, predicted seconds, measured seconds) of all terms that either has, then of the sums.

    ``measured``: a step, or the steps of a rank, of which the mean is taken. A profile books a pipeline's
    bubble as ``pp`` where a rank waits inside a receive, else as ``idle``. Refused: steps of many plans.

    >>> beside(StepTime(compute=0.8, dp=0.2), [StepTime(compute=1.0, dp=0.5), StepTime(compute=1.0)])
    [('compute', 0.8, 1.0), ('dp', 0.2, 0.25), ('total', 1.0, 1.25), ('exposed', 0.2, 0.25)]
    """
    steps = list(measured) if isinstance(measured, list | tuple) else [measured]
    if not steps:
        raise InputRefused("there is no measured step; read a trace that has one")
    for one in (predicted, *steps):
        noun(one, StepTime, "a step beside another")
        without_arrays("a step beside another", step=one)
    rows = []
    for name in (*TERMS, "total", "exposed"):
        pair = getattr(predicted, name), sum(getattr(step, name) for step in steps) / len(steps)
        if any(pair):
            rows.append((name, *pair))
    return rows
