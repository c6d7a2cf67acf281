"""Megatron-LM: its arguments as a plan and a model, and back."""

import re

from labkit.errors import InputRefused
from labkit.evidence.launchers.facts import Facts, same_order
from labkit.spec import Plan, Transformer
from labkit.spec.rule import counted

ID = "megatron-lm"
_ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp")
_LAYOUT = re.compile(r"[EtmL|(),*\d]{1,2000}")
_MOST_STAGES = 10_000


def plan_of(facts: Facts) -> dict:
    """The fields of the plan that Megatron-LM's arguments ask for."""
    tp, cp, pp = (facts.get(name, 1) for name in ("tp", "cp", "pp"))
    dp = _replicas(facts, tp * cp * pp)
    plan = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, **facts.take("ep", "etp", "order", "vocabulary_multiple")}
    plan |= _batch(facts, dp) | _sharding(facts, dp * cp) | _recompute(facts)
    plan |= _stages(facts, pp)
    plan["sequence_parallel"] = facts.get("sequence_parallel", False) and tp > 1
    plan["context"] = facts.get("context", "ring")
    fused = facts.get("flash", False) or not facts.get("local", False)
    plan["fused_attention"] = facts.get("fused_attention", fused)
    if facts.get("precision") is None:
        facts.warnings.append(
            "neither --bf16 nor --fp16: it trains in fp32, and memory here is that of 16 bits"
        )
    return plan


