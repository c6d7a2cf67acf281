"""Profiler traces as evidence for the scaling triage: the step by cause, waiting for input, collectives."""

from collections.abc import Mapping as Dict

import numpy as np

from labkit.errors import InputRefused
from labkit.evidence.measured import Measured
from labkit.evidence.profile import Profile
from labkit.evidence.triage.exchanges import Exchange
from labkit.evidence.triage.scaling_evidence import ScalingEvidence
from labkit.spec import StepTime
from labkit.spec.checks import noun
from labkit.spec.step_time import TERMS


def profile_evidence(profile: Profile, busbw: Dict[str, float] | None = None, **known) -> ScalingEvidence:
    """What ``read_profile`` found, as the triage reads it.

    The step by cause is the mean of all ranks' steps. ``busbw``: what operations reach on these nodes when
    nothing else runs, in bytes/s, as ``{"all_reduce": 182e9}``; without it, waiting for late ranks is told
    and volume is not. Collectives that not every member's trace has are left out; of groups that do the same,
    such as replicas, the slowest counts. ``known``: further evidence, such
    as ``mapping``, ``plan`` and ``workers``. Refused: a profile without steps.
    """
    noun(profile, Profile, "the profile")
    if busbw is not None:
        noun(busbw, dict, "the measured bus bandwidths")
    steps = {rank: found for rank, found in profile.steps.items() if found}
    if not steps:
        raise InputRefused(
            "the profile has no steps; call profiler.step() after each and profile a few of them"
        )
    every = [step for found in steps.values() for step in found]
    told = [step.communication for step in every]
    means = {name: float(np.mean([getattr(step, name) for step in every])) for name in TERMS}
    communication = None if None in told else float(np.mean(told))
    loading = [float(np.mean([step.data for step in found])) for found in steps.values()]
    counted = min(len(found) for found in steps.values())
    return ScalingEvidence(
        Measured(StepTime(**means, communication=communication)),
        loading=loading if any(loading) else None,
        exchanges=_exchanges(profile, busbw or {}, counted),
        **known,
    )


def _exchanges(profile: Profile, busbw: Dict[str, float], steps: int) -> tuple[Exchange, ...]:
    """The collectives of whole groups; of groups that do the same, such as replicas, the slowest counts."""
    alike: dict[tuple, dict[tuple, list[list[float]]]] = {}
    for one in profile.collectives:
        ranks, members = one.group.members, tuple(sorted(one.seconds))
        if one.step is None or one.transfer is None or len(members) != ranks or one.op == "barrier":
            continue
        kind = alike.setdefault((one.op, one.size, ranks), {})
        kind.setdefault(members, []).append([one.seconds[rank] for rank in members])
    found = []
    for (op, size, ranks), groups in alike.items():
        members, calls = max(groups.items(), key=lambda item: np.sum(item[1]))
        count = max(1, round(len(calls) / steps))
        found.append(Exchange(op, size, ranks, busbw.get(op), calls, count, members))
    return tuple(found)
