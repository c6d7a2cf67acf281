"""Named clusters and models: the one wing that opens ``data/``, a reader's own TOML and a config.json."""

from labkit.presets.clusters import cluster, cluster_ids
from labkit.presets.files import data_path, sample_sweeps, sample_traces
from labkit.presets.models import model, model_ids
from labkit.presets.published import published

__all__ = [
    "cluster",
    "cluster_ids",
    "data_path",
    "model",
    "model_ids",
    "published",
    "sample_sweeps",
    "sample_traces",
]
