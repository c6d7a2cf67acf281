"""What the name of one file of a checkpoint says: which framework wrote it, of which rank, as which part.

Names as DeepSpeed (``runtime/engine.py``), Megatron-LM (``training/checkpointing.py``), PyTorch
(``distributed/checkpoint``), Hugging Face's Trainer and Accelerate, and verl write them. No file is opened.
"""

import re
from dataclasses import dataclass, field

DEEPSPEED, UNIVERSAL, MEGATRON, DCP, NUMBERED, SAFETENSORS = (
    "DeepSpeed",
    "DeepSpeed universal",
    "Megatron-LM torch",
    "torch.distributed.checkpoint",
    "one file a rank",
    "weights in numbered files",
)
RANDOM = "random states"
OPTIMIZER, STAGE_THREE, INDEX, COMMON = "optimizer states", "model states of stage 3", "index", "common state"

_MP = r"mp_rank_(?P<mp>\d+)"
_MEGATRON = r"mp_rank_(?P<tp>\d{2,})(?:_(?P<pp>\d{3}))?(?:_(?P<ep>\d{3}))?"
# Framework, part, pattern of the end of a path, whether every rank has such a file. Named groups are places,
# ``of`` the number of all files.
_PATTERNS = [
    (framework, part, re.compile(rf"(?:^|/){pattern}$"), exact)
    for framework, part, pattern, exact in (
        (DEEPSPEED, OPTIMIZER, rf"(?:[bf]p?f?16_)?zero_pp_rank_(?P<dp>\d+)_{_MP}_?optim_states\.pt", True),
        (DEEPSPEED, STAGE_THREE, rf"zero_pp_rank_(?P<dp>\d+)_{_MP}_?model_states\.pt", True),
        (
            DEEPSPEED,
            "experts",
            rf"layer_(?P<layer>\d+)_expert_(?P<expert>\d+)_{_MP}_model_states\.pt",
            True,
        ),
        (DEEPSPEED, "optimizer states of experts", rf"expp_rank_(?P<ep>\d+)_{_MP}_optim_states\.pt", True),
        (DEEPSPEED, "layers", r"layer_(?P<layer>\d+)-model_(?P<mp>\d+)-model_states\.pt", False),
        (DEEPSPEED, "model states", rf"{_MP}_model_states\.pt", True),
        (UNIVERSAL, "parameters", r"zero/[^/]+/(?:fp32|exp_avg|exp_avg_sq|step)\.pt", False),
        (MEGATRON, "model states", rf"{_MEGATRON}/model(?:_optim)?_rng\.pt", True),
        (MEGATRON, OPTIMIZER, rf"{_MEGATRON}/(?:distrib_)?optim\.pt", True),
        (DCP, "shards", r"__(?P<rank>\d+)_\d+\.distcp", False),
        (DCP, INDEX, r"\.metadata", False),
        (DCP, COMMON, r"common\.pt|metadata\.json", False),
        (NUMBERED, "model states", r"model_world_size_(?P<of>\d+)_rank_(?P<rank>\d+)\.pt", True),
        (NUMBERED, OPTIMIZER, r"optim_world_size_(?P<of>\d+)_rank_(?P<rank>\d+)\.pt", True),
        (NUMBERED, "extra state", r"extra_state_world_size_(?P<of>\d+)_rank_(?P<rank>\d+)\.pt", True),
        (NUMBERED, RANDOM, r"(?:rng_state|random_states)_(?P<rank>\d+)\.(?:pth|pt|pkl)", True),
        (SAFETENSORS, "weights", r"[^/]*-(?P<file>\d{5})-of-(?P<of>\d{5})\.(?:safetensors|bin)", True),
    )
]
_BEING_WRITTEN = re.compile(
    r"^(?:\.?(?:tmp|temp)[-_.].*|.*[-_.](?:tmp|temp|incomplete|partial|staging)(?:[-_.].*)?)$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class FileName:
    """One file: its framework, its part, its place (degree names and ranks), and of how many if it says so.

    ``exact``: whether every rank has such a file; where a rank with nothing to write has none, a gap proves
    nothing. ``path``: as it was given; ``spans``: where its numbers stand.
    """

    framework: str
    part: str
    place: dict[str, int]
    of: int | None
    exact: bool
    path: str
    spans: dict[str, tuple[int, int]] = field(repr=False)

    @property
    def folder(self) -> str:
        """The folder that holds the whole checkpoint of this framework."""
        up = {UNIVERSAL: 3, MEGATRON: 2}.get(self.framework, 1)
        return "/".join(self.path.split("/")[:-up])

    def at(self, place: dict[str, int]) -> str:
        """The path of the same file for another place.

        >>> read_name("step5/zero_pp_rank_3_mp_rank_00_optim_states.pt").at({"dp": 4, "mp": 1})
        'step5/zero_pp_rank_4_mp_rank_01_optim_states.pt'
        """
        path = self.path
        for name, (start, stop) in sorted(self.spans.items(), key=lambda item: -item[1][0]):
            number = place[name] + (name == "file")
            path = f"{path[:start]}{number:0{stop - start if path[start] == '0' else 1}d}{path[stop:]}"
        return path


def read_name(path: str) -> FileName | None:
    """What the name at the end of a path says; None for a file of none of the kinds.

    >>> name = read_name("global_step100/bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt")
    >>> name.framework, name.part, name.place, name.folder
    ('DeepSpeed', 'optimizer states', {'dp': 3, 'mp': 0}, 'global_step100')
    """
    for framework, part, pattern, exact in _PATTERNS:
        found = pattern.search(path)
        if found:
            names = [name for name, value in found.groupdict().items() if value is not None]
            numbers = {name: int(found[name]) for name in names}
            of = numbers.pop("of", None)
            if "file" in numbers:  # these count from 1
                numbers["file"] -= 1
            spans = {name: found.span(name) for name in numbers}
            return FileName(framework, part, numbers, of, exact, path, spans)
    return None


def being_written(folder: str) -> bool:
    """Whether a folder, or one that it lies in, has the name of one that was still being written.

    >>> being_written("out/tmp-checkpoint-132/global_step132"), being_written("out/checkpoint-132")
    (True, False)
    """
    return any(_BEING_WRITTEN.match(name) for name in folder.split("/"))
