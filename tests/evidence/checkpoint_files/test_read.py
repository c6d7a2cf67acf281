"""Which files of a checkpoint are missing: reported folders, every kind of name, listings of every "
"command."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.checkpoint_files import file_names, optimizer_form, read_checkpoint

# The traits of a report (DeepSpeed 5405): four ranks, the files of two left in a folder of their node.
TREE = """
├── run
│   ├── checkpoint-100
│   │   ├── config.json
│   │   ├── global_step100
│   │   │   ├── bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt
│   │   │   ├── bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
│   │   │   ├── zero_pp_rank_0_mp_rank_00_model_states.pt
│   │   │   └── zero_pp_rank_1_mp_rank_00_model_states.pt
│   │   ├── latest
│   │   ├── rng_state_0.pth
│   │   └── rng_state_1.pth
│   └── tmp-checkpoint-100
│       └── global_step100
│           ├── bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt
│           └── bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt

5 directories, 11 files
"""


def zero(ranks, mp=1, folder="global_step5", prefix="bf16_"):
    return [
        f"{folder}/{prefix}zero_pp_rank_{dp}_mp_rank_{m:02d}_optim_states.pt"
        for dp in ranks
        for m in range(mp)
    ]


def megatron(tp, pp, ep=None, file="model_optim_rng.pt"):
    tail = [f"_{e:03d}" for e in range(ep)] if ep else [""]
    return [
        f"iter_0000100/mp_rank_{t:02d}_{p:03d}{e}/{file}" for t in range(tp) for p in range(pp) for e in tail
    ]


def dcp(ranks, index=True, folder="step-10"):
    return [f"{folder}/__{rank}_0.distcp" for rank in ranks] + [f"{folder}/.metadata"] * index


def test_two_ranks_left_in_a_folder_of_their_own():
    main = read_checkpoint(TREE)[0]
    assert main.verdict == "incomplete" and main.ranks == {"dp": 2, "mp": 1}
    assert [Path(one).name[:22] for one in main.elsewhere] == [
        "bf16_zero_pp_rank_2_mp",
        "bf16_zero_pp_rank_3_mp",
    ]
    assert "tmp-checkpoint-100" in str(main) and main.forms == ("deepspeed",)
    alone = read_checkpoint([name for name in file_names(TREE) if "tmp" not in name])[0]
    assert alone.verdict == "cannot be told" and "say ranks=" in str(alone)
    told = read_checkpoint([name for name in file_names(TREE) if "tmp" not in name], ranks=4)[0]
    assert told.verdict == "incomplete" and "optimizer states of 2 ranks, but 4 wrote it" in str(told)


def test_a_gap_is_named():
    found = read_checkpoint(zero([0, 1, 3], mp=2)[:-1])[0]
    assert found.missing == tuple(sorted([*zero([2], mp=2), zero([3], mp=2)[1]]))
    assert found.verdict == "incomplete" and found.ranks == {"dp": 4, "mp": 2}


def test_random_states_tell_of_more_ranks():
    names = [*zero([0, 1]), *(f"rng_state_{rank}.pth" for rank in range(4))]
    assert "random states of 4 ranks" in str(read_checkpoint(names)[0])
    assert read_checkpoint(names)[0].verdict == "incomplete"


@pytest.mark.parametrize("missing", [(0, 0), (1, 2), (3, 1)])
def test_megatron_folders(missing):
    names = megatron(4, 3)
    gone = f"iter_0000100/mp_rank_{missing[0]:02d}_{missing[1]:03d}/model_optim_rng.pt"
    found = read_checkpoint([name for name in names if name != gone])[0]
    assert (
        found.missing == (gone,) and found.ranks == {"tp": 4, "pp": 3} and found.forms == ("megatron-torch",)
    )
    whole = read_checkpoint(names, ranks=24)[0]
    assert whole.verdict == "complete" and not whole.missing


def test_megatron_experts_and_distributed_optimizer():
    names = megatron(2, 2, ep=2) + megatron(2, 2, ep=2, file="distrib_optim.pt")
    assert read_checkpoint(names, ranks=16)[0].verdict == "complete"
    assert len(read_checkpoint(names[:-1])[0].missing) == 1


def test_dcp_is_readable_only_with_its_index():
    assert read_checkpoint(dcp(range(4)), ranks=4)[0].verdict == "complete"
    without = read_checkpoint(dcp(range(4), index=False), ranks=4)[0]
    assert without.verdict == "incomplete" and "no .metadata" in str(without)
    gap = read_checkpoint(dcp([0, 2, 3]), ranks=4)[0]
    assert gap.verdict == "cannot be told" and "no shard of rank 1" in str(gap)
    assert read_checkpoint(dcp(range(4)), ranks=2)[0].verdict == "incomplete"


def test_torch_dist_asks_the_log_for_its_form():
    names = [*dcp(range(2), folder="iter_0000007"), "iter_0000007/common.pt", "iter_0000007/metadata.json"]
    asked = read_checkpoint(names)[0]
    assert len(asked.forms) > 1 and "names do not tell" in str(asked)
    log = "step 7\nStoring distributed optimizer sharded state of type dp_reshardable\n"
    told = read_checkpoint(names, log=log)[0]
    assert told.forms == ("dp_reshardable",) and "survives a change of dp" in str(told)
    assert (
        optimizer_form("--use-distributed-optimizer --dist-ckpt-optim-fully-reshardable")
        == "fully_reshardable"
    )
    assert optimizer_form("nothing of the kind") is None


def test_names_that_state_their_number():
    names = [f"actor/{kind}_world_size_4_rank_{rank}.pt" for kind in ("model", "optim") for rank in range(4)]
    assert read_checkpoint(names)[0].verdict == "complete"
    assert read_checkpoint(names[:-1])[0].missing == ("actor/optim_world_size_4_rank_3.pt",)
    shards = [f"model-{n:05d}-of-00003.safetensors" for n in (1, 3)]
    assert read_checkpoint(shards)[0].missing == ("model-00002-of-00003.safetensors",)


def test_experts_layer_by_layer():
    """Layers may have other numbers of experts; within one, no number is left out."""
    names = [
        f"global_step5/layer_{layer}_expert_{one}_mp_rank_00_model_states.pt"
        for layer, many in ((0, 2), (1, 4))
        for one in range(many)
    ]
    assert read_checkpoint([*names, *zero([0, 1])], ranks=2)[0].verdict == "complete"
    gone = names.pop(3)
    assert read_checkpoint([*names, *zero([0, 1])], ranks=2)[0].missing == (gone,)


def test_stage_and_universal():
    two = read_checkpoint([*zero([0, 1]), "global_step5/mp_rank_00_model_states.pt"])[0]
    assert two.forms == ("deepspeed", "deepspeed-elastic") and "stage 1 or 2" in str(two)
    names = [
        f"global_step5_universal/zero/layer.{n}.weight/{part}.pt"
        for n in range(3)
        for part in ("fp32", "exp_avg")
    ]
    assert read_checkpoint(names)[0].forms == ("deepspeed-universal",)


def test_old_names_without_an_underscore():
    names = [f"80000/zero_pp_rank_{rank}_mp_rank_00optim_states.pt" for rank in (0, 1, 3)]
    assert read_checkpoint(names)[0].missing == ("80000/zero_pp_rank_2_mp_rank_00optim_states.pt",)


def test_several_checkpoints_the_latest_last():
    names = [*zero([0, 1], folder="out/global_step20"), *zero([0, 1], folder="out/global_step100")]
    assert [one.folder for one in read_checkpoint(names)] == ["out/global_step20", "out/global_step100"]


def test_shuffled_names_give_the_same():
    names = zero(range(6), mp=2)[:-3] + megatron(2, 2)
    again = names[:]
    random.Random(6).shuffle(again)
    assert list(map(str, read_checkpoint(again))) == list(map(str, read_checkpoint(names)))


# ---- listings


LISTINGS = {
    "find": "./a/global_step5/{0}\n./a/global_step5/{1}\n",
    "ls -R": "a:\nglobal_step5\n\na/global_step5:\n{0}\n{1}\n",
    "ls -lR": "a/global_step5:\ntotal 8\n-rw-r--r-- 1 me us 12 Mar  3 10:11 {0}\n-rw-rw-r--+ 1 me us 1.2G "
    "Mar  3  2024 {1}\n",
    "tree": "a\n└── global_step5\n    ├── {0}\n    └── {1}\n",
    "windows": "a\\global_step5\\{0}\na\\global_step5\\{1}\r\n",
}


@pytest.mark.parametrize("command", LISTINGS)
def test_listings_of_every_command(command):
    text = LISTINGS[command].format(*(Path(name).name for name in zero([0, 2])))
    found = read_checkpoint(text)[0]
    assert found.folder.endswith("global_step5") and len(found.missing) == 1
    assert "rank_1_" in found.missing[0]


def test_a_folder_on_disk(tmp_path):
    for name in zero([0, 1, 3]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\x80\x04never opened")
    (tmp_path / "loop").symlink_to(tmp_path)
    for folder in (tmp_path, str(tmp_path)):
        assert read_checkpoint(folder)[0].missing == tuple(zero([2]))


# ---- refused


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("/no/such/folder", "there is no folder"),
        ([], "no name here"),
        (["notes.txt"], "no name here"),
        ("a\nb\n", "no name here"),
        (None, "give a folder"),
        ([1, 2], "a name in the list"),
        (["x" * 5000], "a name in the list"),
        ([f"zero_pp_rank_{10**7}_mp_rank_00_optim_states.pt"], "at most"),
        ([f"zero_pp_rank_{10**30}_mp_rank_00_optim_states.pt"], "at most"),
        ([f"__{10**9}_0.distcp"], "at most"),
    ],
)
def test_refused(source, says):
    with pytest.raises(InputRefused) as refusal:
        read_checkpoint(source)
    assert says in str(refusal.value) and "\n" not in str(refusal.value) and len(str(refusal.value)) < 320


def test_wrong_settings_are_refused():
    with pytest.raises(InputRefused, match="ranks that wrote"):
        read_checkpoint(zero([0]), ranks=0)
    with pytest.raises(InputRefused, match="the log is no text"):
        read_checkpoint(zero([0]), log=None)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text):
    try:
        read_checkpoint(text + "\n")
    except InputRefused as refusal:
        assert "\n" not in str(refusal)
