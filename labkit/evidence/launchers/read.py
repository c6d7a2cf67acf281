"""Reads what starts a training run: which framework it is for, and what plan it asks for."""

import os
import re
import tomllib
from collections.abc import Iterator

from labkit.errors import InputRefused
from labkit.evidence.launchers import deepspeed, megatron, slurm, torchtitan
from labkit.evidence.launchers.facts import REST, Facts, facts_of, normal
from labkit.evidence.launchers.launch import Launch
from labkit.evidence.launchers.shell import (
    Script,
    is_unknown,
    plain_word,
    read_script,
    split_words,
    unknown_in,
)
from labkit.evidence.launchers.texts import flat, printed_arguments, read_object
from labkit.evidence.sweep_source import check_readable, text_of
from labkit.presets.launchers import Framework, Setting, launcher, launcher_ids
from labkit.spec import Plan, Transformer
from labkit.spec.checks import noun, one_of, shown, whole

FRAMEWORKS = {module.ID: module for module in (megatron, deepspeed, torchtitan)}
_SHAPE = ("layers", "hidden", "heads", "vocabulary")
_PRECISIONS = ("bf16", "fp16", "fp32")
_GIVEN = (*Plan.__slots__, "gpus", "sequence", "precision", "model", *_SHAPE)
_OF_TENSOR_PARALLEL = ("sequence_parallel", "vocabulary_multiple")
_TABLE = re.compile(r"^\[(?:parallelism|training|model|job)\b", re.MULTILINE)
_ANYWHERE = ("nodes", "gpus_per_node", "gpus", "slurm_gpus", "tasks", "tasks_per_node")
_MPI = {
    "np": "ntasks",
    "n": "ntasks",
    "N": "ntasks-per-node",
    "npernode": "ntasks-per-node",
    "ppn": "ntasks-per-node",
}
_SHORT = {**dict.fromkeys(("srun", "salloc", "sbatch"), slurm.SHORT), "mpirun": _MPI, "mpiexec": _MPI}
_SEVERAL = re.compile(r"args|options|opts|extra|flags|[@*]", re.IGNORECASE)  # names of words, not of one
_SHORT_OPTION = re.compile(r"-([A-Za-z]+)=?(\d[\d-]*)?")
_TOML_FILE = "job.config-file"  # the option by which torchtitan is given its TOML
_LEAST = 2  # flags of a framework by which a command line is recognised


def read_launcher(path_or_text: str | os.PathLike, **given) -> Launch:
    """What a launcher's file asks for: Megatron-LM's command line, script or printed arguments, DeepSpeed's
    JSON, torchtitan's TOML (or its options on a command line). The framework is recognised.

    A ``str`` with a newline, a brace first or an option in it is the text itself, anything else a path.
    Nothing in it is run. ``given``: what the file leaves open or what overrules it: ``gpus``, ``sequence``,
    ``precision``, ``model`` (a Transformer), a field of a ``Plan``, or layers, hidden, heads, vocabulary of
    the model.

    Refused: a text of no known framework, one that cannot be read, and a number that is none.

    >>> found = read_launcher("torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py "
    ...     "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2 "
    ...     "--global-batch-size 64 --use-distributed-optimizer --bf16")
    >>> found.framework, found.plan.dp, found.plan.zero, found.plan.accumulation
    ('megatron-lm', 4, 1, 8)
    """
    for name in given:
        if name not in _GIVEN:
            raise InputRefused(f"read_launcher takes no {shown(name)}; it takes {', '.join(_GIVEN)}")
    if isinstance(path_or_text, str) and " --" in f" {path_or_text}":
        path_or_text += "\n"  # a command line of one line
    text, path = text_of(path_or_text, "a launcher's file")
    check_readable(text, path or "the text", "what starts your training")
    framework, flags, warnings = _recognised(text, path)
    facts = facts_of(framework, flags)
    facts.warnings[:0] = warnings
    _take(facts, given)
    reader = FRAMEWORKS[framework.id]
    fields = reader.plan_of(facts)
    model = reader.model_of(facts)
    plan = Plan(**_batch_of(fields | {name: given[name] for name in given if name in Plan.__slots__}, given))
    facts.missing = [one for one in facts.missing if not any(f"give {name}=" in one for name in given)]
    open_batch = any("give global_batch=" in one or "give micro_batch=" in one for one in facts.missing)
    for names, where in _elsewhere(framework, given, plan).items():
        first = names.split(",")[0]
        facts.missing.append(f"{names}: {where}: give {first}= ({getattr(plan, first)} is taken)")
    sequence = facts.get("sequence", None if model is None else model.sequence)
    return Launch(
        framework.id,
        plan,
        model,
        None if open_batch else plan.global_batch,
        sequence,
        facts.get("gpus"),
        facts.get("precision"),
        facts.missing,
        facts.unknown,
        list(dict.fromkeys(facts.warnings)),
    )


