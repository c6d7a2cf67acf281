"""A model, a cluster and what is asked of the rules in every test of theirs."""

from dataclasses import replace

from labkit.presets import cluster
from labkit.spec import Cluster, Plan, Problem, Transformer, problems
from labkit.spec.rules import RULES


def shape(**changes) -> Transformer:
    """A dense model that nearly every cut divides, but for what is changed."""
    usual = dict(layers=32, hidden=4096, heads=32, vocabulary=32768, sequence=4096)
    return Transformer("case", **{**usual, **changes})


def gpus(count: int, node: int = 8) -> Cluster:
    """So many A100 on nodes of 8, or of another size."""
    at = cluster("a100")
    return Cluster(f"{count} GPUs", at.gpu, count // node, node, at.intra, at.inter, 8)


def broken(model: Transformer, place: Cluster, plan: Plan) -> dict[str, Problem]:
    """The problems by the names of their rules."""
    found = {problem.rule: problem for problem in problems(model, place, plan)}
    for problem in found.values():
        check_options(problem, model, place, plan)
    return found


def impossible(model: Transformer, place: Cluster, plan: Plan) -> set[str]:
    """Names of the rules that make the plan impossible."""
    return {name for name, problem in broken(model, place, plan).items() if problem.severity == "impossible"}


def changed(option: dict, model: Transformer, place: Cluster, plan: Plan):
    """Model, cluster and plan with the values of an option, each where its name belongs."""
    parts = []
    for part in (model, place, plan):
        own = {name: value for name, value in option.items() if name in part.__slots__}
        parts.append(part.changed(**own) if isinstance(part, Plan) else replace(part, **own))
    assert sum(name in part.__slots__ for name in option for part in parts) == len(option), option
    return parts


def check_options(problem: Problem, model: Transformer, place: Cluster, plan: Plan) -> None:
    """Every way out that a problem offers lifts its rule."""
    rule = next(rule for rule in RULES if rule.name == problem.rule)
    for option in problem.options:
        assert not rule.mask(*changed(option, model, place, plan)), (problem, option)
