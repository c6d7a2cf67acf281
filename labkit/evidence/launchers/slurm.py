"""Slurm's options in a script: ``#SBATCH`` lines, short options, and the variables that it sets from them."""

import re

SHORT = {"N": "nodes", "n": "ntasks"}  # of sbatch and srun
_SHORT_OPTION = re.compile(r"-([Nn])=?(\d[\d-]*)?")
_SETS = {  # sbatch(1), "Output environment variables"
    "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NTASKS": "ntasks",
    "SLURM_NPROCS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
}


def long_options(line: str) -> list[str]:
    """The options of an ``#SBATCH`` line as --name=value, whatever form they were written in.

    >>> long_options("#SBATCH -N 4 -n32 --gres gpu:8 --exclusive  # all of them")
    ['--nodes=4', '--ntasks=32', '--gres=gpu:8', '--exclusive']
    """
    found: list[str] = []
    for word in line.split("#", 2)[1].split()[1:]:
        short = _SHORT_OPTION.fullmatch(word)
        if short:
            found.append(f"--{SHORT[short[1]]}" + f"={short[2]}" * bool(short[2]))
        elif word.startswith("-") or not found or "=" in found[-1]:
            found.append(word)
        else:
            found[-1] += f"={word}"
    return found


def variables_of(options: list[str]) -> dict[str, str]:
    """The variables that a job sees when it was submitted with these options.

    >>> variables_of(["--nodes=4", "--ntasks-per-node=8"])["SLURM_NTASKS"]
    '32'
    """
    given = dict(word[2:].split("=", 1) for word in options if word.startswith("--") and "=" in word)
    nodes, each = given.get("nodes", ""), given.get("ntasks-per-node", "")
    if nodes.isdecimal() and each.isdecimal() and len(nodes + each) < 12:
        given.setdefault("ntasks", str(int(nodes) * int(each)))
    return {name: given[option] for name, option in _SETS.items() if option in given}
