"""What a table of plans answers: the front, the costs, and how sure the first place is."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.planner.ranking import NOT_MODELLED, front, gpu_hours, runner_up, tokens_per_day
from labkit.planner.search import search
from labkit.presets import cluster, model

TABLE = search(model("gpt3-13b"), cluster("a100", 4), 64, {"context": "ring", "recompute": "none"})


def test_the_front_is_what_no_other_plan_beats():
    few = TABLE.iloc[:: len(TABLE) // 400]
    found = front(few)
    seconds, memory = few["seconds"].to_numpy(), few["memory"].to_numpy()
    beaten = [
        np.any((seconds <= s) & (memory <= m) & ((seconds < s) | (memory < m)))
        for s, m in zip(seconds, memory, strict=True)
    ]
    kept = few[~np.array(beaten)].drop_duplicates(["seconds", "memory"])
    assert found.index.tolist() == kept.index.tolist()
    assert found["seconds"].is_monotonic_increasing and found["memory"].is_monotonic_decreasing
    shuffled = few.sample(frac=1, random_state=3)
    assert front(shuffled)["memory"].tolist() == found["memory"].tolist()
    assert len(front(TABLE.head(1))) == 1 and len(front(TABLE.head(0))) == 0


def test_what_a_run_costs():
    row = TABLE.iloc[0]
    # 64 sequences of 2048 tokens a step on 32 GPUs.
    assert tokens_per_day(row) == pytest.approx(64 * 2048 / row["seconds"] * 86400)
    assert gpu_hours(row, 300e9) == pytest.approx(300e9 / (64 * 2048) * row["seconds"] * 32 / 3600)
    assert gpu_hours(TABLE.head(3), 1e9).shape == tokens_per_day(TABLE.head(3)).shape == (3,)


def test_how_sure_the_first_place_is():
    table = TABLE.head(4).copy()
    table["seconds"] = [1.0, 1.04, 1.05, 1.3]
    found = runner_up(table, 0.06)
    assert (round(found.gap, 9), found.near, found.sure) == (0.04, 2, False)
    assert "4 % longer, less than the model's error of 6 %, within which 2 more plans lie" in repr(found)
    found = runner_up(table, 0.03)
    assert found.sure and repr(found).endswith("longer, more than the model's error of 3 %")
    assert "1 more plan lies" in repr(runner_up(table.iloc[[0, 1, 3]], 0.1))


def test_refusals():
    for call in (front, tokens_per_day, lambda table: runner_up(table, 0.1), lambda row: gpu_hours(row, 1e9)):
        with pytest.raises(InputRefused, match="no table of search"):
            call([1, 2])
        with pytest.raises(InputRefused, match=r"has no column \w+ any more; give it with all its columns"):
            call(TABLE[["tp", "pp", "limit"]])
    with pytest.raises(InputRefused, match="a front is that of a table; give the table, not one row"):
        front(TABLE.iloc[0])
    with pytest.raises(InputRefused, match="the table has 1 plan; a runner-up takes two"):
        runner_up(TABLE.head(1), 0.1)
    with pytest.raises(InputRefused, match="error of the model"):
        runner_up(TABLE, -0.1)
    with pytest.raises(InputRefused, match="the number of tokens"):
        gpu_hours(TABLE, 0)


def test_what_is_left_out_is_said():
    assert all(any(word in one for one in NOT_MODELLED) for word in ("offload", "Adam", "LoRA"))
