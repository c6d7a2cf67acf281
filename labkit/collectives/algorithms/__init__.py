"""Algorithms as lists of sends, one short generator each, and ``trace`` that builds any of them."""

from labkit.collectives.algorithms.build import trace

__all__ = ["trace"]
