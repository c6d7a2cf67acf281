"""What holds for every lab at every setting tried: numbers, nothing cut off, calm answers to nonsense."""

from functools import cache

import numpy as np
import pytest

from labkit.course.chapter2_bandwidth import sample
from labkit.show import labs, still

_, FIT = sample("gh200-2x4-slingshot")

# Both ends of the controls, and combinations that stretch a figure.
SETTINGS = {
    "alpha_beta": [
        {},
        {"n": 2, "size": 2**10, "op": "all_to_all", "segments": "1"},
        {"n": 1024, "size": 2**34, "alpha_us": 50, "bandwidth_GBps": 5, "op": "broadcast"},
        {"n": 1024, "size": 2**30, "op": "reduce_scatter", "bandwidth_GBps": 450},
    ],
    "bus_bandwidth": [
        {},
        {"n": 2, "link_GBps": 450, "billions": 1, "bucket": 2**20},
        {"n": 1024, "link_GBps": 10, "billions": 70, "gradient_bytes": 4, "bucket": 2**20},
    ],
    "checkpoint_interval": [
        {},
        {"cards": 65536, "failures": 1.0, "save": 120.0, "restart": 60, "late": 600},
        {"cards": 8, "failures": 0.05, "save": 0.5, "restart": 1},
        {"cards": 65536, "failures": 0.05, "save": 0.5, "restart": 1},
    ],
    "checkpoint_stall": [
        {},
        {"billions": 175, "cards": 8, "one": 1.0, "writer": 0.25, "copy": 5.0, "step": 0.5, "every": 10},
        {"billions": 1, "cards": 1024, "one": 20.0, "writer": 4.0, "copy": 50.0, "step": 10.0, "every": 500},
        {"billions": 175, "cards": 64, "every": 20, "copy": 5.0, "writer": 0.5},
    ],
    "decision_table": [
        {},
        {"model": "gpt3-13b", "cluster": "v100", "nodes": 64, "global_batch": 8, "sequence": 32768},
        {"model": "mixtral-8x7b", "cluster": "b200", "nodes": 1, "micro_batch": 8, "sequence": 1024},
    ],
    "expert_skew": [
        {},
        {"ranks": 32, "experts": 64, "skew": 2.0, "top_k": 1, "factor": 0},
        {"ranks": 2, "experts": 8, "skew": 0.0, "top_k": 4, "factor": 1.0},
        {"ranks": 32, "experts": 32, "skew": 1.0, "factor": 2.0, "balance": 0.5, "placement": "balanced"},
    ],
    "data_parallel_knee": [
        {},
        {"cluster": "a100", "mode": "weak", "overlap": 1.0, "n": 1024, "tokens": 2**15},
        {"cluster": "h100", "billions": 16, "gradient_bytes": 4, "tokens": 2**23, "overlap": 0.5, "n": 8},
        {"mode": "weak", "overlap": 1.0, "bucket": 2**20, "n": 512, "tokens": 2**14},
    ],
    "four_estimators": [{}, {"conventions": "one set for all"}],
    "fragmentation": [
        {},
        {"room_GB": 24, "leak_MB": 200, "allocator": "expandable segments"},
        {"room_GB": 8, "way": "packed", "median": 300},
        {"room_GB": 14, "way": "padded", "median": 4000, "spread": 0.0, "leak_MB": 200},
        {"room_GB": 24, "way": "buckets", "spread": 1.2},
    ],
    "gradient_buckets": [
        {},
        {"cluster": "cloud-25gbe", "n": 1024, "bucket": 2**20, "layers": 48, "hidden": 4096, "sequences": 1},
        {"cluster": "h100", "n": 512, "sequences": 16, "slow_down": 1.5, "bucket": 2**32},
        {"n": 2, "layers": 4, "hidden": 1024, "sequences": 1, "small_first": False},
    ],
    "hang_counters": [
        {},
        {"n": 8, "fault": "swaps two", "rank": 7, "at": 4, "ahead": 3},
        {"n": 2, "fault": "makes one more", "at": 9, "ahead": 3},
        {"fault": "swaps two", "at": 1},
        {"n": 8, "fault": "does not come", "at": 1, "ahead": 0},
        {"n": 8, "fault": "all come: network", "at": 9},
        {"fault": "another shape", "at": 5},
    ],
    "hang_price": [
        {},
        {"cards": 16384, "hangs": 30, "limit": 120, "late": 60, "short": 30},
        {"cards": 8, "hangs": 1, "limit": 1, "late": 1, "short": 1},
        {"limit": 10, "late": 4, "short": 10},
        {"late": 60},
    ],
    "launch_order": [
        {},
        {"cluster": "b200", "nodes": 8, "tp": 4, "pp": 4, "dimension": "pp"},
        {"nodes": 4, "pp": 2, "launch": "block", "dimension": "dp"},
        {"cluster": "gb200-nvl72", "nodes": 8, "tp": 4},
        {"cluster": "cloud-25gbe", "nodes": 1, "tp": 1},
    ],
    "learning_rate": [
        {},
        {"batch": 512, "new_batch": 32, "critical": 64, "warm_up": 5000, "steps": 1_000_000},
        {"batch": 32, "new_batch": 4096, "critical": 65536, "warm_up": 10_000, "steps": 20_000},
        {"batch": 64, "new_batch": 64},
    ],
    "link_use": [{}, {"n": 2, "size": 2**10}, {"n": 16, "size": 2**30}],
    "loader_supply": [
        {},
        {"cards": 16, "workers": 1, "seconds": 0.1, "step": 0.2},
        {"cards": 1, "workers": 128, "seconds": 0.005, "step": 2.0},
        {"workers": 0},
    ],
    "on_your_link": [{"fit": FIT}, {"fit": FIT, "n": 64, "size": 2**30}],
    "memory_breakdown": [
        {},
        {"model": "gpt3-175b", "n": 1, "tp": 1, "pp": 1, "zero": 3, "micro_batch": 16, "sequence": 131072},
        {"model": "llama2-70b", "cluster": "b200", "n": 1024, "tp": 8, "pp": 16, "zero": 3, "micro_batch": 1},
        {"model": "gpt3-13b", "tp": 1, "zero": 2, "recompute": "none, scores stored", "sequence": 65536},
        {"model": "llama2-70b", "n": 64, "tp": 8, "pp": 8, "zero": 2, "recompute": "full"},
    ],
    "overlap_coverage": [
        {},
        {"overlap": "tensor parallel, in chunks", "cluster": "v100", "sequences": 1, "slow_down": 1.0},
        {"overlap": "tensor parallel, half batches", "cluster": "gb200-nvl72", "sequences": 64},
        {"overlap": "tensor parallel, beside weight gradients", "cluster": "l40s-pcie", "slow_down": 1.5},
        {"overlap": "tensor parallel, beside weight gradients", "cluster": "a100-galvatron", "sequences": 64},
        {"overlap": "stage-3 prefetch", "cluster": "cloud-25gbe", "n": 512, "sequences": 1},
        {"n": 2, "sequences": 64, "bucket": 2**20, "cluster": "b200"},
    ],
    "pipeline_schedule": [
        {},
        {"p": 2, "m": 1},
        {"p": 16, "m": 64, "v": 4, "transfer": 0.5, "head": 1.0, "backward": 3.0},
        {"p": 16, "m": 3, "schedule": "ZB-2p", "head": 1.0, "spread": True},
        {"p": 5, "m": 64, "schedule": "ZB-V", "backward": 1.0},
        {"p": 16, "m": 64, "schedule": "GPipe", "transfer": 0.5},
    ],
    "pipeline_transfer": [{}, {"p": 2, "m": 4, "c": 0.0}, {"p": 8, "m": 32, "c": 1.0}],
    "plan_by_network": [
        {},
        {"cluster": "h100", "overlap": False, "global_batch": 512},
        {"sequence": 16384, "global_batch": 512},
        {"cluster": "b200", "sequence": 512, "global_batch": 32},
    ],
    "plan_decision": [
        {},
        {"model": "gpt3-175b", "micro_batch": 8, "zero": 1},
        {"model": "llama2-7b", "cluster": "b200", "nodes": 64, "global_batch": 64},
        {"model": "llama3.1-405b", "cluster": "v100", "nodes": 1, "recompute": "none"},
        {"model": "guide-13b", "cluster": "a100-40", "recompute": "full"},
    ],
    "plan_difference": [
        {},
        {"v": 1},
        {"tp": 1, "pp": 32, "v": 1, "micro_batch": 16, "recompute": "full", "zero": 2},
        {"tp": 8, "pp": 1, "v": 1, "micro_batch": 8, "zero": 3, "sequence_parallel": True, "cluster": "h100"},
        {"tp": 8, "pp": 8, "recompute": "selective"},
        {"cluster": "b200", "tp": 1, "pp": 2, "v": 8, "micro_batch": 1},
    ],
    "plan_search": [
        {},
        {"global_batch": 512, "sequence": 8192, "network": 0.125, "most_GB": 12.0},
        {"sequence": 512, "network": 4.0, "most_GB": 7.0},
    ],
    "rank_grid": [
        {},
        {"tp": 1, "pp": 1, "dp": 1, "dimension": "tp"},
        {"tp": 8, "pp": 8, "dp": 2, "per_node": 4, "dimension": "pp"},
        {"tp": 4, "cp": 2, "pp": 2, "dp": 8, "per_node": 16, "order": "tp-cp-pp-dp"},
    ],
    "rank_waiting": [
        {},
        {"case": "recorded here"},
        {"case": "reported"},
        {"n": 16, "slow": 1.0, "transfer": 0.0},
        {"n": 2, "slow": 3.0, "transfer": 1.0},
    ],
    "recompute_trade": [
        {},
        {"model": "gpt3-175b", "tp": 8, "pp": 8, "micro_batch": 1, "sequence": 2048, "every": 16},
        {"model": "llama2-7b", "tp": 8, "pp": 8, "sequence": 65536, "every": 16, "sequence_parallel": True},
        {"model": "llama2-7b", "cluster": "a100-40", "tp": 1, "sequence": 1024, "micro_batch": 1, "every": 1},
        {"model": "llama2-70b", "cluster": "h200", "tp": 1, "sequence": 65536, "micro_batch": 16},
        {"fused": True, "sequence_parallel": True, "tp": 8, "sequence": 65536, "micro_batch": 1},
    ],
    "reshard_slices": [
        {"source": 16},
        {"length": 64, "source": 16, "target": 3},
        {},
        {"length": 64, "source": 16, "target": 15},
        {"length": 40, "source": 8, "target": 16, "together": 4},
        {"length": 1, "source": 1, "target": 16},
    ],
    "ring_knee": [
        {},
        {"n": 512, "alpha_us": 50, "bandwidth_GBps": 450, "messages": 64, "start": 1024},
        {"n": 2, "alpha_us": 1, "bandwidth_GBps": 5, "start": 8},
        {"n": 64, "messages": 16},
        {"n": 64, "alpha_us": 20, "bandwidth_GBps": 400, "messages": 2, "start": 2**20},
    ],
    "ring_walk": [{}, {"n": 2, "step": 1}, {"n": 8, "step": 14}, {"n": 8, "step": 5}, {"n": 5, "step": 14}],
    "scaling_story": [
        {},
        {"cluster": "h100", "mode": "weak", "batch": 2**22, "taper": 0.1, "n": 1024},
        {"cluster": "cloud-25gbe", "ports": 0.125, "gradient": 80, "overlap": 1.0, "n": 8},
        {"cluster": "a100", "bucket": 1e6, "mode": "weak", "n": 512},
    ],
    "scorecard": [
        {},
        {"tensor": 0.5, "data": 0.5, "p": 16, "m": 1, "recompute": "full", "late": 0.5, "single": 0.3},
        {"gpus": 8, "tensor": 0.0, "data": 0.4, "coverage": 1.0, "p": 1, "single": 0.7},
        {"tensor": 0.2, "data": 0.05, "m": 32},
    ],
    "sequence_memory": [
        {},
        {"cluster": "h200", "n": 64, "tp": 8, "sequence": 131072, "sequence_parallel": True},
        {"model": "gpt3-175b", "n": 512, "micro_batch": 16, "sequence": 512},
        {"model": "llama2-7b", "cluster": "a100-40", "n": 8, "tp": 8, "sequence": 512},
        {"model": "gpt3-175b", "n": 512, "micro_batch": 16, "sequence": 131072, "sequence_parallel": True},
    ],
    "sequence_switch": [
        {},
        {"sequence": 32768, "micro_batch": 4, "zero": 3, "fused": False},
        {"sequence": 512, "zero": 0},
    ],
    "sharding_latency": [
        {},
        {"cluster": "v100", "n": 16384, "micro_batches": 64},
        {"cluster": "gb200-nvl72", "n": 2, "micro_batches": 1},
        {"model": "llama2-7b", "n": 512, "alpha_us": 50},
        {"cluster": "l40s-pcie", "model": "gpt3-175b", "n": 16384, "alpha_us": 50, "micro_batches": 64},
    ],
    "sharding_stages": [
        {},
        {"n": 512, "micro_batches": 64, "recipe": "2 + 2 + 4 + 12", "hybrid": True},
        {"cluster": "v100", "n": 2, "micro_batches": 16, "recipe": "2 + 4 + 12"},
        {"cluster": "gb200-nvl72", "n": 128, "micro_batches": 64, "recipe": "2 + 2 + 4 + 12", "hybrid": True},
        {"cluster": "a100-galvatron", "n": 8, "recipe": "2 + 2 + 4 + 12", "hybrid": True},
    ],
    "stage_three": [
        {},
        {"cluster": "cloud-25gbe", "depth": 0, "network": 0.125},
        {"cluster": "h100", "model": "gpt3-175b", "n": 1024, "micro_batch": 16, "depth": 4},
        {"cluster": "v100", "n": 4096, "sequence": 512},
        {"n": 2, "sequence": 32768, "micro_batch": 64, "network": 8, "hybrid": True},
        {"cluster": "gb200-nvl72", "model": "llama2-7b", "n": 1024, "sequence": 512, "hybrid": True},
    ],
    "step_distribution": [
        {},
        {"share": 0.1, "ratio": 4.0, "cause": "rank 0, in a fixed rhythm"},
        {"share": 1.0, "ratio": 4.0, "cause": "another rank each time"},
        {"share": 0.3, "ratio": 1.5, "cause": "all ranks"},
        {"share": 0.0, "ratio": 1.0, "cause": "the exchange"},
    ],
    "sweep_fit": [
        {},
        {"log": "gh200-2x4-sockets", "nominal_GBps": 25},
        {"log": "h100-2x8-infiniband", "nominal_GBps": 900},
    ],
    "tensor_degree": [
        {},
        {"cluster": "gb200-nvl72", "model": "llama2-70b", "micro_batch": 16, "ports": 8},
        {"cluster": "l40s-pcie", "model": "llama2-7b", "micro_batch": 1},
        {"cluster": "v100", "model": "gpt3-175b", "micro_batch": 1, "ports": 8},
    ],
    "tensor_micro_batch": [
        {},
        {"cluster": "cloud-25gbe", "degree": 32, "sequence": 512, "micro_batch": 1},
        {"cluster": "h100", "degree": 2, "model": "gpt3-175b", "sequence": 8192, "micro_batch": 64},
        {"cluster": "v100", "degree": 32, "model": "llama2-7b", "sequence": 512, "micro_batch": 64},
    ],
    "topology_cliff": [
        {},
        {"cluster": "gb200-nvl72", "ports": 8, "port_rate": 2, "micro_batch": 8},
        {"cluster": "l40s-pcie", "port_rate": 0.5, "micro_batch": 1},
        {"cluster": "v100"},
    ],
    "trace_rounds": [
        {},
        {"n": 2, "what": "barrier/recursive_doubling"},
        {"n": 16, "what": "all_reduce/ring"},
        {"n": 13, "what": "all_reduce/double_tree", "segments": 3},
        {"n": 16, "what": "all_to_all/hierarchical"},
    ],
    "volume_by_ranks": [{}, {"n": 2, "size": 2**20}, {"n": 16384, "size": 2**34}],
    "walkthrough": [
        {},
        {"m": 24, "micro_batch": "64 / (m dp)"},
        {"cluster": "h100", "tp": 1, "pp": 1, "micro_batch": 16},
        {"tp": 8, "pp": 16, "m": 2, "micro_batch": 1, "recompute": "full"},
        {"tp": 2, "pp": 16, "v": 4, "m": 64, "micro_batch": 16, "recompute": "selective", "zero": 3},
    ],
    "weak_strong": [
        {},
        {"cluster": "cloud-25gbe", "tp": 8, "pp": 8, "batch": 64, "n": 1024, "network": 4.0},
        {"tp": 1, "batch": 4096, "n": 8},
        {"cluster": "h100", "tp": 2, "pp": 4, "batch": 64, "n": 1024, "network": 0.25},
    ],
    "your_plans": [
        {},
        {"model": "llama2-70b", "nodes": 16, "global_batch": 1024, "most_GB": 50},
        {"model": "mixtral-8x7b", "cluster": "a100-40", "nodes": 4, "most_GB": 30},
        {"model": "llama2-70b", "cluster": "v100", "nodes": 1},
        {"model": "llama3.1-8b", "cluster": "b200", "nodes": 1, "global_batch": 8, "most_GB": 190},
    ],
}
CASES = [(name, setting) for name, settings in SETTINGS.items() for setting in settings]
each_setting = pytest.mark.parametrize(
    ("name", "setting"), CASES, ids=[f"{name}-{list(setting)}" for name, setting in CASES]
)


