"""Memory over many steps: PyTorch's caching allocator simulated, what fragments it, and the remedies."""

from labkit.practice.allocator.caching import Block, CachingAllocator
from labkit.practice.allocator.diagnosis import VERDICTS, Diagnosis, cause_of_failure, diagnose
from labkit.practice.allocator.expandable import ExpandableAllocator
from labkit.practice.allocator.lengths import WAYS, Batches, batches, draw_lengths
from labkit.practice.allocator.steps import ALLOCATORS, History, Job, run_steps

__all__ = [
    "ALLOCATORS",
    "VERDICTS",
    "WAYS",
    "Batches",
    "Block",
    "CachingAllocator",
    "Diagnosis",
    "ExpandableAllocator",
    "History",
    "Job",
    "batches",
    "cause_of_failure",
    "diagnose",
    "draw_lengths",
    "run_steps",
]
