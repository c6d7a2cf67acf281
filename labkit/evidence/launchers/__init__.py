"""Launcher settings in and out: Megatron-LM arguments, DeepSpeed JSON, torchtitan TOML and a plan."""

from labkit.evidence.launchers.launch import Launch
from labkit.evidence.launchers.read import read_launcher
from labkit.evidence.launchers.write import launcher_arguments

__all__ = ["Launch", "launcher_arguments", "read_launcher"]
