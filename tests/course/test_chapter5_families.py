"""The families' lines against single plans timed one by one."""

import numpy as np
import pytest

from labkit.course.chapter5_families import FAMILIES, MICRO_BATCHES, families
from labkit.course.chapter5_gain import with_network
from labkit.course.chapter5_rounds import MODEL, cards
from labkit.errors import InputRefused
from labkit.planner.memory import memory
from labkit.planner.step import step_time
from labkit.presets import model
from labkit.spec import Plan
from labkit.spec.rules import allowed


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("batch", [64, 96])
def test_each_line_is_the_best_of_its_plans_timed_one_by_one(batch, overlap):
    rates = np.array([2e9, 24e9])
    found = families(global_batch=batch, rates=rates, overlap=overlap)
    shape = found.model
    for number, cut in enumerate(FAMILIES.values()):
        for place, rate in enumerate(rates):
            machine = with_network(cards(), rate / cards().inter.bandwidth)
            alone = {}
            for micro in MICRO_BATCHES:
                if batch % (cut["dp"] * micro):
                    continue
                plan = Plan(**cut, micro_batch=micro, global_batch=batch, prefetch=int(overlap))
                if allowed(shape, machine, plan) and memory(shape, machine, plan).fits:
                    alone[micro] = step_time(shape, machine, plan, overlap=overlap)
            best = max(alone, key=lambda micro: alone[micro].mfu)
            assert found.mfu[number, place] == pytest.approx(alone[best].mfu, rel=1e-12)
            assert found.tokens[number, place] == pytest.approx(alone[best].tokens_per_s_per_gpu, rel=1e-12)
            assert found.micro_batch[number, place] == best


def test_what_does_not_fit_is_nan_and_never_leads():
    found = families(sequence=16384, global_batch=512)
    full = list(FAMILIES).index("ZeRO-1 alone")
    assert np.isnan(found.mfu[full]).all() and (found.micro_batch[full] == 0).all()
    assert full not in found.leader


def test_a_faster_port_and_overlap_never_hurt():
    with_it, without = (families(overlap=overlap) for overlap in (True, False))
    assert (np.diff(with_it.mfu, axis=1) >= -1e-12).all()
    assert (with_it.mfu >= without.mfu - 1e-12).all()


@pytest.mark.parametrize("batch", [48, 31, 0, "many"])
def test_a_batch_that_not_all_can_share_is_refused(batch):
    with pytest.raises(InputRefused, match=r"multiple of 32|whole number"):
        families(global_batch=batch)


def test_the_families_fill_the_cards():
    for cut in FAMILIES.values():
        assert cut.get("tp", 1) * cut.get("pp", 1) * cut["dp"] == cards().n_gpus
    assert model(MODEL).layers % (4 * 2) == 0
