"""Collective communication and model parallelism, to compute, to measure and to see.

Public names are loaded on first use, so that ``import labkit`` stays light.
"""

from importlib import import_module

_WHERE = {
    "InputRefused": "labkit.errors",
    "Gpu": "labkit.spec",
    "Link": "labkit.spec",
    "Cluster": "labkit.spec",
    "collective_cost": "labkit.collectives",
    "Transformer": "labkit.spec",
    "Plan": "labkit.spec",
    "StepTime": "labkit.spec",
    "step_time": "labkit.planner.step",
    "search": "labkit.planner.search",
    "plan_of": "labkit.planner.search",
    "why": "labkit.planner.why",
    "why_not": "labkit.planner.why_not",
    "problems": "labkit.spec",
    "memory": "labkit.planner.memory",
    "cluster": "labkit.presets",
    "model": "labkit.presets",
    "launcher_arguments": "labkit.evidence.launchers",
    "read_hang": "labkit.evidence.hang.read",
    "read_launcher": "labkit.evidence.launchers",
    "read_checkpoint": "labkit.evidence.checkpoint_files",
    "read_mapping": "labkit.evidence.mapping",
    "read_profile": "labkit.evidence.profile",
    "read_sweep": "labkit.evidence.sweep",
    "reshard": "labkit.practice.resharding",
    "fitted_cluster": "labkit.evidence.your_cluster",
    "best_plans": "labkit.evidence.best_plans",
    "health": "labkit.evidence.health",
    "Measured": "labkit.evidence.measured",
    "Throughput": "labkit.evidence.measured",
    "RunLog": "labkit.evidence.runs",
    "live": "labkit.show",
    "still": "labkit.show",
}
__all__ = sorted(_WHERE)
__version__ = "0.1.0"


def __getattr__(name: str):
    if name not in _WHERE:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__():
    return sorted([*globals(), *__all__])
