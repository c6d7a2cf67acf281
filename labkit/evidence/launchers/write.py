"""Writes the settings by which a framework runs a plan; what it cannot express is said in one sentence."""

import json

from labkit.errors import InputRefused
from labkit.evidence.launchers.facts import same_order
from labkit.evidence.launchers.read import FRAMEWORKS
from labkit.presets.launchers import Framework, launcher
from labkit.spec import Cluster, Plan, Transformer, problems
from labkit.spec.rule import IMPOSSIBLE
from labkit.spec.rules import check_nouns

_DEFAULTS = Plan()
_ORDERED = ("tensor-model-parallel-size", "context-parallel-size")
_MATTERS = {  # when a setting has an effect at all
    "schedule": lambda plan: plan.pp > 1,
    "v": lambda plan: plan.pp > 1,
    "context": lambda plan: plan.cp > 1,
    "balanced": lambda plan: plan.cp > 1 and plan.context == "ring",
    "prefetch": lambda plan: plan.zero == 3,
    "shard_ranks": lambda plan: plan.zero > 0 and (plan.shard_ranks or plan.dp * plan.cp) < plan.dp * plan.cp,
    "recompute_every": lambda plan: plan.recompute == "full",
    "sequence_parallel": lambda plan: plan.tp > 1,
    "replicate_kv": lambda plan: plan.tp > 1,
}


def launcher_arguments(framework: str, model: Transformer, cluster: Cluster, plan: Plan) -> str:
    """The settings that make a framework run the plan: arguments of Megatron-LM, DeepSpeed's JSON or
    torchtitan's TOML. ``read_launcher`` of the text gives the same plan.

    Settings that stand in the user's code are named in the text where they are not labkit's defaults.
    Refused: a plan that is impossible or does not fill the cluster, and one that the framework cannot
    express, with the setting and the reason.

    >>> from labkit.presets import cluster, model
    >>> plan = Plan(tp=8, dp=4, sequence_parallel=True, global_batch=64, micro_batch=1)
    >>> text = launcher_arguments("megatron-lm", model("llama2-70b"), cluster("h100", nodes=4), plan)
    >>> print(*text.splitlines()[:3], sep="\\n")
    CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py \\
        --tensor-model-parallel-size 8 \\
        --sequence-parallel \\
    """
    known = launcher(framework)
    check_nouns(model=model, cluster=cluster, plan=plan)
    if not plan.single:
        raise InputRefused("launcher_arguments() writes one plan; give single numbers, not arrays")
    for problem in problems(model, cluster, plan):
        if problem.severity == IMPOSSIBLE:
            raise InputRefused(f"this plan cannot run: {problem.message}; {problem.remedy}")
    _check(known, plan)
    facts = FRAMEWORKS[known.id].facts_of_plan(model, plan)
    facts |= {"nodes": int(cluster.nodes), "gpus_per_node": int(cluster.gpus_per_node)}
    flags = _flags(known, facts)
    flags |= {flag: True for flag in known.also if flag not in flags}
    notes = _in_the_code(known, plan)
    return {"command line": _command, "JSON": _json, "TOML": _toml}[known.form](flags, notes)


def _check(framework: Framework, plan: Plan) -> None:
    """Refuses what the framework never does."""
    for name, rule in framework.always.items():
        value = getattr(plan, name)
        if name == "order" and same_order(plan, rule["is"]):
            continue
        if value != rule.get("is") and _MATTERS.get(name, lambda plan: True)(plan):
            shown = "stage_layers" if name == "stage_layers" else f"{name} = {value!r}"
            raise InputRefused(f"{framework.name} cannot express {shown}: {rule['why']}")


def _in_the_code(framework: Framework, plan: Plan) -> list[str]:
    """What has to be set in the user's code, in sentences."""
    return [
        f"{name} = {getattr(plan, name)}: {where}"
        for name, where in framework.elsewhere.items()
        if getattr(plan, name) != getattr(_DEFAULTS, name) and _MATTERS.get(name, lambda plan: True)(plan)
    ]


def _flags(framework: Framework, facts: dict) -> dict:
    """Flags with their values, in the order of the framework's table."""
    found: dict = {}
    for flag, setting in framework.settings.items():
        if setting.read_only:
            continue
        if setting.gives and facts.get(setting.gives) is not None:
            found[flag] = facts[setting.gives]
        elif setting.sets and all(facts.get(name) == value for name, value in setting.sets.items()):
            found[flag] = True
        elif setting.values:
            fits = {
                text: len(said)
                for text, said in setting.values.items()
                if said and all(facts.get(name) == value for name, value in said.items())
            }
            if fits:
                found[flag] = max(fits, key=fits.get)
    return found


def _command(flags: dict, notes: list[str]) -> str:
    # Megatron-LM refuses to start without it: so kernels start in the order in which they are called.
    ordered = not flags.get("use-megatron-fsdp") and any(flags.get(flag, 1) > 1 for flag in _ORDERED)
    start = "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun" if ordered else "torchrun"
    for name in ("nnodes", "nproc-per-node"):
        start += f" --{name} {flags.pop(name)}"
    lines = [f"--{flag}" if value is True else f"--{flag} {_quoted(value)}" for flag, value in flags.items()]
    return " \\\n    ".join([f"{start} pretrain_gpt.py", *lines]) + "\n"


def _quoted(value) -> str:
    text = str(value)
    return f"'{text}'" if any(letter in text for letter in "|*() ") else text


def _nested(flags: dict) -> dict:
    tables: dict = {}
    for flag, value in flags.items():
        *path, name = flag.split(".")
        table = tables
        for part in path:
            table = table.setdefault(part, {})
        table[name] = value
    return tables


def _json(flags: dict, notes: list[str]) -> str:
    found = _nested(flags)
    if notes:
        found["_in_the_code"] = notes
    return json.dumps(found, indent=2) + "\n"


def _toml(flags: dict, notes: list[str]) -> str:
    lines = [f"# in the code: {note}" for note in notes]
    for name, table in _nested(flags).items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join(lines).lstrip("\n") + "\n"
