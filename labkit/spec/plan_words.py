"""A plan in one short line, as tables and pictures name it."""

from labkit.spec.checks import noun, without_arrays
from labkit.spec.plan import Plan


def said(plan: Plan) -> str:
    """One plan in words: only what it uses. Refused: what is no plan, and arrays of plans.

    >>> said(Plan(dp=32, zero=3, micro_batch=2))
    'dp 32, ZeRO-3, m 1 x 2'
    """
    noun(plan, Plan, "the plan")
    without_arrays("a plan in words", plan=plan)
    ways = {"cp": f" {plan.context.replace('_', ' ')}"}
    sizes = {name: plan.degree(name) for name in ("tp", "cp", "pp", "dp")}
    parts = [f"{name} {size}{ways.get(name, '')}" for name, size in sizes.items() if size > 1]
    cut = " x ".join(parts) or "one card"
    cut += " + sequence parallel" if plan.sequence_parallel else ""
    how = [f"ep {plan.ep}"] if plan.ep > 1 else []
    how += [plan.schedule] if plan.schedule != "1f1b" else []
    how += [f"v {plan.v}"] if plan.v > 1 else []
    how += [f"ZeRO-{plan.zero}"] if plan.zero else []
    how += [f"{plan.recompute} recompute"] if plan.recompute != "none" else []
    return ", ".join([cut, *how, f"m {plan.accumulation} x {plan.micro_batch}"])
