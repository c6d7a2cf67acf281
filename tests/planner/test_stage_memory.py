"""Memory of pipeline stages: sums by hand, and what cannot be counted."""

import pytest

from labkit.errors import InputRefused
from labkit.planner.stage_memory import peak_memory, stage_memory
from labkit.spec import Plan, Transformer

GUIDE = Transformer("guide", 32, 5120, 40, 50176, 2048)


def test_memory_of_the_stages_by_hand():
    plan = Plan(tp=8, pp=4, dp=2, micro_batch=4, global_batch=256, recompute="selective")
    unit = 4 * 2048 * 5120
    first = stage_memory(GUIDE, plan, "first")
    assert first.activations == pytest.approx(4 * 8 * (10 + 24 / 8) * unit)  # 4 in flight, 8 layers, 13 s b h
    assert stage_memory(GUIDE, plan, "interior").activations == pytest.approx(3 / 4 * first.activations)
    last = stage_memory(GUIDE, plan, "last")
    head = 4 * 4 * 2048 * (5120 + 50176) / 8
    assert last.activations == pytest.approx(8 * 13 * unit + head)
    assert peak_memory(GUIDE, plan) == first
    # Few micro-batches fill few stages; the first stage then keeps m of them.
    few = plan.changed(accumulation=2)
    assert stage_memory(GUIDE, few, "first").activations == pytest.approx(first.activations / 2)
    one = Plan(micro_batch=4, accumulation=4)
    full = stage_memory(GUIDE, one.changed(recompute="full"), "first").activations
    assert full == pytest.approx(32 * 2 * unit + 34 * unit + 8 * head)
    sharded = stage_memory(GUIDE, plan.changed(zero=1), "first").states
    assert sharded == pytest.approx(first.states * 10 / 16)  # 4 + 12/2 of 16


def test_the_first_stage_keeps_all_layers_however_many_stages_there_are():
    kept = [
        stage_memory(GUIDE, Plan(pp=p, micro_batch=1, accumulation=64), "first").activations
        for p in (2, 4, 8, 16, 32)
    ]
    assert kept == pytest.approx([kept[0]] * 5)


def test_states_of_the_guides_replica():
    """A replica of 32 x 80 GB holds at most 160 B parameters at 16 B; 13 B take 6.5 GB of states a card."""
    held = Transformer("13B", 32, 5792, 32, 1024, 2048, head_dim=181)
    assert held.parameters == pytest.approx(13e9, rel=0.01)
    plan = Plan(tp=8, pp=4, dp=2, micro_batch=1, accumulation=4)
    assert peak_memory(held, plan).states == pytest.approx(6.5e9, rel=0.02)


def test_refusals():
    with pytest.raises(InputRefused, match=r"plain 1F1B"):
        stage_memory(GUIDE, Plan(pp=4, v=2), "first")
    with pytest.raises(InputRefused, match="stage of a pipeline is 'middle'; use first, interior or last"):
        stage_memory(GUIDE, Plan(), "middle")
