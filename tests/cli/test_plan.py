"""``labkit plan`` as a terminal user meets it: a search, fitted links, a launch reviewed, refusals."""

import io
import json
import sys
from dataclasses import fields
from types import SimpleNamespace

import pytest

from labkit import StepTime, cluster, model
from labkit.cli import main
from labkit.evidence.launchers import read_launcher
from labkit.planner.search import FIELDS, FIGURES, search
from labkit.presets import sample_sweeps

BASE = ["plan", "--model", "llama2-7b", "--cluster", "h100", "--batch", "64"]
FIXED = ["--fix", "recompute=none,schedule=1f1b,v=1,cp=1"]
SMALL = [*BASE, *FIXED]
SETTINGS = {"recompute": "none", "schedule": "1f1b", "v": 1, "cp": 1}
INTRA = ["--intra", str(sample_sweeps()["h100-8gpu-nvswitch"])]
SCRIPT = """#!/bin/bash
#SBATCH --nodes=1
torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-parallel-size 8 --sequence-parallel --micro-batch-size 1 --global-batch-size 64 \\
  --seq-length 4096 --bf16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
"""
WIDEST = 120


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return str(path)


def answer(capsys, *command):
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def test_report_reads_well(capsys):
    assert main([*SMALL, *INTRA, "--launcher", "megatron"]) == 0
    out = capsys.readouterr().out
    for words in (
        "\nplan 1:\ntorchrun --nnodes 1",
        "llama2-7b on 8 GPUs of h100, 64 sequences of 4,096 tokens a step",
        "inside     alpha 1.12 µs -> 1.23 µs (h100-8gpu-nvswitch.txt",
        "kept, h100-8gpu-nvswitch.txt cannot tell",
        "tried, ",
        "memory: possible, but the fullest card holds more than it may",
        "tokens/s a GPU  MFU",
        "  5  ",
        "largest beside compute: ",
        "the next takes ",
        "runner-up  takes ",
        "model's error of 2.93 %",
        "left out   offload",
    ):
        assert words in out, words
    assert "a port" not in out  # no sweep over hosts was given
    report = out[: out.index("torchrun")]
    assert max(map(len, report.split("\n"))) <= WIDEST and "nan" not in report


def test_json_is_the_table_of_the_search(capsys):
    found = answer(capsys, *SMALL, "--top", "2")
    table = search(model("llama2-7b"), cluster("h100"), 64, SETTINGS)
    assert found["tried"] == table.attrs["tried"] and found["refused"] == table.attrs["refused"]
    assert found["feasible"] == len(table) and found["fixed"] == SETTINGS
    assert [one["seconds"] for one in found["plans"]] == table["seconds"].head(2).tolist()
    assert set(found["plans"][0]) >= {*FIELDS, *FIGURES, "step_time", "reasons", "longer", "sure"}
    step = found["plans"][0]["step_time"]
    assert {field.name for field in fields(StepTime)} < set(step) and step["total"] == table["seconds"].iloc[
        0
    ]
    assert found["lead"]["error"] == cluster("h100").gpu.kernels.residual and found["launcher"] is None


def test_memory_fix_and_nodes_reach_the_search(capsys):
    found = answer(capsys, *BASE, "--fix", "tp=4,zero=1,cp=1", "--max-memory", "30GiB", "--nodes", "2")
    assert found["cluster"]["n_gpus"] == 16
    assert all(one["tp"] == 4 and one["zero"] == 1 for one in found["plans"])
    assert all(one["memory"] <= 30 * 2**30 for one in found["plans"])


def test_sweeps_reach_the_step(capsys):
    sweep = str(sample_sweeps()["a100-8gpu-nvswitch"])
    a100 = [*SMALL[:4], "a100", *SMALL[5:]]
    plain, fitted = answer(capsys, *a100), answer(capsys, *a100, "--intra", sweep)
    assert fitted["cluster"]["intra"]["alpha"] == pytest.approx(41.8e-6 / 14, rel=0.01)
    assert fitted["cluster"]["inter"] == plain["cluster"]["inter"]
    assert fitted["plans"][0]["seconds"] > plain["plans"][0]["seconds"]


def test_files_of_ones_own(tmp_path, capsys):
    own = tmp_path / "mine.toml"
    own.write_text(
        '[cluster.mine]\ngpu = "h100"\ngpus_per_node = 8\ndomain = 8\nnics_per_node = 4\n'
        "[cluster.mine.intra]\nreached_GBps = 300\nalpha_us = 2\n"
        "[cluster.mine.inter]\nreached_GBps = 20\nalpha_us = 8\n"
    )
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 2048,
                "num_hidden_layers": 16,
                "num_attention_heads": 16,
                "intermediate_size": 5632,
                "vocab_size": 32000,
                "max_position_embeddings": 2048,
            }
        )
    )
    command = ["plan", "--model", str(config), "--cluster", str(own), "--batch", "8", *FIXED]
    assert answer(capsys, *command)["cluster"]["name"] == "mine"


