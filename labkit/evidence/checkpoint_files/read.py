"""Is the set of files of a checkpoint complete, and how does it hold the optimizer? From the names alone."""

import re
from dataclasses import dataclass
from itertools import product
from math import prod

from labkit.errors import InputRefused
from labkit.evidence.checkpoint_files.listing import file_names
from labkit.evidence.checkpoint_files.names import (
    COMMON,
    DCP,
    DEEPSPEED,
    INDEX,
    MEGATRON,
    OPTIMIZER,
    RANDOM,
    SAFETENSORS,
    STAGE_THREE,
    UNIVERSAL,
    FileName,
    being_written,
    read_name,
)
from labkit.practice.resharding.formats import CHANGES, FORMATS
from labkit.spec.checks import whole
from labkit.spec.rule import counted

COMPLETE, INCOMPLETE, UNKNOWN = "complete", "incomplete", "cannot be told"
_LISTED = 6  # names that a sentence gives one by one
_MOST_PLACES = 1_000_000
_MANY = {"rank": "ranks"}  # a degree is called after its dimension, ranks of no dimension are just ranks
_TORCH_DIST = ("dp_reshardable", "fully_reshardable", "fully_sharded_model_space", "dp_zero_gather_scatter")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """One checkpoint: who wrote it, whether every rank's file is there, and how it holds the optimizer.

    ``verdict``: ``complete``, ``incomplete`` or ``cannot be told``; ``ranks``: degrees seen, as
    ``{"dp": 4, "mp": 1}``; ``missing``: paths that should be there; ``elsewhere``: files of the same save in
    a folder that was still being written; ``forms``: names of ``FORMATS`` that it may be of, one where that
    is sure; ``findings``: sentences.
    """

    folder: str
    framework: str
    verdict: str
    ranks: dict[str, int]
    missing: tuple[str, ...]
    elsewhere: tuple[str, ...]
    forms: tuple[str, ...]
    findings: tuple[str, ...]

    def __repr__(self):
        degrees = ", ".join(f"{name} {size}" for name, size in self.ranks.items())
        title = f"{self.folder or '.'}: {self.framework}" + (f", {degrees}" if degrees else "")
        return "\n".join([f"{title}: {self.verdict}", *(f"  {line}" for line in self.findings)])


def read_checkpoint(source, ranks: int | None = None, log: str = "") -> list[CheckpointFiles]:
    """Every checkpoint in a folder (or in a list of names, or a listing as text), the latest step last.

    ``ranks``: how many ranks wrote it, where that is known: names without a gap cannot tell that the last
    ranks are missing. ``log``: text of the training log or the launch command, which may name the form of the
    optimizer, as names of files often do not. Files are not opened. Refused: sources without any file of a
    checkpoint, and what ``file_names`` refuses.

    >>> names = [f"step5/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1, 3)]
    >>> read_checkpoint(names)[0].missing
    ('step5/zero_pp_rank_2_mp_rank_00_optim_states.pt',)
    """
    if ranks is not None:
        ranks = whole(ranks, "the ranks that wrote the checkpoint")
    said = optimizer_form(log)
    saves: dict[tuple[str, str], list[FileName]] = {}
    for path in file_names(source):
        if name := read_name(path):
            saves.setdefault((name.folder, name.framework), []).append(name)
    beside = {
        key: files for key, files in saves.items() if all(one.part in (RANDOM, COMMON) for one in files)
    }
    own = [key for key in saves if key not in beside]
    if not own:
        raise InputRefused(
            "no name here is that of a checkpoint's file (DeepSpeed, Megatron-LM, torch.distributed."
            "checkpoint, a numbered file a rank); give the folder that holds them"
        )
    random = {folder: files for (folder, _), files in beside.items()}
    return [
        _judged(key, saves, random, ranks, said) for key in sorted(own, key=lambda key: (_step(key[0]), key))
    ]


def optimizer_form(log: str) -> str | None:
    """The name in ``FORMATS`` of the form that a log or a launch command states, or None.

    >>> optimizer_form("Storing distributed optimizer sharded state of type fully_reshardable")
    'fully_reshardable'
    """
    if not isinstance(log, str):
        raise InputRefused("the log is no text; give the text of a training log or of a launch command")
    stated = re.findall(r"sharded state of type (\w+)", log)
    if stated:
        return stated[-1] if stated[-1] in FORMATS else None
    return "fully_reshardable" if "--dist-ckpt-optim-fully-reshardable" in log else None


