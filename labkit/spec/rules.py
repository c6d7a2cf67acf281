"""What makes a plan impossible or unwise for a model on a cluster: every rule, all at once.

A rule answers with a mask, so that it holds for one plan and for an array of plans. ``problems`` renders
every broken rule of one plan in words, with the numbers and with the nearest values that work.
"""

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import rules_batch, rules_memory, rules_shape, rules_tokens
from labkit.spec.checks import noun
from labkit.spec.hardware import Cluster
from labkit.spec.plan import Plan
from labkit.spec.rule import ADVICE, IMPOSSIBLE, Problem
from labkit.spec.transformer import Transformer
from labkit.units import plain

# What is impossible comes first.
RULES = tuple(
    sorted(
        (*rules_shape.RULES, *rules_tokens.RULES, *rules_batch.RULES, *rules_memory.RULES),
        key=lambda rule: rule.severity == ADVICE,
    )
)


_NOUNS = {"model": Transformer, "cluster": Cluster, "plan": Plan}


def check_nouns(**given) -> None:
    """Refuses a ``model``, ``cluster`` or ``plan`` of another type."""
    for name, value in given.items():
        noun(value, _NOUNS[name], f"the {name}")


def problems(model: Transformer, cluster: Cluster, plan: Plan) -> list[Problem]:
    """Every rule that one plan breaks, all at once, what is impossible first; an empty list for a good plan.

    Refused: arguments of another type, and a plan or cluster of arrays (ask the ``RULES`` for masks).
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    if not (plan.single and np.ndim(cluster.n_gpus) == np.ndim(cluster.domain) == 0):
        raise InputRefused("problems() words one plan on one cluster; give single numbers, not arrays")
    return [rule.problem(model, cluster, plan) for rule in RULES if rule.mask(model, cluster, plan)]


def allowed(model: Transformer, cluster: Cluster, plan: Plan):
    """Where no rule makes the plan impossible: a bool, or an array of them.

    Refused: arguments of another type.
    """
    check_nouns(model=model, cluster=cluster, plan=plan)
    bad = np.asarray(False)
    for rule in RULES:
        if rule.severity == IMPOSSIBLE:
            bad = bad | rule.mask(model, cluster, plan)
    return plain(~bad)