ONE = ["--fix", "pp=1,tp=1,zero=3", "--fix", "micro_batch=1"]


@pytest.mark.parametrize("framework", ["megatron", "deepspeed", "torchtitan"])
def test_launchers_are_written_for_the_first_plan(framework, capsys):
    found = answer(capsys, *SMALL, *ONE, "--launcher", framework)
    assert found["plans"][0]["zero"] == 3 and found["launcher"]["place"] == 1
    plan = read_launcher(found["launcher"]["text"], gpus=8, model=model("llama2-7b")).plan
    assert (plan.dp, plan.zero, plan.micro_batch, plan.global_batch) == (8, 3, 1, 64)


def test_a_framework_that_cannot_express_a_plan_says_so(capsys):
    command = [*BASE, "--fix", "cp=2,recompute=none", "--launcher", "deepspeed", "--top", "1"]
    assert main(command) == 0
    assert "launcher   plan 1: DeepSpeed cannot express " in capsys.readouterr().out
    found = answer(capsys, *command)["launcher"]
    assert found["place"] is None and found["cannot"][0][0] == 1


def test_nothing_fits(capsys):
    assert main([*SMALL, "--max-memory", "7GB"]) == 0
    assert "no plan fits: take a larger --max-memory, more nodes, or a smaller" in capsys.readouterr().out
    assert answer(capsys, *SMALL, "--max-memory", "7GB")["plans"] == []
    assert answer(capsys, *SMALL, "--max-memory", "7GB", "--launcher", "megatron")["launcher"]["text"] == ""


def test_a_launch_is_reviewed(script, capsys):
    command = ["plan", "--launch", script, "--cluster", "h100", "--model", "llama2-7b"]
    assert main(command) == 0
    out = capsys.readouterr().out
    for words in (
        "megatron-lm: tp 8 on 8 GPUs, global batch 64",
        "predicted: ",
        "nearest better plan: ",
        "the fastest of all plans",
        "--global-batch-size 64",
    ):
        assert words in out, words
    assert "missing" not in out
    found = answer(capsys, *command, "--launcher", "torchtitan")
    assert (
        found["plan"]["tp"] == 8 and found["step_time"]["total"] > 1.05 * found["better_step_time"]["total"]
    )
    assert found["launcher"].startswith("[training]")


def test_a_launch_without_a_model_says_what_is_missing(script, capsys):
    command = ["plan", "--launch", script, "--cluster", "h100"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "give layers=" in out and "can be given with --model" in out
    assert answer(capsys, *command)["step_time"] is None


def test_a_launch_from_standard_input(monkeypatch, capsys):
    settings = (
        b'{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}'
    )
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(settings)))
    command = ["plan", "--launch", "-", "--cluster", "h100", "--model", "llama2-7b", "--nodes", "1"]
    found = answer(capsys, *command, "--fix", "recompute=full")
    assert found["framework"] == "deepspeed" and found["gpus"] == 8 and found["plan"]["zero"] == 3
    assert found["plan"]["recompute"] == "full" and found["step_time"]["total"] > 0


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["plan", "--cluster", "h100", "--batch", "8"], "give --model"),
        (["plan", "--cluster", "h100", "--model", "llama2-7b"], "give --batch"),
        ([*BASE[:4], "h10", *BASE[5:]], "did you mean h100?"),
        ([*BASE[:2], "no-such", *BASE[3:]], "no model 'no-such'"),
        ([*BASE[:2], "/no/config.json", *BASE[3:]], "cannot be read"),
        ([*BASE, "--fix", "tp=7"], "has tp = 7"),
        ([*BASE, "--fix", "wings=2"], "no 'wings' to fix"),
        ([*BASE, "--intra", "/no/such.log"], "there is no file"),
        ([*BASE, "--intra", str(sample_sweeps()["h100-2x8-infiniband"])], "give it as inter"),
        ([*BASE, "--inter", INTRA[1]], "give it as intra"),
        ([*BASE, "--top", "101"], "number of best plans"),
        ([*BASE, "--launch", "/no/such.sh"], "there is no file"),
        ([*BASE, "--nodes", "1000000000"], "at most"),
    ],
)
def test_refused_in_one_sentence(command, says, capsys):
    assert main(command) == 2
    found = capsys.readouterr()
    assert found.err.startswith("labkit: ") and found.err.count("\n") == 1 and not found.out
    assert says in found.err


@pytest.mark.parametrize(
    "option",
    [
        ["--batch", "0"],
        ["--batch", "x"],
        ["--nodes", "-1"],
        ["--nodes", "9" * 5000],
        ["--max-memory", "much"],
        ["--max-memory", "-1GB"],
        ["--fix", "tp"],
        ["--launcher", "horovod"],
        ["--top", "0"],
    ],
)
def test_wrong_use_exits_with_two(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*BASE, *option])
    assert stop.value.code == 2 and option[0] in capsys.readouterr().err
