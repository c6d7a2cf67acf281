"""torchtitan: its TOML as a plan and a model, and back."""

from dataclasses import replace

from labkit.errors import InputRefused
from labkit.evidence.launchers.facts import Facts
from labkit.presets import model as preset
from labkit.spec import Plan, Transformer
from labkit.spec.rule import counted

ID = "torchtitan"
_STAGES_OF_LOOPED = 2  # stages of a rank in a looped schedule, unless the layers of a stage are given


def plan_of(facts: Facts) -> dict:
    """The fields of the plan that the TOML asks for."""
    tp, cp, pp = (facts.get(name, 1) for name in ("tp", "cp", "pp"))
    replicas, shards = _data_parallel(facts, tp * cp * pp)
    dp, over = replicas * shards, shards * cp
    facts.value.setdefault("precision", "bf16")
    deep = {"always": 3, "never": 2}.get(facts.get("reshard"), 3 if pp == 1 else 2)
    plan = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": dp,
        "zero": deep if over > 1 else 0,
        "sequence_parallel": tp > 1,
        "schedule": facts.get("schedule", "1f1b"),
        "context": "ring",
        **_batch(facts, dp, pp),
        **_recompute(facts),
    }
    if replicas > 1 and over > 1:
        plan["shard_ranks"] = over
    if facts.get("ep", 1) > 1:
        etp = facts.get("etp", 1)
        plan |= {"ep": facts.get("ep"), "etp": None if etp == tp else etp}
    return plan | _stages(facts, pp)


