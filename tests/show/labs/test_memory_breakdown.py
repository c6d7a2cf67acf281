"""The breakdown draws what the memory model says: bars end to end, and the fullest in parts."""

import numpy as np
import pytest

from labkit.planner.memory import PARTS, memory
from labkit.presets import cluster, model
from labkit.show import labs, memory_parts, still, theme
from labkit.show.labs.memory_breakdown import CUT, KEPT, WIDE
from labkit.spec import Plan


def bars(artists, part, pp):
    """Starts and ends of a part's bars, by stage."""
    corners = artists["bars"][part].get_path().vertices.reshape(pp, -1, 2)
    return corners[:, 0, 0], corners[:, 2, 0]


def test_bars_stand_end_to_end_up_to_the_memory_of_each_stage(drawn):
    artists, _ = drawn("memory_breakdown", cluster="h200", n=64, pp=8, zero=1)
    plan = Plan(tp=2, pp=8, dp=4, zero=1, micro_batch=4, accumulation=32, sequence_parallel=True)
    found = memory(model("llama2-13b"), cluster("h200", nodes=8), plan)  # whose usual sequence is 4,096
    end = np.zeros(8)
    for part in PARTS:
        start, stop = bars(artists, part, 8)
        assert start == pytest.approx(end)
        assert (stop - start) * found.capacity == pytest.approx(found.parts[part], abs=1.0)
        end = stop
    assert end * cluster("h200").gpu.usable == pytest.approx(found.total)
    assert artists["card"].get_xdata() == [1, 1]


def test_each_part_has_its_colour_in_both_pictures(drawn):
    artists, _ = drawn("memory_breakdown")
    for part, piece in zip(PARTS, artists["pieces"], strict=True):
        assert piece.get_facecolor() == artists["bars"][part].get_facecolor()
    assert memory_parts.COLOURS["activations"] == theme.COLOURS["activations"]


def test_the_rows_are_shares_of_the_fullest_stage(drawn):
    artists, result = drawn("memory_breakdown")
    found = result.memory
    shares = [piece.get_width() for piece in artists["pieces"]]
    assert sum(shares) == pytest.approx(1)
    assert found.fullest == 0  # of 1F1B the first stage keeps most micro-batches
    assert shares[PARTS.index("in_flight")] * found.peak == pytest.approx(found.parts["in_flight"][0])
    written = dict(zip(PARTS, artists["sizes"].texts, strict=True))
    assert written["gathered"] == written["logits"] == "none"
    assert "stage 0 by part" in artists["fullest"].get_text()


def test_the_default_fits_on_paper_and_not_on_the_card(drawn):
    artists, result = drawn("memory_breakdown")
    found = result.memory
    assert found.total.mean() < found.allocated.max() < found.capacity < found.peak
    assert f"{(found.peak - found.capacity) / 1e9:.3g} GB too much" == artists["verdict"].get_text()
    above = 100 * (found.peak / found.total.mean() - 1)
    assert f"the peak {above:.3g} % above it" in still(labs.memory_breakdown).facts[4]
    sharded, result = drawn("memory_breakdown", zero=1)
    assert result.memory.fits
    assert sharded["verdict"].get_text().endswith(" left")


def test_a_bar_beyond_the_axis_is_cut_and_its_number_has_an_arrow(drawn):
    artists, result = drawn("memory_breakdown", sequence=65536)
    assert max(bars(artists, "slack", 4)[1]) == CUT < WIDE
    assert result.memory.peak > CUT * result.memory.capacity
    assert artists["totals"].texts[0].startswith("→ ") and ", peak" in artists["totals"].texts[0]
    small, _ = drawn("memory_breakdown", sequence=1024)
    assert not any("→" in text for text in small["totals"].texts)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_with_one_replica_it_says_that_nothing_is_sharded(zero):
    one = still(labs.memory_breakdown, n=8, zero=zero).facts
    assert f"ZeRO-{zero}: dp 1, nothing is sharded" in one[0]
    assert one[2:] == still(labs.memory_breakdown, n=8, zero=0).facts[2:]
    assert "nothing is sharded" not in still(labs.memory_breakdown, n=16, zero=zero).facts[0]


def test_every_control_changes_what_is_drawn():
    def parts(**setting):
        found = labs.memory_breakdown.compute(**setting).memory
        return (*(float(found.parts[part].sum()) for part in PARTS), found.capacity)

    changes = dict(model="gpt3-13b", cluster="h200", n=32, tp=1, pp=2, zero=2, micro_batch=2, sequence=1024)
    # More ranks make more replicas, which change what a rank holds only where something is sharded.
    settings = [{"zero": 1}, *({"zero": 1, name: value} for name, value in changes.items())]
    settings += [{"zero": 1, "recompute": way} for way in ("full", "none, scores stored")]
    assert len({parts(**setting) for setting in settings}) == len(settings)


def test_selective_recompute_makes_the_scores_of_one_layer_again():
    found = {way: labs.memory_breakdown.compute(recompute=way).memory.allocated[0] for way in KEPT}
    assert found["full"] < found["none"] < found["selective"] < found["none, scores stored"]
    scores = 4 * 4096 * 40 / 2 * 4096  # of a micro-batch, on one of two tensor-parallel ranks
    mlp = 4 * 4096 * 4 * 13824 / 2  # gradients in the widest place of the MLP, which are not there then
    assert found["selective"] - found["none"] == pytest.approx((2 + 2) * scores - mlp)


def test_what_cannot_be_is_said_in_one_sentence():
    (fact,) = still(labs.memory_breakdown, n=4).facts
    assert fact == "A replica takes tp 2 x pp 4 = 8 cards; N = 4 is no multiple of it. " + (
        "Choose more cards or a smaller cut."
    )
    (fact,) = still(labs.memory_breakdown, n=64, pp=16).facts
    assert fact.startswith("Impossible: 40 layers over 16 stages") and fact.endswith("pp or model.")
