"""Searches and reviews as JSON: settings under the names of ``Plan``, figures under those of ``StepTime``."""

from dataclasses import fields

from labkit.evidence.best_plans import BestPlan, lead_of
from labkit.evidence.review import Review
from labkit.evidence.written import Written
from labkit.spec import Cluster, Plan, StepTime
from labkit.units import plain

_DERIVED = ("total", "exposed", "hidden", "coverage", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "hfu")


def step_as_json(step: StepTime | None) -> dict | None:
    """Every field of a step, and what is derived from them; None where there is no step."""
    if step is None:
        return None
    names = (*(field.name for field in fields(StepTime)), *_DERIVED)
    return {name: getattr(step, name) for name in names}


def plan_as_json(plan: Plan | None) -> dict | None:
    """Every field of a plan."""
    if plan is None:
        return None
    return {field.name: getattr(plan, field.name) for field in fields(Plan)}


def search_as_json(found, best: list[BestPlan], written: Written | None) -> dict:
    """A search: what was tried and refused, the best rows of its table with step and reasons, the lead."""
    known, lead = found.attrs, lead_of(found)
    rows = [{name: plain(value) for name, value in found.iloc[one.place - 1].items()} for one in best]
    return {
        "model": known["model"].name,
        "cluster": _cluster(known["cluster"]),
        "global_batch": known["global_batch"],
        "fixed": known["fixed"],
        "tried": known["tried"],
        "refused": known["refused"],
        "feasible": len(found),
        "plans": [
            {
                **row,
                "step_time": step_as_json(one.step),
                "longer": one.longer,
                "sure": one.sure,
                "reasons": list(one.reasons),
            }
            for row, one in zip(rows, best, strict=True)
        ],
        "lead": None if lead is None else {"gap": lead.gap, "error": lead.error, "near": lead.near},
        "launcher": None
        if written is None
        else {"place": written.place, "text": written.text, "cannot": [list(one) for one in written.cannot]},
    }


def review_as_json(found: Review, launcher: str) -> dict:
    """A review: what the launch says and lacks, its step, and the nearest better plan with its own."""
    launch = found.launch
    return {
        "framework": launch.framework,
        "model": None if launch.model is None else launch.model.name,
        "gpus": launch.gpus,
        "global_batch": launch.global_batch,
        "plan": plan_as_json(launch.plan),
        "missing": list(launch.missing),
        "unknown": list(launch.unknown),
        "warnings": list(launch.warnings),
        "reasons": list(found.reasons),
        "advice": list(found.advice),
        "step_time": step_as_json(found.step),
        "better": plan_as_json(found.better),
        "changes": list(found.changes),
        "better_step_time": step_as_json(found.after),
        "fastest": found.fastest,
        "launcher": launcher or None,
    }


def _cluster(cluster: Cluster) -> dict:
    links = {
        side: {"alpha": getattr(cluster, side).alpha, "bandwidth": getattr(cluster, side).bandwidth}
        for side in ("intra", "inter")
    }
    return {"name": cluster.name, "nodes": cluster.nodes, "n_gpus": cluster.n_gpus, **links}
