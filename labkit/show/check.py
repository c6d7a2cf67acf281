"""Is everything in place? One line per part of the workbook, each tried for real."""

from collections.abc import Callable

from labkit.course.table import Table, table


def check_installation() -> Table:
    """Proves a collective, loads a preset, reads and fits a shipped log, and draws a figure.

    A row each, with ``ok`` or why not. Nothing here raises: the first cell of a course must be able to say
    what is missing.
    """
    return table(("part", "result"), ((name, _outcome(part)) for name, part in _PARTS.items()))


def _outcome(part: Callable[[], object]) -> str:
    try:
        part()
    except Exception as failure:
        return f"not ok: {type(failure).__name__}: {failure}"
    return "ok"


def _prove() -> None:
    from labkit.collectives import prove, trace

    prove(trace("all_reduce", "ring", 8))


def _preset() -> None:
    from labkit.presets import cluster

    cluster("h100", nodes=2)


def _log() -> None:
    from labkit.evidence.sweep import read_sweep
    from labkit.presets import sample_sweeps

    for path in sample_sweeps().values():
        read_sweep(path)[0].fit()


def _figure() -> None:
    from labkit.show.labs import alpha_beta
    from labkit.show.live import live

    live(alpha_beta)._repr_mimebundle_()


_PARTS = {
    "a ring AllReduce of 8 ranks, proved on real numbers": _prove,
    "the hardware presets": _preset,
    "the shipped sweep logs, read and fitted": _log,
    "a live figure": _figure,
}
