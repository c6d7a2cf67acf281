"""DeepSpeed: its JSON as a plan, and back. The model and its layers stand in the user's code."""

from labkit.errors import InputRefused
from labkit.evidence.launchers.facts import Facts
from labkit.spec import Plan, Transformer
from labkit.spec.rule import counted

ID = "deepspeed"
_BATCH = ("global_batch", "micro_batch", "accumulation")


def plan_of(facts: Facts) -> dict:
    """The fields of the plan that the JSON asks for.

    train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x the GPUs that see
    different samples: any two give the third, and one alone is divided over those GPUs (case C3 of the
    public reports: taking it whole makes the batch as many times too large).
    """
    tp, cp = facts.get("tp", 1) or 1, facts.get("cp", 1)
    dp, batch = _replicas_and_batch(facts, tp, cp)
    if facts.get("precision") and facts.get("precision_fp16"):
        facts.warnings.append("bf16 and fp16 are both switched on, which DeepSpeed refuses; bf16 is taken")
    if not any("give precision=" in one for one in facts.missing):
        facts.value.setdefault("precision", facts.get("precision_fp16", "fp32"))
    zero = int(facts.get("zero", 0))
    plan = {
        "tp": tp,
        "cp": cp,
        "dp": dp,
        "zero": zero,
        **batch,
        "context": "all_to_all" if cp > 1 else "ring",
    }
    if facts.get("ep", 1) > 1:
        plan |= {"ep": facts.get("ep"), "etp": None if tp == 1 else 1}
    shards = facts.get("shard_ranks", -1)
    if shards > 0 and zero == 3:
        plan["shard_ranks"] = shards
    return plan


def _replicas_and_batch(facts: Facts, tp: int, cp: int) -> tuple[int, dict]:
    """The data-parallel degree and the batch, each from the other where it is not given."""
    whole, micro, steps = (facts.get(name) for name in _BATCH)
    replicas, product = facts.get("replicas"), (micro or 0) * (steps or 0)
    if facts.get("gpus") is None and replicas:
        facts.value["gpus"] = replicas * tp * cp
    gpus = facts.get("gpus")
    if gpus is not None:
        if gpus % (tp * cp):
            facts.warnings.append(
                f"{counted(gpus, 'GPU')} are no multiple of tp x cp = {tp * cp}: DeepSpeed refuses to start"
            )
        dp = max(1, gpus // (tp * cp))
    elif whole and product and whole % product == 0:
        dp = max(1, whole // product // (tp if (whole // product) % tp == 0 and tp > 1 else 1))
        facts.value["gpus"] = dp * tp * cp
        facts.warnings.append(f"{dp * tp * cp} GPUs follow from the three batch numbers")
    else:
        facts.need(
            "gpus", "the number of GPUs (of the deepspeed or torchrun command)", "one replica is taken"
        )
        dp = 1
    if whole and product:
        return dp, _three(facts, whole, micro, steps, dp, tp)
    if whole and steps and not micro:
        return dp, {"global_batch": whole, "accumulation": steps}
    if not (whole or micro):
        facts.need(
            "global_batch", "the batch (train_batch_size, or train_micro_batch_size_per_gpu)", "1 is taken"
        )
        micro = 1
    given = dict(zip(_BATCH, (whole, micro, steps), strict=True))
    return dp, {name: value for name, value in given.items() if value}


def _three(facts: Facts, whole: int, micro: int, steps: int, dp: int, tp: int) -> dict:
    """All three numbers, which must agree: over the replicas or, as its check counts, tp times those."""
    if whole not in (micro * steps * dp, micro * steps * dp * tp):
        facts.contradiction(
            f"train_batch_size {whole} is not train_micro_batch_size_per_gpu {micro} x "
            f"gradient_accumulation_steps {steps} x {dp} = {micro * steps * dp}"
        )
        return {"global_batch": whole, "micro_batch": micro, "accumulation": steps}
    return {"micro_batch": micro, "accumulation": steps}


def model_of(facts: Facts) -> Transformer | None:
    """None: the JSON says nothing about the model."""
    facts.need("model", "the model, which is the user's own code", "a Transformer")
    return facts.get("model")


def facts_of_plan(model: Transformer, plan: Plan) -> dict:
    """What DeepSpeed's JSON is to say of a plan.

    With tensor parallelism train_batch_size is left out: DeepSpeed checks it against all GPUs.
    """
    whole = 1 if plan.ep > 1 else plan.tp
    if plan.expert_tp != whole:
        why = (
            "spread experts are not cut any further"
            if plan.ep > 1
            else "without ep experts are cut as the rest"
        )
        raise InputRefused(f"DeepSpeed cannot express etp = {plan.expert_tp}: {why}; use etp = {whole}")
    return {
        "global_batch": plan.global_batch if plan.tp == 1 else None,
        "micro_batch": plan.micro_batch,
        "accumulation": plan.accumulation,
        "zero": plan.zero,
        "precision": "bf16",
        "tp": plan.tp if plan.tp > 1 else None,
        "cp": plan.cp if plan.cp > 1 else None,
        "replicas": plan.dp if plan.cp > 1 else None,
        "expert_parallel": plan.ep > 1,
        "ep": plan.ep if plan.ep > 1 else None,
        "etp": 1 if plan.ep > 1 and plan.tp > 1 else None,
    }
