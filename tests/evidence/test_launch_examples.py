"""The examples beside the bench: no cluster ran them, but bash, YAML and the option parsers read them."""

import re
import shlex
import subprocess

import pytest
import yaml

from labkit.evidence.bench_options import parse
from labkit.presets import data_path
from tests.evidence.torch_jobs import needs_torch

SLURM, KUBERNETES = data_path("launch/slurm.sh"), data_path("launch/kubernetes.yaml")


def of_slurm():
    """The words behind srun and its own option."""
    text = SLURM.read_text("utf-8").replace("\\\n", " ")
    return shlex.split(re.search(r"^srun .*", text, re.MULTILINE)[0], comments=True)[2:]


def of_kubernetes():
    _, job = yaml.safe_load_all(KUBERNETES.read_text("utf-8"))
    return job["spec"]["template"]["spec"]["containers"][0]["command"]


EXAMPLES = {"slurm": of_slurm, "kubernetes": of_kubernetes}


@pytest.mark.parametrize("words", EXAMPLES.values(), ids=EXAMPLES)
def test_the_bench_knows_the_options(words):
    torchrun, *rest = words()
    at = rest.index("labkit.evidence.bench")
    assert torchrun == "torchrun" and rest[at - 1] == "-m"
    options = parse(rest[at + 1 :])
    assert options.sizes[0] == 2**10 and options.interface


@needs_torch
@pytest.mark.parametrize("words", EXAMPLES.values(), ids=EXAMPLES)
def test_torchrun_knows_the_options(words):
    from torch.distributed.run import get_args_parser

    _, *rest = words()
    arguments = get_args_parser().parse_args(rest)
    assert (arguments.rdzv_backend, arguments.nproc_per_node) == ("c10d", "8")
    assert arguments.rdzv_endpoint.endswith(":29500") and arguments.module
    assert arguments.training_script == "labkit.evidence.bench"


def test_bash_reads_the_slurm_script():
    subprocess.run(["bash", "-n", SLURM], check=True)
    head = re.findall(r"^#SBATCH --([\w-]+)=\S+", SLURM.read_text("utf-8"), re.MULTILINE)
    assert {"nodes", "ntasks-per-node", "gpus-per-node", "time"} <= set(head)


def test_the_names_of_job_service_and_pods_agree():
    service, job = yaml.safe_load_all(KUBERNETES.read_text("utf-8"))
    name, spec = job["metadata"]["name"], job["spec"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {"job-name": name}
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"] == 2
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    endpoint = f"--rdzv-endpoint={name}-0.{service['metadata']['name']}:29500"
    assert endpoint in of_kubernetes() and f"--nnodes={spec['completions']}" in of_kubernetes()
    mounts = {mount["name"] for mount in spec["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}


@pytest.mark.parametrize("path", [SLURM, KUBERNETES], ids=lambda path: path.name)
def test_they_say_that_no_cluster_ran_them(path):
    assert "Not run on a real cluster" in path.read_text("utf-8")
