"""What the labs on memory in pieces, learning rate, sequence and scaling draw, worked out apart."""

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.show import labs


def words(name, **setting):
    lab = getattr(labs, name)
    return "\n".join(lab.readout(lab.compute(**setting)))


def corners(patch):
    """The width of all rectangles of a path together, and their number."""
    shapes = patch.get_path().vertices.reshape(-1, 4, 2)
    return (shapes[:, :, 0].max(axis=1) - shapes[:, :, 0].min(axis=1)).sum(), len(shapes)


def test_the_map_has_every_reserved_byte(drawn):
    artists, result = drawn("fragmentation")
    history = result["history"]
    allocated, reserved = history.at_failure
    line = history.capacity / 6
    assert corners(artists["pieces"]["used"])[0] == pytest.approx(allocated / line)
    assert corners(artists["pieces"]["free"])[0] == pytest.approx((reserved - allocated) / line)
    assert corners(artists["asked"])[0] == pytest.approx(history.asked / line)
    assert corners(artists["areas"]["used"])[1] == len(history.allocated) + 1  # and the one that failed
    assert artists["end"].get_xdata() == [history.failed + 1]
    assert artists["says"].get_text().endswith("no hole is as large")


def test_a_run_to_the_end_has_no_cross(drawn):
    artists, result = drawn("fragmentation", room_GB=18, allocator="expandable segments")
    assert result["history"].failed is None and len(artists["end"].get_xdata()) == 0
    assert artists["says"].get_text().startswith("all ran")
    assert "all 80 micro-batches ran" in words("fragmentation", room_GB=18)
    assert "leak" in words("fragmentation", room_GB=20, leak_MB=200, allocator="expandable segments")


def test_rules_warm_up_and_toy(drawn):
    artists, result = drawn("learning_rate", batch=64, new_batch=512)
    assert [dot.get_ydata()[0] for dot in artists["dots"][:2]] == pytest.approx([8, 8**0.5])
    assert [bar.get_xdata()[1] for bar in artists["warm"]] == pytest.approx([1.28, 0.16, 0.02])
    assert artists["warm_says"][0].get_text() == "in proportion: 16,000"
    assert artists["run"].get_text() == "warm-up, of 12,500 steps"
    said = words("learning_rate", batch=64, new_batch=512)
    assert "x 8 linear, x 2.83 square root" in said and "250 same samples, of 12,500 steps" in said
    gradient, sign = result["toy"].values()
    assert min(gradient) == gradient[1] and min(sign) == sign[2]  # linear; square root
    same, _ = drawn("learning_rate", batch=64, new_batch=64)
    assert [bar.get_xdata()[1] for bar in same["bars"]] == pytest.approx([1] * 6)


def test_the_curve_with_noise_bends_at_the_critical_batch(drawn):
    _, result = drawn("learning_rate", batch=64, new_batch=512, critical=64)
    assert result["chosen"]["with noise"] == pytest.approx((1 + 64 / 64) / (1 + 64 / 512))


def test_shares_of_the_sequence(drawn):
    artists, _ = drawn("sequence_switch", sequence=8192)
    assert [text.get_text() for text in artists["says"]][::4] == ["5 %", "44 %"]
    assert artists["sums"][0].get_text() == "75.1 GB"  # 71.5 + 34 x 512 x 5120 x 40
    assert "57 GB beside states 71.5 GB, a share of 44 %" in words("sequence_switch")
    assert "61 %" in words("sequence_switch", micro_batch=2) and "69 %" in words("sequence_switch", zero=3)
    assert "full rec." in words("sequence_switch", sequence=32768, fused=False)


def test_bars_of_both_modes_are_whole(drawn):
    artists, result = drawn("weak_strong", tp=8, batch=64, n=128)
    widths = [corners(patch)[0] for patch in artists["bars"].values()]
    gained = sum(-min(curve.lost[c][4], 0.0) for curve in result["curves"].values() for c in curve.lost)
    assert sum(widths) == pytest.approx(2 + gained)
    strong, weak = result["curves"].values()
    assert strong.batch[4] == 64 and weak.batch[4] == 1024
    assert np.array_equal(artists["lines"][0].get_ydata(), strong.efficiency, equal_nan=True)
    assert "no work" in words("weak_strong", batch=64, n=1024)
    assert "(does not fit)" in words("weak_strong", tp=1, n=8)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fragmentation", {"room_GB": 0}),
        ("fragmentation", {"allocator": "buddy"}),
        ("fragmentation", {"median": 0}),
        ("learning_rate", {"new_batch": 1.5}),
        ("learning_rate", {"critical": 0}),
        ("sequence_switch", {"micro_batch": 0}),
        ("sequence_switch", {"sequence": "long"}),
        ("weak_strong", {"n": 12, "tp": 8}),
        ("weak_strong", {"n": 2048}),
    ],
)
def test_refused(name, wrong):
    with pytest.raises(InputRefused):
        getattr(labs, name).compute(**wrong)
