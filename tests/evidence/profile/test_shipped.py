"""The shipped traces: what simulated steps are is known to the last bit, what the real job had, roughly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labkit
from labkit.errors import InputRefused
from labkit.presets import sample_traces
from labkit.spec.step_time import TERMS
from labkit.strategies.overlap import Block, step_timeline
from labkit.strategies.pipeline import one_f_one_b, simulate
from labkit.strategies.timeline import BACKWARD, FORWARD, TRANSFER, Timeline

BLOCKS = [Block(0.010, 0.020, (25e6,))] * 8


def data_parallel(overlap):
    return step_timeline(BLOCKS, lambda size: 30e-6 + size / 2e9, 25e6, 1e6, 1.0, overlap)


SIMULATED = {
    "pipeline-1f1b": simulate(one_f_one_b(4, 8), 0.010, 0.020, 0.002),
    "data-parallel-overlap": data_parallel(True),
    "data-parallel-no-overlap": data_parallel(False),
}


def same(step, other):
    for name in (*TERMS, "communication"):
        assert getattr(step, name) == pytest.approx(getattr(other, name), rel=1e-12, abs=1e-12 * other.total)


def test_names():
    assert set(sample_traces()) == {*SIMULATED, "gloo-two-ranks", "gloo-slow-rank"}
    files = [path for one in sample_traces().values() for path in (one, *one.glob("*")) if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 150_000


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_steps_read_back(name, tmp_path):
    path = sample_traces()[name]
    SIMULATED[name].to_chrome(tmp_path / path.name)
    for one in (path, tmp_path / path.name):
        profile = labkit.read_profile(one)
        assert len(profile.steps) == SIMULATED[name].lanes
        for steps, expected in zip(profile.steps.values(), SIMULATED[name].steps(), strict=True):
            (step,) = steps
            same(step, expected)


def test_the_pipeline_by_hand():
    """4 stages, 8 micro-batches of 10 + 20 ms: (p - 1)/m of bubble and the exposed transfers."""
    run = SIMULATED["pipeline-1f1b"]
    assert [step.compute for step in run.steps()] == pytest.approx([0.240] * 4)
    assert all(step.pp == exposed for step, exposed in zip(run.steps(), run.exposed, strict=True))
    assert [step.total for step in run.steps()] == pytest.approx([run.span] * 4)


def test_overlap_hides_what_it_hid():
    with_, without = (labkit.read_profile(sample_traces()[f"data-parallel-{n}overlap"]) for n in ("", "no-"))
    assert without.ranks[0].coverage == 0 and "overlap is off" in without.findings[0]
    assert with_.ranks[0].coverage == pytest.approx(7 / 8)
    assert with_.ranks[0].communication == pytest.approx(8 * (30e-6 + 25e6 / 2e9))


def test_the_slow_rank_of_the_real_job():
    profile = labkit.read_profile(sample_traces()["gloo-slow-rank"])
    assert list(profile.ranks) == [0, 1, 2, 3] and profile.straggler == 2
    waited = profile.waited
    assert min(waited, key=waited.get) == 2
    assert {len(steps) for steps in profile.steps.values()} == {3}
    assert all(one.host_time and len(one.calls) == 24 for one in profile.ranks.values())
    assert {one.size for one in profile.collectives} == {384 * 384 * 4, 384 * 4}


def test_the_equal_ranks_of_the_real_job():
    profile = labkit.read_profile(sample_traces()["gloo-two-ranks"])
    assert profile.straggler is None and len(profile.collectives) == 24
    assert all(len(one.seconds) == 2 and one.op == "all_reduce" for one in profile.collectives)


BLOCK = st.tuples(
    st.integers(0, 2), st.floats(0, 10), st.floats(0, 5), st.sampled_from([FORWARD, BACKWARD, TRANSFER])
)


@given(st.lists(BLOCK, min_size=1, max_size=12), st.sampled_from([None, "tp", "pp", "dp"]))
def test_any_timeline_reads_back(tmp_path_factory, blocks, cause):
    lane, start, seconds, kind = (np.array(column) for column in zip(*blocks, strict=True))
    timeline = Timeline(lane, start, start + seconds, kind, np.zeros(len(blocks), int))
    path = tmp_path_factory.mktemp("t") / "t.json"
    timeline.to_chrome(path, cause)
    profile = labkit.read_profile(path)
    for rank, expected in enumerate(timeline.steps(cause)):
        same(profile.steps[rank][0], expected)


def test_refused(tmp_path):
    timeline = SIMULATED["pipeline-1f1b"]
    with pytest.raises(InputRefused, match="cannot be written"):
        timeline.to_chrome(tmp_path / "no" / "such" / "folder.json")
    for path in (None, 3.5, 1, True, "a\0b"):
        with pytest.raises(InputRefused, match="cannot be written"):
            timeline.to_chrome(path)
    with pytest.raises(InputRefused, match="the cause of transfers is 'bubble'; use tp, cp, ep, pp or dp"):
        timeline.steps("bubble")