@cache
def shown_at(name, *items):
    """The lab at one setting; drawing is the slow part, so each is drawn once."""
    return still(getattr(labs, name), **dict(items))


def test_every_lab_is_tried():
    assert set(SETTINGS) == set(labs.__all__)


@each_setting
def test_numbers_stand_below_the_picture_in_lines_that_fit(name, setting):
    shown = shown_at(name, *setting.items())
    lengths = [len(line) for line in shown.facts]
    assert max(lengths) <= 110 and any(c.isdigit() for c in "".join(shown.facts))
    assert len(shown.facts) == len(shown_at(name, *SETTINGS[name][0].items()).facts)
    assert len(shown.alt) > 40


@each_setting
def test_nothing_is_cut_off_at_the_edge(name, setting):
    pixels = shown_at(name, *setting.items()).picture._pixels()[..., :3]
    edges = {"top": pixels[0], "bottom": pixels[-1], "left": pixels[:, 0], "right": pixels[:, -1]}
    assert [edge for edge, line in edges.items() if (line < 250).any()] == []


@each_setting
def test_a_picture_is_drawn(name, setting):
    pixels = shown_at(name, *setting.items()).picture._pixels()
    packed = np.ascontiguousarray(pixels).view(np.uint32)  # one number for the four bytes of a pixel
    assert len(np.unique(packed)) > 20


