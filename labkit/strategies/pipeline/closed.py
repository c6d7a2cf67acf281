"""How long a step's pipeline takes, in closed form, for arrays of plans: what a search asks.

A longest path through an order passes few places: the work of one rank and what it must wait for before,
between and after, or a cycle over neighbouring ranks that wait for each other's transfers. ``pipeline_span``
is the longest of those; the simulation, which knows none of them, is the proof.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from labkit.strategies.pipeline.closed_split import (
    zb_1p_span,
    zb_2p_span,
    zb_h1_span,
    zb_h2_span,
    zb_v_span,
)
from labkit.strategies.pipeline.closed_whole import gpipe_span, interleaved_span, one_f_one_b_span
from labkit.strategies.pipeline.kinds import FIRST, INNER, LAST, LONGER, Stages, most
from labkit.strategies.pipeline.pipelines import Pipelines
from labkit.units import plain


def pipeline_span(schedule, p, m, v, forward, backward, weight_gradient=None, transfer=0.0, longer=0):
    """Seconds from a step's first forward to the end of its last backward, on ``p`` ranks.

    Everything broadcasts. ``schedule``: a name of ``labkit.spec.plan.SCHEDULES``, or an array of them; 1f1b
    with v above 1 is interleaved (m a multiple of p); zb-v has two chunks a rank and the others one,
    whatever ``v`` is. ``forward``, ``backward`` (all of it) and ``weight_gradient`` (its part, half unless
    given): seconds of one micro-batch on one stage (a chunk, where ranks have several), in four places along
    the last axis: the first stage, an inner one, a longer inner one, the last. ``longer``: how many inner
    stages are longer; they follow the others. A place without a stage has no say; a single stage is the
    last. ``transfer``: seconds from one rank to the next, as in ``simulate``.

    GPipe is exact; 1F1B, and interleaved 1F1B of chunks of equal layers, are within 1 % of the simulation
    with unequal ends and transfers, and mostly exact; the zero-bubble schedules are bounds from below, exact
    for equal passes and mostly within a few percent else (tests/strategies/pipeline/test_closed.py). Refused:
    names, counts and times that are none, more longer stages than there are inner ones, and shapes that do
    not broadcast.

    >>> one, two = np.ones(4), np.full(4, 2.0)
    >>> pipeline_span("1f1b", 4, 16, 1, one, two)
    57.0
    >>> pipeline_span(np.array(["gpipe", "zb-h1"]), 4, np.array([[8], [16]]), 1, one, two).tolist()
    [[33.0, 27.0], [57.0, 51.0]]
    """
    schedule, pipelines = Pipelines.checked(
        schedule, p, m, v, forward, backward, weight_gradient, transfer, longer
    )
    return plain(pipelines.each(schedule, _SPANS))


def _chunks(
    formula: Callable[[Stages], np.ndarray], v: float | None = None
) -> Callable[[Pipelines], np.ndarray]:
    """A formula of stages as one of pipelines, of ``v`` chunks a rank where the schedule has so many."""

    def of_pipelines(pipelines: Pipelines) -> np.ndarray:
        return formula((pipelines if v is None else replace(pipelines, v=np.asarray(v))).stages())

    return of_pipelines


def _one_f_one_b(pipelines: Pipelines) -> np.ndarray:
    """1F1B, interleaved where ranks have several chunks."""
    form = np.where(pipelines.v > 1, "interleaved", "plain")
    return pipelines.each(
        form, {"interleaved": _chunks(interleaved_span), "plain": _chunks(one_f_one_b_span)}
    )


_SPANS = {
    "gpipe": _chunks(gpipe_span, 1.0),
    "1f1b": _one_f_one_b,
    "zb-h1": _chunks(zb_h1_span, 1.0),
    "zb-h2": _chunks(zb_h2_span, 1.0),
    "zb-v": _chunks(zb_v_span, 2.0),
    "zb-1p": _chunks(zb_1p_span, 1.0),
    "zb-2p": _chunks(zb_2p_span, 1.0),
}


def pipeline_work(schedule, p, m, v, forward, backward, longer=0):
    """Seconds that the busiest rank of a pipeline works in a step; what is given is as in ``pipeline_span``.

    The rest of the span is bubble and transfers that show: what the transfers add is the span less that
    without them.

    >>> one, two = np.ones(4), np.full(4, 2.0)
    >>> pipeline_work("1f1b", 4, 16, 1, one, two)
    48.0
    """
    schedule, pipelines = Pipelines.checked(schedule, p, m, v, forward, backward, None, 0.0, longer)
    return plain(pipelines.each(schedule, _WORK))


def _work_in_turn(stages: Stages) -> np.ndarray:
    """Of the ranks that the stages go round."""
    return stages.m * most(stages.on_ranks(stages.work))


def _folded_work(stages: Stages) -> np.ndarray:
    """Of the ranks that the stages go down and up again: the first has both ends."""
    work, p, longer = stages.work, stages.p, stages.number[LONGER]
    inner = np.where(longer > 0, work[LONGER], work[INNER]) + np.where(longer >= p, work[LONGER], work[INNER])
    return stages.m * np.maximum(work[FIRST] + work[LAST], np.where(p > 1, inner, 0))


_WORK = {
    **dict.fromkeys(_SPANS, _chunks(_work_in_turn, 1.0)),
    "1f1b": _chunks(_work_in_turn),
    "zb-v": _chunks(_folded_work, 2.0),
}
