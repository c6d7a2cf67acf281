"""The labs of the chapters, one module each; the lab has the name of its module."""

from labkit.show.labs.alpha_beta import alpha_beta, on_your_link
from labkit.show.labs.bus_bandwidth import bus_bandwidth
from labkit.show.labs.checkpoint_interval import checkpoint_interval
from labkit.show.labs.checkpoint_stall import checkpoint_stall
from labkit.show.labs.data_parallel_knee import data_parallel_knee
from labkit.show.labs.decision_table import decision_table
from labkit.show.labs.expert_skew import expert_skew
from labkit.show.labs.four_estimators import four_estimators
from labkit.show.labs.fragmentation import fragmentation
from labkit.show.labs.gradient_buckets import gradient_buckets
from labkit.show.labs.hang_counters import hang_counters
from labkit.show.labs.hang_price import hang_price
from labkit.show.labs.launch_order import launch_order
from labkit.show.labs.learning_rate import learning_rate
from labkit.show.labs.link_use import link_use
from labkit.show.labs.loader_supply import loader_supply
from labkit.show.labs.memory_breakdown import memory_breakdown
from labkit.show.labs.overlap_coverage import overlap_coverage
from labkit.show.labs.pipeline_schedule import pipeline_schedule
from labkit.show.labs.pipeline_transfer import pipeline_transfer
from labkit.show.labs.plan_by_network import plan_by_network
from labkit.show.labs.plan_decision import plan_decision
from labkit.show.labs.plan_difference import plan_difference
from labkit.show.labs.plan_search import plan_search
from labkit.show.labs.rank_grid import rank_grid
from labkit.show.labs.rank_waiting import rank_waiting
from labkit.show.labs.recompute_trade import recompute_trade
from labkit.show.labs.reshard_slices import reshard_slices
from labkit.show.labs.ring_knee import ring_knee
from labkit.show.labs.ring_walk import ring_walk
from labkit.show.labs.scaling_story import scaling_story
from labkit.show.labs.scorecard import scorecard
from labkit.show.labs.sequence_memory import sequence_memory
from labkit.show.labs.sequence_switch import sequence_switch
from labkit.show.labs.sharding_latency import sharding_latency
from labkit.show.labs.sharding_stages import sharding_stages
from labkit.show.labs.stage_three import stage_three
from labkit.show.labs.step_distribution import step_distribution
from labkit.show.labs.sweep_fit import sweep_fit
from labkit.show.labs.tensor_degree import tensor_degree
from labkit.show.labs.tensor_micro_batch import tensor_micro_batch
from labkit.show.labs.topology_cliff import topology_cliff
from labkit.show.labs.trace_rounds import trace_rounds
from labkit.show.labs.volume_by_ranks import volume_by_ranks
from labkit.show.labs.walkthrough import walkthrough
from labkit.show.labs.weak_strong import weak_strong
from labkit.show.labs.your_plans import your_plans

__all__ = [
    "alpha_beta",
    "bus_bandwidth",
    "checkpoint_interval",
    "checkpoint_stall",
    "data_parallel_knee",
    "decision_table",
    "expert_skew",
    "four_estimators",
    "fragmentation",
    "gradient_buckets",
    "hang_counters",
    "hang_price",
    "launch_order",
    "learning_rate",
    "link_use",
    "loader_supply",
    "memory_breakdown",
    "on_your_link",
    "overlap_coverage",
    "pipeline_schedule",
    "pipeline_transfer",
    "plan_by_network",
    "plan_decision",
    "plan_difference",
    "plan_search",
    "rank_grid",
    "rank_waiting",
    "recompute_trade",
    "reshard_slices",
    "ring_knee",
    "ring_walk",
    "scaling_story",
    "scorecard",
    "sequence_memory",
    "sequence_switch",
    "sharding_latency",
    "sharding_stages",
    "stage_three",
    "step_distribution",
    "sweep_fit",
    "tensor_degree",
    "tensor_micro_batch",
    "topology_cliff",
    "trace_rounds",
    "volume_by_ranks",
    "walkthrough",
    "weak_strong",
    "your_plans",
]
