"""The nouns: what a machine, a model and a plan are made of. Plain values, no files, no drawing."""

from labkit.spec.grid import RankGrid
from labkit.spec.hardware import Cluster, Gpu, Link
from labkit.spec.kernels import Kernels
from labkit.spec.plan import Plan
from labkit.spec.rule import Problem
from labkit.spec.rules import problems
from labkit.spec.step_time import StepTime
from labkit.spec.transformer import Transformer

__all__ = [
    "Cluster",
    "Gpu",
    "Kernels",
    "Link",
    "Plan",
    "Problem",
    "RankGrid",
    "StepTime",
    "Transformer",
    "problems",
]