def _batch_of(fields: dict, given: dict) -> dict:
    """Of the three batch numbers those that are given count, then those of the file."""
    names = ("micro_batch", "global_batch", "accumulation")
    ours = [name for name in names if given.get(name) is not None]
    if not ours:
        return fields
    kept = [*ours, *(name for name in names if fields.get(name) is not None and name not in ours)][:2]
    return {name: value for name, value in fields.items() if name not in names or name in kept}


def _take(facts: Facts, given: dict) -> None:
    """Puts down what the caller gives, and the GPUs that nodes and cards make."""
    for name, value in given.items():
        if name == "model":
            noun(value, Transformer, "the model")
        elif name == "precision":
            one_of(_PRECISIONS, value, "the precision of a launch", arrays=False)
        elif name in Plan.__slots__:
            value = getattr(Plan(**{name: value}), name)
        else:
            value = whole(value, f"{name} of a launch")
        facts.value[name], facts.from_[name] = value, f"{name}="
    if facts.get("gpus") is None:
        _count_gpus(facts)
    for name in ("nodes", "gpus_per_node"):
        open_ends = [one for one in facts.missing if f"give {name}=" in one]
        facts.missing = [one for one in facts.missing if one not in open_ends]
        if open_ends and facts.get("gpus") is None:
            facts.need("gpus", open_ends[0].split(": give")[0])