def _data_parallel(facts: Facts, model_ranks: int) -> tuple[int, int]:
    """Replicas, and ranks that a replica is sharded over."""
    replicas, shards, gpus = facts.get("replicas", 1), facts.get("shards", -1), facts.get("gpus")
    given = model_ranks * replicas
    if shards > 0:
        if gpus not in (None, given * shards):
            facts.contradiction(f"the degrees multiply to {given * shards}, not to {counted(gpus, 'GPU')}")
        facts.value["gpus"] = given * shards
        return replicas, shards
    if gpus is None:
        facts.need(
            "gpus",
            "the number of GPUs (data_parallel_shard_degree takes all that are left)",
            "no shards are taken",
        )
        return replicas, 1
    if gpus % given:
        facts.contradiction(f"{counted(gpus, 'GPU')} are no multiple of the other degrees, {given}")
    return replicas, max(1, gpus // given)


def _batch(facts: Facts, dp: int, pp: int) -> dict:
    """The micro-batch of a pipeline is a piece of the local batch, elsewhere it is the local batch."""
    if facts.get("local_batch") is None:
        facts.warnings.append("training.local_batch_size is left out: torchtitan's own 8 is taken")
    local = facts.get("local_batch", 8)
    micro = local
    if pp > 1:
        pieces = facts.get("pipeline_micro_batches")
        micro = facts.get("pipeline_micro_batch", 1) if pieces is None else max(1, local // pieces)
    whole = facts.get("global_batch", -1)
    whole = local * dp if whole < 1 else whole
    if pp > 1 and whole > local * dp:
        facts.warnings.append(
            f"the pipeline is emptied {whole / (local * dp):g} times a step, after each local batch; here it "
            "is emptied once"
        )
    if local % micro or whole % (local * dp):
        facts.contradiction(
            f"a global batch of {whole} is no multiple of local batches of {local} on {dp} replicas, in "
            f"pieces of {micro}"
        )
    return {"micro_batch": micro, "global_batch": whole}


def _recompute(facts: Facts) -> dict:
    mode = facts.get("recompute", "selective")
    if mode == "selective":
        option = str(facts.get("selective_option", "2"))
        what = (
            "keeps every second matrix product"
            if option == "op"
            else f"runs one layer of {option} again in full"
        )
        facts.warnings.append(
            f"torchtitan's selective recompute ({option}) {what}; here selective means attention scores alone"
        )
    return {"recompute": mode}


def _stages(facts: Facts, pp: int) -> dict:
    """Virtual stages, and the layers of each where torchtitan does not deal them out evenly."""
    if pp == 1:
        return {}
    layers = _layers(facts)
    first, last = facts.get("first_less", 1), facts.get("last_less", 1)
    each, v = facts.get("layers_per_stage"), _STAGES_OF_LOOPED if facts.get("looped") else 1
    if each and layers:
        stages = -(-(layers + first + last) // each)
        if stages % pp:
            facts.contradiction(f"{stages} stages of {counted(each, 'layer')} are no multiple of {pp} ranks")
        v = max(1, stages // pp)
    if layers is None:
        return {"v": v}
    given = dealt(layers, pp * v, first, last)
    return {"v": v, **({} if len(set(given)) == 1 else {"stage_layers": given})}


def dealt(layers: int, stages: int, first_less: int, last_less: int) -> tuple[int, ...]:
    """Layers of each stage as torchtitan deals them out, the ends with a few less for embedding and head.

    >>> dealt(30, 4, 1, 1)
    (7, 8, 8, 7)
    """
    each, more = divmod(layers + first_less + last_less, stages)
    given = [each + (stage < more) for stage in range(stages)]
    given[0] -= first_less
    given[-1] -= last_less
    return tuple(max(0, one) for one in given)


def _layers(facts: Facts) -> int | None:
    model = model_of(facts)
    return None if model is None else model.layers


def model_of(facts: Facts) -> Transformer | None:
    """The preset that name and flavor stand for, at the sequence of the run; None for others."""
    if facts.get("model") is not None:
        return facts.get("model")
    name = f"{facts.get('model_name', '')} {facts.get('flavor', '')}".strip()
    if name in facts.framework.models:
        return replace(preset(facts.framework.models[name]), sequence=facts.get("sequence", 2048))
    facts.need("model", f"the shape of {name or 'the model'}, which is torchtitan's own", "a Transformer")
    return None


def facts_of_plan(model: Transformer, plan: Plan) -> dict:
    """What torchtitan's TOML is to say of a plan."""
    same, tp = plan.dp * plan.cp, plan.tp
    if tp > 1 and not plan.sequence_parallel:
        raise _cannot(
            "sequence_parallel = False with tp > 1", "its tensor parallelism always splits the norms"
        )
    if plan.zero == 1:
        raise _cannot(
            "zero = 1", "it shards the gradients as well (zero = 2) or the parameters too (zero = 3)"
        )
    if plan.zero and same == 1:
        raise _cannot(f"zero = {plan.zero}", "with dp x cp = 1 there is nothing to shard")
    if not plan.zero and plan.cp > 1:
        raise _cannot("zero = 0 with cp > 1", "it shards over context-parallel ranks in any case")
    shards = 1 if not plan.zero else (plan.shard_ranks or same)
    if plan.zero and (shards % plan.cp or shards == 1):
        raise _cannot(
            f"shard_ranks = {shards}", f"it shards over a multiple of cp = {plan.cp}, and over more than 1"
        )
    if plan.expert_tp not in ((1, tp) if plan.ep > 1 else (tp,)):
        raise _cannot(f"etp = {plan.expert_tp}", f"experts have tp = {tp} or, with ep above 1, none")
    over = shards // plan.cp if plan.zero else 1
    lent = plan.cp * (1 if plan.expert_tp == tp else tp)  # ranks that are the experts' in any case
    if plan.ep > 1 and (plan.ep % lent or over * lent % plan.ep):
        raise _cannot(
            f"ep = {plan.ep}",
            f"experts are spread over {counted(over * lent, 'rank')} that shard one replica: ep divides that"
            + f" and is a multiple of {lent}" * (lent > 1),
        )
    facts = {
        "model_name": next((name.split()[0] for name in _flavors(model)), None),
        "flavor": next((name.split()[1] for name in _flavors(model)), None),
        "local_batch": plan.micro_batch * (plan.accumulation if plan.pp > 1 else 1),
        "global_batch": plan.global_batch,
        "sequence": model.sequence,
        "precision": "bf16",
        "replicas": plan.dp // over,
        "shards": over,
        "reshard": {2: "never", 3: "always"}.get(plan.zero),
        **{name: getattr(plan, name) for name in ("tp", "cp", "pp")},
        "ep": plan.ep if plan.ep > 1 else None,
        "etp": plan.expert_tp if plan.ep > 1 else None,
        "recompute": plan.recompute,
        "selective_option": "op" if plan.recompute == "selective" else None,
    }
    return facts | (_pipeline(model, plan) if plan.pp > 1 else {})


def _pipeline(model: Transformer, plan: Plan) -> dict:
    looped = plan.v > 1
    if plan.schedule not in ("1f1b", "gpipe", "zb-v") or (looped and plan.schedule == "gpipe"):
        raise _cannot(
            f"schedule = {plan.schedule!r}",
            "its schedules are 1F1B, GPipe, Interleaved1F1B and ZBVZeroBubble",
        )
    stages = plan.pp * plan.v
    wanted = plan.stage_layers or (model.layers // stages,) * stages
    ends = [(a, b) for a in (0, 1, 2) for b in (0, 1, 2) if dealt(model.layers, stages, a, b) == wanted]
    if not ends:
        raise _cannot("stage_layers", "its stages are of equal layers but for a few less at the ends")
    first, last = ends[0]
    each = -(-(model.layers + first + last) // stages)
    if looped and plan.v != _STAGES_OF_LOOPED and -(-(model.layers + first + last) // each) != stages:
        raise _cannot(
            f"v = {plan.v}", f"no number of layers a stage makes {stages} stages of {model.layers} layers"
        )
    return {
        "schedule": plan.schedule,
        "looped": looped,
        "pipeline_micro_batch": plan.micro_batch,
        "first_less": first,
        "last_less": last,
        "layers_per_stage": each if looped and plan.v != _STAGES_OF_LOOPED else None,
    }


def _cannot(setting: str, why: str) -> InputRefused:
    return InputRefused(f"torchtitan cannot express {setting}: {why}")


def _flavors(model: Transformer) -> list[str]:
    """The names under which torchtitan has this model."""
    from labkit.presets.launchers import launcher

    return [name for name, id in launcher(ID).models.items() if id == model.name]
