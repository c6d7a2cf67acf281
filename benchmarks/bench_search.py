"""The search over all plans, in a process of its own: its seconds, and the memory that the process took.

``python benchmarks/bench_search.py`` prints both cases; exit status 1: one takes longer, or more memory, than
its target. pandas is imported before the clock starts.
"""

import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
MOST_MEMORY = 4e9


@dataclass(frozen=True)
class Case:
    """A search, the words for it, and the seconds that it may take."""

    what: str
    search: str
    target: float


# The model of Narayanan et al. (2021), table 1.
TRILLION = "Transformer('1T', 128, 25600, 160, 51200, 2048, learned_positions=2048)"
CASES = (
    Case("13B on 32 GPUs", "search(model('gpt3-13b'), cluster('a100', 4), 512)", 0.5),
    Case("1T on 16,384 GPUs", f"search({TRILLION}, cluster('a100', 2048), 3072)", 5.0),
)


@dataclass(frozen=True)
class Found:
    """Plans that no rule refuses, seconds of the search, bytes that its process took at most."""

    plans: int
    seconds: float
    memory: float


def measure(case: Case, times: int = 3) -> Found:
    """Median seconds over some searches after one to warm up, in a fresh process."""
    code = "import benchmarks.bench_search as bench; bench.run(*map(eval, __import__('sys').argv[1:]))"
    command = [sys.executable, "-c", code, repr(case.search), str(times)]
    return Found(**json.loads(subprocess.check_output(command, cwd=ROOT, text=True)))


def run(expression: str, times: int) -> None:
    """Prints, as JSON, what ``measure`` reads."""
    from labkit.planner.search import search
    from labkit.presets import cluster, model
    from labkit.spec import Transformer

    names = {"search": search, "cluster": cluster, "model": model, "Transformer": Transformer}
    taken = []
    for _ in range(times + 1):
        start = perf_counter()
        table = eval(expression, names)
        taken.append(perf_counter() - start)
    plans = len(table) + table.attrs["refused"].get("memory", 0)
    peak = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"plans": plans, "seconds": sorted(taken[1:])[times // 2], "memory": peak}))


def main() -> int:
    """Prints both cases; 1 where a target is missed."""
    missed = 0
    for case in CASES:
        found = measure(case)
        missed += found.seconds > case.target or found.memory > MOST_MEMORY
        print(
            f"{case.what}: {found.plans:,} plans in {found.seconds:.3f} s (target {case.target:g}), "
            f"{1e9 * found.seconds / found.plans:,.0f} ns a plan, at most {found.memory / 1e9:.2f} GB"
        )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
