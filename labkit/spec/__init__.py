"""The nouns: what a machine is made of. Plain values, no files, no drawing."""

from labkit.spec.hardware import Cluster, Gpu, Link

__all__ = ["Cluster", "Gpu", "Link"]
