"""Figures and live controls: ``live`` puts controls on a lab, ``still`` shows one setting of it."""

from labkit.show.check import check_installation
from labkit.show.controls import byte_size, choice, linear, log2, play, preset, toggle
from labkit.show.lab import Lab
from labkit.show.live import live, still

__all__ = [
    "Lab",
    "byte_size",
    "check_installation",
    "choice",
    "linear",
    "live",
    "log2",
    "play",
    "preset",
    "still",
    "toggle",
]
