"""Triage: questions in a fixed order over evidence, up to the first that explains; step times as evidence."""

from labkit.evidence.triage.distribution import Distribution, StepFinding, distribution
from labkit.evidence.triage.exchanges import Exchange
from labkit.evidence.triage.hangs import hang_triage
from labkit.evidence.triage.modes import Mode, modes
from labkit.evidence.triage.profiled import profile_evidence
from labkit.evidence.triage.rhythm import drift, period
from labkit.evidence.triage.scaling import scaling_triage
from labkit.evidence.triage.scaling_evidence import ScalingEvidence
from labkit.evidence.triage.steps import Step, Triage, walk

__all__ = [
    "Distribution",
    "Exchange",
    "Mode",
    "ScalingEvidence",
    "Step",
    "StepFinding",
    "Triage",
    "distribution",
    "drift",
    "hang_triage",
    "modes",
    "period",
    "profile_evidence",
    "scaling_triage",
    "walk",
]
