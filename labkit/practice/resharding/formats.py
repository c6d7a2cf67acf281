"""The forms in which checkpoints hold an optimizer, and which changes of the plan each of them survives.

From the documents and threads of the projects, as of 2026: Megatron Core's guide to dist_checkpointing and
Megatron-LM #1517, PR 645, 5898, 7162; DeepSpeed's universal checkpoint and PR 1525, 4516, 5105, 5475;
torch.distributed.checkpoint of PyTorch.
"""

from dataclasses import dataclass

from labkit.spec import Plan, Transformer
from labkit.spec.checks import one_of
from labkit.spec.rules import check_nouns

TP, PP, DP, EP, STAGE, PADDING = "tp", "pp", "dp", "ep", "ZeRO stage", "padding of the vocabulary"
CHANGES = (TP, PP, DP, EP, STAGE, PADDING)
_PARALLEL = frozenset({TP, PP, DP, EP, PADDING})
_UNPADDED, _ANY = frozenset(CHANGES) - {PADDING}, frozenset(CHANGES)


@dataclass(frozen=True, slots=True)
class Format:
    """One form: which of ``CHANGES`` its optimizer and its weights survive, and what to do about the others.

    ``way``: how the optimizer gets through a change that it does not survive; ``caution``: why what is
    possible may still be wrong.
    """

    name: str
    words: str
    optimizer: frozenset
    weights: frozenset
    way: str
    caution: str = ""


_UNIVERSAL = (
    "convert with DeepSpeed's ds_to_universal.py first (stages 1 and 2: dp, tp and pp; stage 3: dp alone), "
    "or load the weights alone and restart the optimizer"
)
_RESHARD = (
    "save once more under the old plan with --dist-ckpt-optim-fully-reshardable, then load under the new "
    "one; or --no-load-optim, which restarts the optimizer"
)
_OLD_CORE = (
    "load and save it once with Megatron Core 0.15.0, which writes a form of today; or --no-load-optim, "
    "which restarts the optimizer"
)
_REFUSED = "Megatron Core after 0.14 cannot load such optimizer states in any plan"
_COMPARE = "compare the loss of the first steps, and some moments, with the run that saved"

