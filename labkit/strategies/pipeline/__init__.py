"""Pipeline schedules: the order in which each rank works, and a simulation of when it does."""

from labkit.strategies.pipeline.bubble import bubble_over_ideal, bubble_share
from labkit.strategies.pipeline.catalogue import SCHEDULES, Schedule, schedule
from labkit.strategies.pipeline.classic import gpipe, interleaved, one_f_one_b
from labkit.strategies.pipeline.closed import pipeline_span, pipeline_work
from labkit.strategies.pipeline.counts import peak_in_flight, sends
from labkit.strategies.pipeline.memory_bounded import greedy
from labkit.strategies.pipeline.order import Operation, Order
from labkit.strategies.pipeline.run import Run
from labkit.strategies.pipeline.simulation import simulate
from labkit.strategies.pipeline.times import StageTimes, stage_times
from labkit.strategies.pipeline.zero_bubble import zb_h1, zb_h2
from labkit.strategies.pipeline.zero_bubble_v import zb_v

__all__ = [
    "SCHEDULES",
    "Operation",
    "Order",
    "Run",
    "Schedule",
    "StageTimes",
    "bubble_over_ideal",
    "bubble_share",
    "gpipe",
    "greedy",
    "interleaved",
    "one_f_one_b",
    "peak_in_flight",
    "pipeline_span",
    "pipeline_work",
    "schedule",
    "sends",
    "simulate",
    "stage_times",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