def _step(folder: str) -> int:
    numbers = re.findall(r"\d{1,18}", folder.split("/")[-1]) or re.findall(r"\d{1,18}", folder)
    return int(numbers[-1]) if numbers else -1


def _judged(key, saves, random, ranks, said) -> CheckpointFiles:
    folder, framework = key
    files = saves[key]
    parts: dict[str, list[FileName]] = {}
    for file in files:
        parts.setdefault(file.part, []).append(file)
    seen = _degrees(files)
    missing = sorted(path for group in parts.values() for alike in _alike(group) for path in _gaps(alike))
    elsewhere = _elsewhere(key, saves)
    findings = []
    if being_written(folder):
        findings.append("its folder has the name of one that is still being written, or whose save broke off")
    if missing:
        findings.append(f"missing: {_some(missing, folder)}")
    if elsewhere:
        findings.append(
            f"{counted(len(elsewhere), 'file')} of the same save in a folder that was still being written: "
            f"{_some(elsewhere)}; move them here before anything is loaded"
        )
    short = _too_few(framework, parts, seen, random, folder, ranks)
    if short:
        findings.append(short)
    unread = framework == DCP and INDEX not in parts
    if unread:
        findings.append("no .metadata, which is written last: the save did not end, and nothing can read it")
    silent = _silent(parts, ranks) if framework == DCP else []
    if silent:
        findings.append(f"no shard of rank {_some(silent)}: it had nothing to write, or its file is lost")
    broken = bool(missing or elsewhere or short or unread or being_written(folder))
    sure = not silent and (ranks is not None or files[0].of is not None)
    if not broken and not sure and not silent:
        findings.append("no gap in the names, which cannot show that the last ranks are missing: say ranks=")
    forms = _forms(framework, parts, said)
    findings += _about(framework, parts, forms)
    verdict = INCOMPLETE if broken else COMPLETE if sure else UNKNOWN
    return CheckpointFiles(
        folder, framework, verdict, seen, tuple(missing), tuple(elsewhere), forms, tuple(findings)
    )


def _degrees(files: list[FileName]) -> dict[str, int]:
    """How many of each kind of rank the names show."""
    seen: dict[str, int] = {}
    for file in files:
        for name, index in file.place.items():
            if name not in ("layer", "expert", "file"):
                seen[_MANY.get(name, name)] = max(seen.get(_MANY.get(name, name), 0), index + 1)
    return seen


def _alike(group: list[FileName]) -> list[list[FileName]]:
    """A part in groups of one count: experts layer by layer, as layers may have other numbers of them."""
    layers: dict[int, list[FileName]] = {}
    for file in group:
        layers.setdefault(file.place["layer"] if "expert" in file.place else -1, []).append(file)
    return list(layers.values())


def _gaps(group: list[FileName]) -> list[str]:
    """Paths of a part that should be there: every combination of the places seen, up to the number of all."""
    first = group[0]
    if not first.exact:
        return []
    names = list(first.place)
    sizes = [max(file.place[name] for file in group if name in file.place) + 1 for name in names]
    starts = [0 if name != "layer" else first.place[name] for name in names]
    if first.of is not None and len(names) == 1:
        sizes = [max(sizes[0], max(file.of for file in group if file.of is not None))]
    if prod(sizes) > _MOST_PLACES:
        raise InputRefused(
            f"the numbers in names like {first.path.split('/')[-1]} run up to {max(sizes):,}; give a "
            f"checkpoint of at most {_MOST_PLACES:,} files"
        )
    have = {tuple(file.place.get(name, 0) for name in names) for file in group}
    absent = (place for place in product(*map(range, starts, sizes)) if place not in have)
    return [first.at(dict(zip(names, place, strict=True))) for place in absent]


def _elsewhere(key, saves) -> list[str]:
    """Files of the same tag and framework in folders that were still being written, unless this is one."""
    folder, framework = key
    if being_written(folder):
        return []
    here = {(file.part, *file.place.items()) for file in saves[key]}
    tag = folder.split("/")[-1]
    return sorted(
        file.path
        for (other, kind), files in saves.items()
        if kind == framework
        and being_written(other)
        and (other.split("/")[-1] == tag or _step(other) == _step(tag))
        for file in files
        if (file.part, *file.place.items()) not in here
    )