def _replicas(facts: Facts, model_ranks: int) -> int:
    gpus = facts.get("gpus")
    if gpus is None:
        facts.need("gpus", "the number of GPUs (nnodes x nproc-per-node)", "one replica is taken")
        return 1
    if gpus % model_ranks:
        facts.contradiction(f"{counted(gpus, 'GPU')} are no multiple of tp x cp x pp = {model_ranks}")
    return max(1, gpus // model_ranks)


def _batch(facts: Facts, dp: int) -> dict:
    micro, whole = facts.get("micro_batch"), facts.get("global_batch")
    if micro is None:
        facts.need("micro_batch", "the micro-batch (--micro-batch-size)", "1 is taken")
        micro = 1
    if whole is None:
        return {"micro_batch": micro, "accumulation": 1}
    if whole % (micro * dp):
        facts.contradiction(f"the global batch {whole} is no multiple of micro-batch {micro} x {dp} replicas")
    return {"micro_batch": micro, "global_batch": whole}


def _sharding(facts: Facts, same: int) -> dict:
    """The stage of sharding, and over how many ranks."""
    zero = facts.get("zero", 1 if facts.get("distributed_optimizer") else 0)
    if facts.get("fsdp"):
        zero = facts.get("sharding", 0)
    elif facts.get("torch_fsdp"):
        zero = 2 if facts.get("keep_gathered") else 3
    elif facts.get("sharding"):
        facts.warnings.append(f"{facts.flag('sharding')} does nothing without --use-megatron-fsdp")
    instances = facts.get("instances", 1)
    if instances == 1 or not zero:
        return {"zero": zero}
    if same % instances:
        facts.warnings.append(f"{facts.flag('instances')} {instances} does not divide dp x cp = {same}")
    return {"zero": zero, "shard_ranks": max(1, same // instances)}


def _recompute(facts: Facts) -> dict:
    mode, layers = facts.get("recompute", "none"), facts.get("recompute_layers", 1)
    modules = facts.get("recompute_modules")
    words = re.findall(r"\w+", " ".join(modules) if isinstance(modules, list) else str(modules or ""))
    if mode == "selective" and set(words) - {"core_attn"}:
        facts.warnings.append(
            f"--recompute-modules {' '.join(words)}: of these the planner recomputes the attention core only"
        )
    if mode != "full":
        return {"recompute": mode}
    if facts.get("recompute_method") == "block":
        facts.warnings.append(
            f"--recompute-method block recomputes {counted(layers, 'layer')} of a stage; here all of them are"
        )
        layers = 1
    return {"recompute": mode, "recompute_every": layers}


def _stages(facts: Facts, pp: int) -> dict:
    """Virtual stages, and the layers of each stage where they are not equal."""
    layout, layers = facts.get("layout"), facts.get("layers")
    if layout is not None:
        given = layers_of_layout(str(layout))
        if len(given) % pp:
            facts.warnings.append(f"the layout has {len(given)} stages, which {pp} ranks cannot share evenly")
            return {}
        v = len(given) // pp
        return {"v": v, **({} if len(set(given)) == 1 else {"stage_layers": given})}
    v = facts.get("v", 1)
    each = facts.get("layers_per_virtual_stage")
    if each is not None and layers is None:
        facts.need("layers", "the number of layers, which says how many virtual stages a rank has")
    elif each:
        v = layers // (pp * each)
        if v * pp * each != layers:
            facts.contradiction(
                f"{layers} layers are no multiple of {pp} x {facts.flag('layers_per_virtual_stage')} {each}"
            )
            v = max(1, v)
    return {"v": v, **_ends(facts, pp, v, layers)}


def _ends(facts: Facts, pp: int, v: int, layers: int | None) -> dict:
    """Other numbers of layers on the first and the last rank, the rest shared evenly by those between."""
    first, last = facts.get("first_layers"), facts.get("last_layers")
    if (first is None and last is None) or layers is None or pp < 2:
        return {}
    between = pp - (first is not None) - (last is not None)
    left = layers - (first or 0) - (last or 0)
    each = left // between if between and left % between == 0 else None
    ranks = [each] * pp
    ranks[0] = first if first is not None else each
    ranks[-1] = last if last is not None else each
    if any(one is None or one % v for one in ranks) or sum(ranks) != layers:
        facts.contradiction(
            f"{facts.flag('first_layers')} and {facts.flag('last_layers')} leave {left} layers to {between} "
            "ranks, which cannot share them evenly"
        )
        return {}
    return {"stage_layers": tuple(one // v for _ in range(v) for one in ranks)}


def layers_of_layout(text: str) -> tuple[int, ...]:
    """Transformer layers of each (virtual) stage of a pipeline layout.

    Stages are set apart by ``|``; ``t`` is a layer, ``*`` repeats what stands before it. Refused: a text that
    is no layout, and one of too many stages.

    >>> layers_of_layout("Et*7|(tt|)*2,t*8L")
    (7, 2, 2, 8)
    """
    refused = InputRefused(f"{text[:60]!r} is no layout of a pipeline; write one like 'Et*3|(tt|)*4,L'")
    if not _LAYOUT.fullmatch(text):
        raise refused
    text = text.replace(",", "")
    repeats = re.compile(r"\(([^()]*)\)\*(\d{1,4})|([EtmL])\*(\d{1,4})")
    for _ in range(4):
        grown = repeats.sub(lambda one: (one[1] or one[3]) * int(one[2] or one[4]), text)
        if len(grown) > _MOST_STAGES * 10:
            raise refused
        if grown == text:
            break
        text = grown
    if re.search(r"[()*\d]", text) or text.count("|") > _MOST_STAGES:
        raise refused
    return tuple(stage.count("t") for stage in text.split("|"))


def model_of(facts: Facts) -> Transformer | None:
    """The model that the arguments describe; None, with what is missing or not modelled, else."""
    if facts.other_shape:
        facts.warnings.append(f"the model is not described here: {'; '.join(facts.other_shape)}")
        return None
    if facts.get("vocabulary") is None and facts.get("padded_vocabulary"):
        facts.value["vocabulary"] = facts.get("padded_vocabulary")
    wanted = {
        "layers": "the number of layers",
        "hidden": "the hidden size",
        "heads": "the number of attention heads",
        "sequence": "the sequence length",
        "vocabulary": "the vocabulary, which the tokenizer has",
    }
    for name, words in wanted.items():
        if facts.get(name) is None:
            facts.need(name, words)
    if any(facts.get(name) is None for name in wanted):
        return None
    hidden, gated, experts = facts.get("hidden"), facts.get("gated", False), facts.get("experts", 0)
    usual = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    ffn = facts.get("ffn", usual)
    learned = facts.get("learned", True)
    bias = facts.get("bias", True)
    dropout = (_share(facts, name) > 0 for name in ("hidden_dropout", "attention_dropout"))
    return Transformer(
        f"{facts.get('layers')} x {hidden}",
        **{name: facts.get(name) for name in wanted},
        kv_heads=facts.get("query_groups", 1) if facts.get("grouped") else 0,
        head_dim=facts.get("head_dim", 0),
        ffn=facts.get("expert_ffn", ffn) if experts else ffn,
        gated=gated,
        tied=facts.get("tied", True),
        experts=experts,
        top_k=facts.get("top_k", 2) if experts else 0,
        norm=facts.get("norm", "layer"),
        bias=bias,
        qkv_bias=facts.get("qkv_bias", False) and not bias,
        qk_norm=facts.get("qk_norm", False),
        learned_positions=facts.get("positions", facts.get("sequence")) if learned else 0,
        embedding_norm=facts.get("embedding_norm", False),
        dropout=any(dropout),
    )


def _share(facts: Facts, name: str) -> float:
    """A dropout probability; Megatron-LM's own where it is not given."""
    try:
        return float(facts.get(name, 0.1))
    except (TypeError, ValueError):
        facts.need(name, f"the value of {facts.flag(name)}", "some dropout is taken")
        return 0.1


def facts_of_plan(model: Transformer, plan: Plan) -> dict:
    """What Megatron-LM is to be told of a plan and its model."""
    if model.embedding_norm:
        raise InputRefused("Megatron-LM cannot express embedding_norm: it has no norm after the embedding")
    order = next((one for one in _ORDERS if same_order(plan, one)), None)
    if order is None:
        raise InputRefused(
            f"Megatron-LM cannot express order = {plan.order!r}: its ranks are in the order {_ORDERS[0]} or, "
            f"with --use-tp-pp-dp-mapping, {_ORDERS[1]}"
        )
    layout = None
    if plan.stage_layers is not None:
        stages = ["t" * layers if layers < 3 else f"t*{layers}" for layers in plan.stage_layers]
        layout = "E" + "|".join(stages) + "L"
    facts = {
        name: getattr(plan, name) for name in ("tp", "pp", "cp", "ep", "etp", "micro_batch", "global_batch")
    }
    facts |= {
        "order": order,
        "sequence_parallel": plan.sequence_parallel,
        "context": plan.context if plan.cp > 1 else None,
        "v": plan.v if plan.v > 1 and layout is None else None,
        "layout": layout,
        "distributed_optimizer": plan.zero == 1,
        "fsdp": plan.zero >= 2,
        "sharding": plan.zero if plan.zero >= 2 else None,
        "fsdp_checkpoint": plan.zero >= 2,
        "recompute": plan.recompute,
        "recompute_method": "uniform" if plan.recompute == "full" else None,
        "recompute_layers": plan.recompute_every if plan.recompute == "full" else None,
        "fused_attention": None if plan.fused_attention else False,
        "vocabulary_multiple": plan.vocabulary_multiple,
    }
    if plan.zero and plan.shard_ranks is not None and plan.shard_ranks < plan.dp * plan.cp:
        facts["instances"] = plan.dp * plan.cp // plan.shard_ranks
    return {**facts, **_of_model(model)}


def _of_model(model: Transformer) -> dict:
    grouped, experts = model.kv_heads != model.heads, model.experts > 0
    own = model.head_dim * model.heads != model.hidden
    return {
        **{
            name: getattr(model, name)
            for name in ("layers", "hidden", "heads", "ffn", "sequence", "vocabulary")
        },
        "grouped": grouped,
        "query_groups": model.kv_heads if grouped else None,
        "head_dim": model.head_dim if own else None,
        "positions": model.learned_positions or model.sequence,
        "learned": model.learned_positions > 0,
        **{name: getattr(model, name) for name in ("gated", "tied", "norm", "bias", "qk_norm")},
        "qkv_bias": model.qkv_bias and not model.bias,
        "hidden_dropout": None if model.dropout else 0,
        "attention_dropout": None if model.dropout else 0,
        "experts": model.experts or None,
        "top_k": model.top_k or None,
        "expert_ffn": model.ffn if experts else None,
    }