@pytest.mark.parametrize(
    ("name", "setting", "says"),
    [
        ("alpha_beta", {"n": 1}, "at least 2"),
        ("alpha_beta", {"size": 0}, "above 0"),
        ("bus_bandwidth", {"n": 1}, "at least 2"),
        ("checkpoint_interval", {"cards": 0}, "cards is 0"),
        ("checkpoint_stall", {"cards": 0}, "is 0"),
        ("data_parallel_knee", {"n": 1024, "tokens": 512}, "cannot be shared"),
        ("fragmentation", {"way": "folded"}, "the way batches are made"),
        ("gradient_buckets", {"n": 1}, "at least 2"),
        ("hang_counters", {"n": 9}, "up to 8"),
        ("hang_counters", {"fault": "sleeps"}, "use leaves a call out"),
        ("launch_order", {"tp": 3}, "does not divide the 16 GPUs of 2 nodes"),
        ("launch_order", {"nodes": 32}, "too many"),
        ("link_use", {"n": 1}, "at least 2"),
        ("link_use", {"size": 0}, "above 0"),
        ("overlap_coverage", {"n": 1}, "at least 2"),
        ("overlap_coverage", {"slow_down": 0.5}, "at least 1 times"),
        ("memory_breakdown", {"n": 4}, "8 cards; N = 4"),
        ("memory_breakdown", {"n": 64, "pp": 16}, "40 layers over 16 stages do not split"),
        ("memory_breakdown", {"model": "llama2-70b", "tp": 16, "n": 128}, "8 kv heads over tp = 16"),
        ("memory_breakdown", {"recompute": "some"}, "choose one of none"),
        ("plan_by_network", {"global_batch": 48}, "multiple of 32"),
        ("plan_decision", {"cluster": "gb200-nvl72"}, "up to 8"),
        ("plan_difference", {"tp": 3}, "choose powers of two"),
        ("plan_difference", {"cluster": "v100"}, "nodes of eight"),
        ("rank_grid", {"tp": 8, "pp": 8, "dp": 8}, "too many"),
        ("pipeline_schedule", {"v": 5}, "up to 4 chunks"),
        ("pipeline_schedule", {"schedule": "2F2B"}, "no schedule '2F2B'; use one of GPipe, 1F1B"),
        ("pipeline_schedule", {"m": 0}, "micro-batches is 0"),
        ("rank_waiting", {"n": 1}, "at least 2"),
        ("rank_waiting", {"n": 17}, "up to 16"),
        ("rank_waiting", {"case": "imagined"}, "choose one of made up"),
        ("rank_waiting", {"slow": 0}, "more than 0"),
        ("recompute_trade", {"pp": 3}, "cannot share evenly"),
        ("reshard_slices", {"length": 13, "together": 2}, "choose 12 or 14 elements, or 1 a head"),
        ("reshard_slices", {"source": 17}, "from 1 to 16"),
        ("ring_knee", {"n": 1}, "at least 2"),
        ("ring_walk", {"n": 1}, "at least 2"),
        ("scorecard", {"gpus": 8, "p": 16}, "Choose p up to 8"),
        ("scorecard", {"recompute": "some"}, "choose one of none"),
        ("scorecard", {"m": 0}, "number of micro-batches"),
        ("sequence_memory", {"n": 4, "tp": 8}, "8 cards; N = 4"),
        ("sharding_latency", {"n": 1}, "at least 2"),
        ("sharding_latency", {"model": "mixtral-8x7b"}, "has experts"),
        ("sharding_stages", {"n": 1}, "at least 2"),
        ("stage_three", {"n": 1}, "at least 2"),
        ("loader_supply", {"cards": 0}, "cards of a host"),
        ("step_distribution", {"cause": "fate"}, "choose one of one rank"),
        ("stage_three", {"model": "mixtral-8x7b"}, "has experts"),
        ("trace_rounds", {"n": 1}, "at least 2"),
        ("trace_rounds", {"n": 7, "what": "all_reduce/hierarchical"}, "whole domains"),
        ("volume_by_ranks", {"n": 1}, "at least 2"),
        ("scaling_story", {"n": 1024, "batch": 512}, "cannot be shared"),
        ("sequence_switch", {"zero": 4}, "sharding stage"),
        ("learning_rate", {"batch": 0}, "the batch is 0"),
        ("walkthrough", {"tp": 3}, "choose powers of two"),
        ("weak_strong", {"n": 2}, "A replica takes 4 cards"),
    ],
)
def test_nonsense_gets_a_calm_sentence_in_the_figures_place(name, setting, says):
    shown = still(getattr(labs, name), **setting)
    assert len(shown.facts) == 1 and says in shown.facts[0]
    assert shown._repr_mimebundle_()[0]["image/png"]
