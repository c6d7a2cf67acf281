"""Who reads what: sums against the model's parameters, and every rank's share rebuilt on real arrays."""

import numpy as np
import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.planner.rank_parameters import rank_parameters
from labkit.practice.resharding import reads
from labkit.practice.resharding.layout import Layout, stage_of_layers
from labkit.practice.resharding.reading import OPTIMIZER, WEIGHTS, _held, _Index
from labkit.practice.resharding.slices import overlap_segments
from labkit.practice.resharding.tensors import LAYER, tensors
from labkit.presets import model
from labkit.presets.models import model_ids
from labkit.spec import Plan, Transformer

SMALL = Transformer("small", 6, 24, 4, 101, 32, kv_heads=2, learned_positions=32)
UNTIED = Transformer("untied", 6, 24, 6, 101, 32, tied=False, gated=True, bias=False, norm="rms", ffn=40)
MIXED = Transformer("mixed", 4, 16, 4, 97, 32, experts=6, top_k=2, ffn=24, bias=True)
PLANS = {
    SMALL: [
        Plan(),
        Plan(tp=2, dp=3, zero=1, vocabulary_multiple=8),
        Plan(tp=4, replicate_kv=True, dp=2, zero=3),
        Plan(pp=3, dp=2, zero=2),
        Plan(pp=3, stage_layers=(1, 2, 3), tp=2),
        Plan(pp=2, v=3, dp=5, zero=1),
        Plan(pp=3, v=2, schedule="zb-v", dp=2, zero=1),
        Plan(dp=6, zero=3, shard_ranks=3),
        Plan(tp=2, cp=2, dp=2, zero=1, order="tp-pp-dp-cp"),
    ],
    UNTIED: [Plan(tp=2, pp=2), Plan(pp=6), Plan(dp=7, zero=3)],
    MIXED: [
        Plan(dp=2, zero=1),
        Plan(tp=2, dp=3, ep=3, etp=2, zero=1),
        Plan(dp=6, ep=6, zero=3),
        Plan(pp=2, tp=4, dp=3, ep=2, etp=3, zero=2),
        Plan(tp=2, dp=2, ep=2, etp=1),
    ],
}
PAIRS = [(shape, a, b) for shape, plans in PLANS.items() for a in plans for b in plans]


@pytest.mark.parametrize("id", model_ids())
def test_tensors_are_the_whole_model(id):
    shape = model(id)
    held = sum(t.parameters * (shape.layers if t.place == LAYER else 1) for t in tensors(shape))
    assert held == shape.parameters


@pytest.mark.parametrize("kind", [WEIGHTS, OPTIMIZER])
@pytest.mark.parametrize(("shape", "source", "target"), PAIRS)
def test_every_rank_gets_its_own_parameters(shape, source, target, kind):
    """The row of all parameters, numbered, is saved by the source's ranks and rebuilt for the target's."""
    old, new = Layout(shape, source), Layout(shape, target)
    index = _Index(old, kind)
    row = np.arange(shape.parameters)
    # What each source rank wrote, by where it belongs: nothing else can be read.
    written = {rank: np.zeros(row.size, bool) for rank in range(source.ranks)}
    for rank, mine in written.items():
        for part in _held(old, rank, kind).values():
            for a, b in zip(part.start, part.stop, strict=True):
                mine[a:b] = True
    for rank in range(target.ranks):
        for part in _held(new, rank, kind).values():
            found = overlap_segments(part.start, part.stop, index.cuts)
            got = np.concatenate(
                [row[a:b] for a, b in zip(found.start, found.stop, strict=True)] or [row[:0]]
            )
            wanted = np.concatenate(
                [row[a:b] for a, b in zip(part.start, part.stop, strict=True)] or [row[:0]]
            )
            assert np.array_equal(got, wanted)
            for owner, a, b in zip(index.owner[found.source], found.start, found.stop, strict=True):
                assert written[owner][a:b].all()


@pytest.mark.parametrize(("shape", "plans"), PLANS.items())
def test_sharded_optimizers_hold_all_of_it_once(shape, plans):
    for plan in plans:
        layout = Layout(shape, plan)
        seen = np.zeros(shape.parameters, int)
        for rank in range(plan.ranks):
            for part in _held(layout, rank, OPTIMIZER).values():
                for a, b in zip(part.own.start, part.own.stop, strict=True):
                    seen[a:b] += 1
        assert seen.min() >= 1 and len(set(np.unique(seen))) <= 2  # experts have other replicas than the rest


def test_weights_of_a_rank_are_what_the_planner_counts():
    plan = Plan(tp=8, pp=2, dp=2, vocabulary_multiple=0)
    shape = model("llama2-7b")
    read = reads(shape, Plan(tp=8, dp=2, vocabulary_multiple=0), plan)
    first, last = (rank_parameters(shape, plan, stage).total for stage in ("first", "last"))
    assert read.weights.sum(axis=1)[0] == approx(2 * first) and read.weights.sum(axis=1)[-1] == approx(
        2 * last
    )


def test_more_replicas_re_cut_the_optimizer_and_nothing_else():
    """gpt3-13b, 32 -> 64 cards: each rank reads its own weights, and half of an old shard of states."""
    shape = model("gpt3-13b")
    read = reads(shape, Plan(tp=8, dp=4, zero=1), Plan(tp=8, dp=8, zero=1))
    own = rank_parameters(shape, Plan(tp=8, vocabulary_multiple=1), "first").total
    assert read.weights.sum(axis=1) == approx(2 * own, rel=3e-3)  # padding is not read
    assert read.optimizer.sum(axis=1) == approx(12 * own / 8, rel=0.03)
    from_own = read.weights[np.arange(64), np.arange(64) % 8]
    assert np.all(from_own > 0.99 * read.weights.sum(axis=1))


def test_stages_of_layers():
    assert stage_of_layers(SMALL, Plan(pp=3, stage_layers=(1, 2, 3))).tolist() == [0, 1, 1, 2, 2, 2]
    assert stage_of_layers(SMALL, Plan(pp=3, v=2, schedule="zb-v")).tolist() == [0, 1, 2, 2, 1, 0]


def test_refused():
    with pytest.raises(InputRefused, match="the heads of small do not split over tp 3"):
        reads(SMALL, Plan(), Plan(tp=3))
    with pytest.raises(InputRefused, match="the layers of small"):
        reads(SMALL, Plan(pp=4), Plan())
    with pytest.raises(InputRefused, match="at most 4,096"):
        reads(SMALL, Plan(dp=5000), Plan())
    with pytest.raises(InputRefused, match="the target plan takes single numbers"):
        reads(SMALL, Plan(), Plan(dp=np.array([1, 2])))