def _too_few(framework, parts, seen, random, folder, ranks) -> str:
    """A sentence where fewer ranks have written than there were; empty where that does not show."""
    if framework == DEEPSPEED and OPTIMIZER in parts:
        wrote = seen.get("dp", 1) * seen.get("mp", 1)
        files = random.get(folder, random.get("/".join(folder.split("/")[:-1]), []))
        states = len({file.place["rank"] for file in files if file.part == RANDOM})
        if ranks is not None and wrote != ranks:
            return f"optimizer states of {counted(wrote, 'rank')}, but {ranks:,} wrote it"
        if states > wrote:
            return f"random states of {counted(states, 'rank')}, but optimizer states of {wrote:,}"
        experts = seen.get("ep", 1)
        return "" if experts <= wrote else f"experts of {experts} ranks, but optimizer states of {wrote:,}"
    if ranks is None or framework in (UNIVERSAL, SAFETENSORS):
        return ""
    if framework == MEGATRON:
        wrote = seen.get("tp", 1) * seen.get("pp", 1) * seen.get("ep", 1)
        return (
            ""
            if ranks % wrote == 0
            else f"folders of {wrote} tp x pp ranks do not divide the {ranks:,} that wrote"
        )
    wrote = seen.get("ranks", 0)
    if framework == DCP:
        return "" if wrote <= ranks else f"shards of rank {wrote - 1}, but {ranks:,} ranks wrote it"
    return "" if wrote == ranks else f"files of {counted(wrote, 'rank')}, but {ranks:,} wrote it"


def _forms(framework, parts, said) -> tuple[str, ...]:
    """The forms of ``FORMATS`` that it may be of."""
    if framework == DEEPSPEED:
        if OPTIMIZER not in parts:
            return ("weights",)
        return ("deepspeed",) if STAGE_THREE in parts else ("deepspeed", "deepspeed-elastic")
    if framework == DCP and COMMON in parts:
        return (said,) if said in _TORCH_DIST or said == "fully_sharded_bucket_space" else _TORCH_DIST
    return {
        UNIVERSAL: ("deepspeed-universal",),
        MEGATRON: ("megatron-torch",),
        DCP: ("dcp",),
        SAFETENSORS: ("weights",),
    }.get(framework, ())


def _silent(parts, ranks: int | None) -> list[str]:
    """Ranks without a shard, up to the last that has one, or to the last there was."""
    have = {file.place["rank"] for file in parts.get("shards", ())}
    last = max(have, default=-1) + 1 if ranks is None else ranks
    if last > _MOST_PLACES:
        raise InputRefused(
            f"a shard is of rank {last - 1:,}; give a checkpoint of at most {_MOST_PLACES:,} ranks"
        )
    return [str(rank) for rank in range(last) if rank not in have]


def _about(framework, parts, forms) -> list[str]:
    """What the form lets change, and how to find out where names do not say."""
    lines = []
    if framework == DEEPSPEED and OPTIMIZER in parts:
        lines.append(
            f"ZeRO stage {'3' if STAGE_THREE in parts else '1 or 2'}, a file of optimizer states a rank"
        )
    if len(forms) > 1 and framework == DCP:
        lines.append(
            "Megatron Core torch_dist; names do not tell the form of the optimizer: look for 'sharded state "
            "of type' in the log of the run that saved, and give it as log="
        )
    elif not forms:
        lines.append("a file for each rank, as it holds its shard: load with as many ranks, or merge first")
    for name in forms:
        may = ", ".join(one for one in CHANGES if one in FORMATS[name].optimizer) or "nothing"
        lines.append(f"{name}: its optimizer survives a change of {may}")
    return lines


def _some(paths, folder: str = "") -> str:
    """The first few, without the folder that they all lie in, and how many more there are."""
    short = [path.removeprefix(f"{folder}/") if folder else path for path in paths[:_LISTED]]
    more = len(paths) - _LISTED
    return ", ".join(short) + (f" and {more:,} more" if more > 0 else "")
