"""Every argument of the room given what it is not: used, or refused in one sentence."""

import numpy as np
import pytest

from labkit.evidence.limits import GUIDE
from labkit.evidence.measured import Measured
from labkit.evidence.triage import (
    Exchange,
    ScalingEvidence,
    distribution,
    drift,
    modes,
    period,
    scaling_triage,
)
from labkit.evidence.triage.rhythm import switch
from labkit.practice import data_loading as loading
from tests.planner.test_wrong_input import refusals

STEPS, WORK = np.ones(30), np.ones((30, 4))
CALL = {"operation": "all_reduce", "size": 1e9, "ranks": 4, "busbw": 1e9, "seconds": 1.0, "count": 1}
CALL |= {"members": (0, 1, 2, 3)}
KNOWN = {"measured": Measured(), "loading": [0.1], "workers": 1, "counter": 0.5, "exchanges": ()}
KNOWN |= dict.fromkeys(("mapping", "plan", "model", "cluster"))
HOST = {"cards": 8, "samples": 8, "step": 0.3, "workers": 8, "cores": 64, "seconds": 0.06}
HOST |= {"decode": 0.5, "transform": 0.4, "sample_bytes": 1e5}
CALLS = [
    (distribution, {"steps": STEPS, "work": WORK, "limits": GUIDE}),
    (distribution, {"steps": STEPS, "arrivals": WORK}),
    (modes, {"times": STEPS}),
    (drift, {"times": STEPS}),
    (period, {"slow": [1, 2]}),
    (switch, {"slow": [1, 2], "steps": 30}),
    (Exchange, CALL),
    (ScalingEvidence, KNOWN),
    (scaling_triage, {"evidence": ScalingEvidence(), "limits": GUIDE}),
    (loading.host_demand, {"cards": 8, "rate": 25.0}),
    (loading.storage_demand, {"hosts": 4, "cards": 8, "rate": 25.0, "sample_bytes": 1e6}),
    (loading.supply, {"workers": 8, "seconds": 0.04, "cores": 64.0}),
    (loading.workers_needed, {"cards": 8, "rate": 25.0, "seconds": 0.04}),
    (loading.loader_wait, {"step": 0.3, "samples": 64, "workers": 8, "seconds": 0.04, "cores": 64.0}),
    (loading.Host, HOST),
    (
        loading.remedy,
        {"host": loading.Host(), "name": "more workers", "card_seconds": 1e-3, "growth": 4.0},
    ),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("call", "given"), CALLS, ids=lambda part: getattr(part, "__name__", ""))
def test_every_argument_of_every_kind(call, given):
    assert refusals(call, given) >= len(given) * 10
