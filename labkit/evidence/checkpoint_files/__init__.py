"""The files of a checkpoint, by their names."""

from labkit.evidence.checkpoint_files.listing import file_names
from labkit.evidence.checkpoint_files.read import CheckpointFiles, optimizer_form, read_checkpoint

__all__ = ["CheckpointFiles", "file_names", "optimizer_form", "read_checkpoint"]