FORMATS = {
    form.name: form
    for form in (
        Format(
            "deepspeed",
            "DeepSpeed ZeRO, a file of optimizer states for each dp rank",
            frozenset(),
            frozenset({DP, STAGE}),
            "set elastic_checkpoint where the stage is 1 or 2 and dp alone changes, or " + _UNIVERSAL,
        ),
        Format(
            "deepspeed-elastic",
            "DeepSpeed ZeRO saved with elastic_checkpoint, stage 1 or 2",
            frozenset({DP}),
            frozenset({DP, STAGE}),
            _UNIVERSAL,
            "feasible is not correct: up to PR 5105 (2024) loading ignored the padding and restored wrong "
            "moments; " + _COMPARE,
        ),
        Format(
            "deepspeed-universal",
            "DeepSpeed universal checkpoint",
            frozenset({DP, TP, PP, PADDING}),
            frozenset({DP, TP, PP, PADDING}),
            "load the weights alone and restart the optimizer",
        ),
        Format(
            "megatron-torch",
            "Megatron-LM's older torch form, a folder for each tp and pp rank",
            frozenset({DP}),
            frozenset({DP, STAGE}),
            "convert the weights with tools/checkpoint/convert.py and restart the optimizer",
        ),
        Format(
            "dp_reshardable",
            "Megatron Core torch_dist, the default form of the distributed optimizer",
            frozenset({DP}),
            _ANY,
            _RESHARD,
        ),
        Format(
            "fully_reshardable",
            "Megatron Core torch_dist with --dist-ckpt-optim-fully-reshardable",
            _PARALLEL,
            _ANY,
            "load the weights alone and restart the optimizer",
        ),
        Format(
            "fully_sharded_model_space",
            "Megatron Core torch_dist before 0.14, flattened ranges",
            frozenset(),
            _ANY,
            _OLD_CORE,
            f"{_REFUSED}, though cores of its time could in every one, and a loader was found that then "
            "dropped the moments without a word; " + _COMPARE,
        ),
        Format(
            "dp_zero_gather_scatter",
            "Megatron Core torch_dist before 0.14, gathered on one dp rank",
            frozenset({DP}),
            _ANY,
            _OLD_CORE,
            _REFUSED,
        ),
        Format(
            "fully_sharded_bucket_space",
            "Megatron Core torch_dist before 0.14, by bucket",
            frozenset(),
            _ANY,
            _OLD_CORE,
            _REFUSED,
        ),
        Format(
            "dcp",
            "torch.distributed.checkpoint with names and global offsets (FSDP2, torchtitan, fsdp_dtensor)",
            _UNPADDED,
            _UNPADDED,
            "keep the padded vocabulary: give the rows of padding with their number, whatever the new tp",
        ),
        Format(
            "weights",
            "weights alone, as safetensors or one consolidated file",
            frozenset(),
            _UNPADDED,
            "there is none in it: restart the optimizer",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Survival:
    """Whether weights and optimizer of a form get through a change, in a sentence for each."""

    weights: bool
    optimizer: bool
    says: tuple[str, ...]


def changes(source: Plan, target: Plan, model: Transformer | None = None) -> tuple[str, ...]:
    """Which of ``CHANGES`` there are between two plans; padding only where the ``model`` is given.

    Context parallel counts as data parallel, since its ranks shard the optimizer with the others; virtual
    stages and stage layers count as pipeline, tensor parallel of experts as expert parallel.

    >>> changes(Plan(tp=8, dp=4), Plan(tp=8, dp=8)), changes(Plan(pp=4), Plan(dp=4, ep=4))
    (('dp',), ('pp', 'dp', 'ep'))
    """
    check_nouns(plan=source)
    check_nouns(plan=target)
    if model is not None:
        check_nouns(model=model)
    seen = {
        TP: lambda p: p.tp,
        PP: lambda p: (p.pp, p.v, p.stage_layers, p.schedule == "zb-v"),
        DP: lambda p: (p.dp * p.cp, p.shard_ranks),
        EP: lambda p: (p.ep, p.expert_tp if p.ep > 1 else 1),
        STAGE: lambda p: p.zero,
        PADDING: lambda p: model and p.padded_vocabulary(model.vocabulary),
    }
    return tuple(name for name in CHANGES if seen[name](source) != seen[name](target))


def survives(form: str, source: Plan, target: Plan, model: Transformer | None = None) -> Survival:
    """What a checkpoint of the form ``form`` (a name of ``FORMATS``) loses from ``source`` to ``target``.

    >>> lost = survives("dp_reshardable", Plan(pp=4), Plan(dp=4, ep=4))
    >>> lost.weights, lost.optimizer
    (True, False)
    """
    named = FORMATS[one_of(tuple(FORMATS), form, "the form of a checkpoint", arrays=False).item()]
    changed = changes(source, target, model)
    able = _limited(named, source)
    stay = [name for name in changed if name not in able]
    optimizer = not stay and named.name != "weights"
    weights = all(name in named.weights for name in changed)
    may = ", ".join(name for name in CHANGES if name in able) or "nothing"
    lines = [f"{named.name} ({named.words}): its optimizer survives a change of {may}"]
    if optimizer:
        lines.append("optimizer: yes")
    else:
        why = f"{' and '.join(stay)} {'changes' if len(stay) == 1 else 'change'}" if stay else "it has none"
        lines.append(f"optimizer: no, {why}; {named.way}")
    if named.caution and (changed or named.way == _OLD_CORE):
        lines.append(f"caution: {named.caution}")
    lines.append(f"weights: {_weights(named, weights, changed)}")
    return Survival(weights, optimizer, tuple(lines))


def _limited(form: Format, source: Plan) -> frozenset:
    """What its optimizer survives, given the stage that wrote it."""
    if form.name == "deepspeed-universal" and source.zero == 3:
        return frozenset({DP})
    if form.name == "deepspeed-elastic" and source.zero == 3:
        return frozenset()
    return form.optimizer


def _weights(form: Format, kept: bool, changed: tuple[str, ...]) -> str:
    if kept and form.name in ("deepspeed", "deepspeed-elastic") and changed:
        return "yes, consolidated to fp32 with zero_to_fp32.py"
    if kept:
        return "yes"
    stay = " and ".join(name for name in changed if name not in form.weights)
    what = f"not as they are, {stay} {'change' if ' and ' in stay else 'changes'}: "
    return what + _TOOLS.get(form.name, "cut or add rows of padding when they are loaded")


_TOOLS = {
    "deepspeed": "convert them with ds_to_universal.py",
    "deepspeed-elastic": "convert them with ds_to_universal.py",
    "deepspeed-universal": "consolidate the ZeRO files to fp32 and cut them anew",
    "megatron-torch": "convert them with tools/checkpoint/convert.py",
}