def _count_gpus(facts: Facts) -> None:
    """GPUs from hosts and processes: those that torchrun starts, else the scheduler's own, one a GPU."""
    told = facts.get("slurm_gpus", "")
    told = told[0] if isinstance(told, list) else told  # and the command behind it
    last = told.rsplit(":", 1)[-1]  # of "8", "a100:8" or "gpu:a100:8"
    cards = int(last) if last.isdecimal() and len(last) < 6 else None
    nodes, tasks, per_node = (facts.get(name) for name in ("nodes", "tasks", "tasks_per_node"))
    started = facts.get("gpus_per_node")
    # One task a host is a launcher that starts the others itself.
    each = started or (per_node if per_node != 1 else cards or per_node) or cards
    if nodes is None and tasks and per_node:
        nodes = -(-tasks // per_node)
    if nodes is None and any("give nodes=" in one for one in facts.missing):
        return
    if nodes is None and tasks and not started:
        facts.value["gpus"] = tasks
    elif each:
        facts.value["gpus"] = (nodes or 1) * each
        if nodes is None and not started:
            facts.need("gpus", "the number of hosts, which the scheduler is told elsewhere", "one is taken")


def _elsewhere(framework: Framework, given: dict, plan: Plan) -> dict[str, str]:
    """Settings that stand in the user's code, those of one place together, as far as they do something."""
    places: dict[str, list[str]] = {}
    for name, where in framework.elsewhere.items():
        covered = name == "recompute_every" and "recompute" in given
        if name not in given and not covered and (plan.tp > 1 or name not in _OF_TENSOR_PARALLEL):
            places.setdefault(where, []).append(name)
    return {", ".join(names): where for where, names in places.items()}


def _recognised(text: str, path: str) -> tuple[Framework, dict, list[str]]:
    """The framework, its flags, and what to know about the text."""
    what = path or "the text"
    start = text.lstrip()[:1]
    printed = printed_arguments(text)
    if printed:
        return launcher(megatron.ID), printed, []
    if path.endswith(".toml") or _TABLE.search(text):
        return _toml(text, what)
    if start == "{" or path.endswith(".json") or "json = {" in text:
        return _json(text, what)
    script = read_script(text)
    for id in launcher_ids():
        flags = _command_line(script, launcher(id))
        if flags:
            if _TOML_FILE in flags:
                named = plain_word(str(flags[_TOML_FILE]))[:80]
                script.warnings.append(f"{named}, which holds the other settings, is not read here")
            return launcher(id), flags, script.warnings
    if "{" in text and '"zero_optimization"' in text:
        return _json(text, what)
    named = _configuration(script)
    raise InputRefused(
        f"{what} starts no training that is known here: it has neither options of Megatron-LM or torchtitan "
        "nor printed arguments, and is neither DeepSpeed's JSON nor torchtitan's TOML"
        + (f"; read {named}, which it names" if named else "")
    )


def _toml(text: str, what: str) -> tuple[Framework, dict, list[str]]:
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputRefused(f"{what} is no TOML: {str(error)[:100]}; mend it there") from None
    return _known(torchtitan.ID, flat(tables), what)


def _json(text: str, what: str) -> tuple[Framework, dict, list[str]]:
    found = read_object(text)
    stage = found.get("zero_optimization")
    if isinstance(stage, bool):  # as the first versions had it
        found["zero_optimization"] = {"stage": int(stage)}
    return _known(deepspeed.ID, flat(found), what)


def _known(id: str, flags: dict, what: str) -> tuple[Framework, dict, list[str]]:
    """The flags, where some of them are the framework's."""
    framework = launcher(id)
    settings = {normal(flag) for flag in framework.settings}
    if not any(normal(flag) in settings for flag in flags):
        raise InputRefused(
            f"{what} has none of the settings of {framework.name} that say how a run is cut, such as "
            f"{next(iter(framework.settings))}; give its own configuration"
        )
    return framework, flags, []


def _command_line(script: Script, framework: Framework) -> dict:
    """The options of the command that has the framework's own; none where it has too few of them."""
    settings = {normal(flag) for flag in framework.settings}
    own = {normal(flag) for flag, one in framework.settings.items() if not _of_any_launcher(one)}
    best: dict = {}
    for words in [*script.commands, [word for value in script.variables.values() for word in value]]:
        flags = _options(words)
        if own & flags.keys() and len(settings & flags.keys()) > max(len(settings & best.keys()), _LEAST - 1):
            best = flags
    if not best:
        return {}
    return {**_options(script.scheduler), **best}


def _of_any_launcher(setting: Setting) -> bool:
    """Whether a flag only says what every training does: on which GPUs, and in which precision."""
    return setting.gives in _ANYWHERE or (bool(setting.sets) and setting.sets.keys() <= {"precision"})


def _configuration(script: Script) -> str:
    """The file of settings that a script hands over; empty where there is none."""
    for words in script.commands:
        found = _options(words)
        for name in (_TOML_FILE, "deepspeed-config", "deepspeed"):
            if isinstance(found.get(name), str | list):
                return plain_word(str(found[name] if isinstance(found[name], str) else found[name][0]))[:80]
    return ""


def _opened(words: list[str]) -> Iterator[str]:
    """The words, with those of a command that is handed over whole, as to bash -c, one by one."""
    for word in words:
        yield from split_words(word) if " --" in word else (word,)


def _options(words: list[str]) -> dict:
    """The options of a command by name: True for a switch, a word, or a list of several."""
    found: dict = {}
    name, short_options = None, {}
    for word in _opened(words):
        short_options = _SHORT.get(word.rpartition("/")[2], short_options)
        short = _SHORT_OPTION.fullmatch(word)
        if short and short[1] in short_options:
            name = short_options[short[1]]
            found[name] = short[2] or True
        elif word.startswith("--") and len(word) > 2 and not unknown_in(word.split("=")[0]):
            name, given, value = word.partition("=")
            name = normal(name)
            found[name] = value if given else True
            name = None if given else name  # what follows is no value of it
        elif word.startswith("-") and word[1:2].isalpha():
            name = None  # a short option: of the shell's own tools
        elif is_unknown(word) and (name is None or found[name] is not True or _SEVERAL.search(word)):
            found.setdefault(REST, []).append(word)
        elif name is not None:
            before = found[name]
            found[name] = (
                word if before is True else [*(before if isinstance(before, list) else [before]), word]
            )
    return found
