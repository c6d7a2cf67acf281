"""What makes a plan impossible or unwise for a model on a cluster: every rule, all at once.

A rule answers with a mask, so that it holds for one plan and for an array of plans. ``problems`` renders
every broken rule of one plan in words, with the numbers and with the nearest values that work.
"""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import rules_batch, rules_shape
from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.rule import ADVICE, IMPOSSIBLE, Problem
from labkit.spec.transformer import Transformer
from labkit.units import plain

# What is impossible comes first.
RULES = tuple(sorted((*rules_shape.RULES, *rules_batch.RULES), key=lambda rule: rule.severity == ADVICE))


def problems(model: Transformer, cluster: Cluster, plan: Plan) -> list[Problem]:
    """Every rule that one plan breaks, all at once, what is impossible first; an empty list for a good plan.

    Refused: a plan of arrays (ask the ``RULES`` for masks).
    """
    if np.ndim(plan.ranks + np.asarray(plan.micro_batch)):
        raise InputRefused("problems() words one plan; give single numbers, not arrays")
    return [
        Problem(rule.name, rule.severity, *rule.says(model, cluster, plan))
        for rule in RULES
        if rule.mask(model, cluster, plan)
    ]


def allowed(model: Transformer, cluster: Cluster, plan: Plan):
    """Where no rule makes the plan impossible: a bool, or an array of them."""
    bad = np.asarray(False)
    for rule in RULES:
        if rule.severity == IMPOSSIBLE:
            bad = bad | rule.mask(model, cluster, plan)
    return plain(~bad)
