"""What the expert lab draws, held against counts written out here; every control moves the picture."""

import numpy as np
import pytest
from pytest import approx

from labkit.course.chapter3_experts import experts_case
from labkit.show import labs, still

DEFAULT = dict(ranks=8, experts=32, top_k=2, skew=0.6, factor=1.25, balance=0.0, placement="contiguous")


def boxes(collection):
    """(low, high) of each rank's box."""
    corners = [path.vertices[:, 1] for path in collection.get_paths()]
    return np.array([(y.min(), y.max()) for y in corners])


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"factor": 0, "skew": 1.4},
        {"ranks": 16, "top_k": 4, "placement": "round_robin"},
        {"ranks": 32, "experts": 64, "factor": 2.0, "balance": 0.8},
    ],
)
def test_bars_lines_and_shares(drawn, setting):
    artists, _ = drawn("expert_skew", **setting)
    s = DEFAULT | setting
    n, k, each, tokens = s["ranks"], s["top_k"], s["experts"] // s["ranks"], 512
    routing = experts_case(n, s["experts"], s["skew"], k, None, s["balance"], tokens=tokens).free
    room = np.inf if not s["factor"] else np.ceil(s["factor"] * k * tokens / s["experts"])
    demand, kept, left_out = np.zeros(n), np.zeros(n), 0
    for choices in routing.chosen:
        filled = dict.fromkeys(range(s["experts"]), 0)
        for token in choices:
            found = 0
            for expert in token.tolist():
                rank = expert % n if s["placement"] == "round_robin" else expert // each
                demand[rank] += 1
                if filled[expert] < room:
                    kept[rank] += 1
                    found += 1
                filled[expert] += 1
            left_out += found == 0
    mean = tokens * k
    assert boxes(artists["bars"]["kept"]) == approx(np.column_stack([0 * kept, kept / mean]))
    assert boxes(artists["bars"]["dropped"]) == approx(np.column_stack([kept, demand]) / mean)
    even, capacity = artists["lines"]
    assert list(even.get_ydata()) == [1, 1] and capacity.get_visible() == bool(s["factor"])
    padding = 0.0
    if s["factor"]:
        assert capacity.get_ydata() == approx([room * s["experts"] / mean] * 2)
        padding = 1 - kept.sum() / (n * s["experts"] * room)
    lost = [1 - kept.sum() / demand.sum(), left_out / (n * tokens), padding]
    assert [bar.get_width() for bar in artists["lost"]] == approx(lost, abs=1e-12)
    # The experts' products wait for the fullest rank: all its tokens, or its whole buffers.
    products = [artists["took"][row].get_width() for row in (2, 3)]
    assert products == approx([demand.max() / mean, room * s["experts"] / mean if s["factor"] else 0])
    assert len(artists["nodes"].get_segments()) == max(0, n // 8 - 1)
    assert artists["left"].get_ylim()[1] * 0.84 >= demand.max() / mean


def test_the_exchange_of_one_node_is_that_of_its_fullest_port(drawn):
    artists, case = drawn("expert_skew", factor=0, skew=1.0)
    sent = np.zeros((8, 8))
    for rank, choices in enumerate(case.free.chosen):
        for expert in choices.ravel():
            sent[rank, expert // 4] += 4096 * 2
    np.fill_diagonal(sent, 0)
    fullest = max(sent.sum(axis=0).max(), sent.sum(axis=1).max())
    rate, alpha = 365.6e9, 1.12e-6  # preset h100, inside a node
    even = 7 * alpha + 512 * 2 * 4096 * 2 * 7 / 8 / rate
    assert artists["took"][0].get_width() == approx((7 * alpha + fullest / rate) / even)
    assert artists["took"][1].get_width() == 0 and "no capacity" in artists["says"][1].get_text()


@pytest.mark.parametrize(
    "moved",
    [
        {"ranks": 4},
        {"experts": 64},
        {"top_k": 1},
        {"skew": 0.7},
        {"factor": 1.5},
        {"factor": 0},
        {"balance": 0.1},
        {"placement": "round_robin"},
        {"placement": "balanced"},
    ],
    ids=str,
)
def test_every_control_moves_the_picture_and_the_numbers(moved):
    before, after = (still(labs.expert_skew, **setting) for setting in ({}, moved))
    assert before.picture.stored() != after.picture.stored() and before.facts != after.facts


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"ranks": 1}, "at least 2"),
        ({"ranks": 64}, "up to 32"),
        ({"ranks": 16, "experts": 8}, "8 experts do not divide over 16 ranks"),
        ({"ranks": 3}, "use 2 or 4 ranks"),
        ({"skew": -1}, "skew is -1"),
    ],
)
def test_nonsense_gets_a_calm_sentence(setting, says):
    shown = still(labs.expert_skew, **setting)
    assert len(shown.facts) == 1 and says in shown.facts[0]
