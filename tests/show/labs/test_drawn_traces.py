"""What the labs of rings and rounds draw, held against the steps written out here."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from pytest import approx

from labkit.show import theme
from labkit.units import format_time


def boxes(collection):
    """(left, right, low, high) of each polygon, sorted."""
    corners = [path.vertices for path in collection.get_paths()]
    return np.array(sorted((*xy[:, 0][[0, 1]], xy[:, 1].min(), xy[:, 1].max()) for xy in corners))


@pytest.mark.parametrize(("n", "size"), [(8, 2**24), (4, 2**14)])
def test_link_use(drawn, n, size):
    artists, result = drawn("link_use", n=n, size=size)
    alpha, rate, rounds = 5e-6, 50e9, 2 * (n - 1)
    longest = rounds * (alpha + size / rate)
    busy = {"in N chunks": lambda k: range(n), "whole": lambda k: [k % n]}  # links of round k
    for name, carried in (("in N chunks", size / n), ("whole", size)):
        one = alpha + carried / rate
        at = [
            (k * one, k * one + alpha, (k + 1) * one, link) for k in range(rounds) for link in busy[name](k)
        ]
        wanted = {
            "waits": sorted((a / longest, b / longest, r / n, (r + 0.86) / n) for a, b, _, r in at),
            "blocks": sorted((b / longest, c / longest, r / n, (r + 0.86) / n) for _, b, c, r in at),
        }
        waits, blocks, title = artists[name]
        for collection, kind in ((waits, "waits"), (blocks, "blocks")):
            found = boxes(collection)
            assert found[np.lexsort(found.round(9).T[::-1])] == approx(np.array(wanted[kind]), abs=1e-9)
        assert result["runs"][name].seconds == approx(rounds * one)
        share = carried / rate / one * len(busy[name](0)) / n
        assert format_time(rounds * one) in title.get_text()
        assert result["runs"][name].occupancy == approx(share)
        assert blocks.get_facecolor()[0][:3] == approx(to_rgb(theme.COLOURS["bandwidth"]))
        assert waits.get_facecolor()[0][:3] == approx(to_rgb(theme.COLOURS["latency"]))


def walk(numbers, steps):
    """The ring written out: cells and contributors after some steps, and what goes next as (rank, chunk)."""
    n = len(numbers)
    cells, counts = [list(row) for row in numbers], [[1] * n for _ in range(n)]
    for step in range(2 * (n - 1) + 1):
        adds = step < n - 1
        # First each passes on the chunk it has just added to; then the sum it has just received.
        chunk = [(r - step - 1) % n if adds else (r - step + n - 1) % n for r in range(n)]
        if step == steps:
            return cells, counts, set(enumerate(chunk)) if step < 2 * (n - 1) else set()
        sent = [(cells[r][chunk[r]], counts[r][chunk[r]]) for r in range(n)]
        for r, (value, count) in enumerate(sent):
            to = (r + 1) % n
            cells[to][chunk[r]] = value + (cells[to][chunk[r]] if adds else 0)
            counts[to][chunk[r]] = count + (counts[to][chunk[r]] if adds else 0)


def written(artists, n):
    return [[int(artists["values"][r * n + c].get_text()) for c in range(n)] for r in range(n)]


@pytest.mark.parametrize(("n", "step"), [(4, 1), (5, 5), (8, 9), (3, 4)])
def test_ring_walk(drawn, n, step):
    first = written(drawn("ring_walk", n=n, step=0)[0], n)
    artists, result = drawn("ring_walk", n=n, step=step)
    cells, counts, sends = walk(first, step)
    assert written(artists, n) == cells == result["state"].tolist()
    if step == 2 * (n - 1):
        assert cells == [np.sum(first, axis=0).tolist()] * n
    assert [text.get_visible() for text in artists["values"]] == [i < n * n for i in range(64)]
    squares = [path.vertices for path in artists["cells"].get_paths()]
    assert len(squares) == n * n
    for i, text in enumerate(artists["values"][: n * n]):  # each number stands in its own cell
        row, column = divmod(i, n)
        x, y = text.get_position()
        assert squares[i][:, 0].min() < x < squares[i][:, 0].max()
        assert squares[i][:, 1].min() < y < squares[i][:, 1].max()
        side = 8 / (8 if n > 5 else 5)
        assert squares[i].min(axis=0) == approx((column * side, row * side))
    frames = [path.vertices for path in artists["sent"].get_paths()]
    framed = {divmod(next(i for i in range(n * n) if np.allclose(f, squares[i])), n) for f in frames}
    assert framed == sends and len(frames) == len(sends)
    grey = artists["cells"].get_facecolor()[:, :3] @ (0.3, 0.59, 0.11)
    shade = {count: {round(g, 6) for g, c in zip(grey, np.ravel(counts), strict=True) if c == count}
             for count in np.unique(counts)}  # fmt: skip
    assert all(len(found) == 1 for found in shade.values())  # one shade for each number of contributors
    steps = [min(shade[count]) for count in sorted(shade)]
    assert steps == sorted(steps, reverse=True) and len(set(steps)) == len(steps)  # the more, the darker


@pytest.mark.parametrize(("n", "step"), [(4, 1), (5, 5), (3, 4)])
def test_ring_walk_shows_who_sends_what_to_whom(drawn, n, step):
    artists, _ = drawn("ring_walk", n=n, step=step)
    _, _, sends = walk([[0] * n] * n, step)
    for r in range(8):
        chunk = dict(sends).get(r)
        assert (
            artists["arrows"][r].get_visible() == artists["carried"][r].get_visible() == (chunk is not None)
        )
        if chunk is not None:
            assert artists["carried"][r].get_text() == f"c{chunk}"
            ends = [artists["nodes"][rank].get_position() for rank in (r, (r + 1) % n)]
            assert np.allclose(artists["arrows"][r]._posA_posB, ends)
    names = [text.get_text() for text in artists["nodes"] if text.get_visible()]
    assert names == [str(r) for r in range(n)]
    adds = step < n - 1
    assert artists["middle"].get_text() == ("" if not sends else f"receiver\n{'adds' if adds else 'stores'}")
    phase = "finished" if not sends else "reduce-scatter" if adds else "all-gather"
    assert phase in artists["title"].get_text()


ROUNDS = {
    # (round, sender, receiver) of the messages that are added, and of those that are kept.
    "all_reduce/ring": (
        lambda n: {(k, r, (r + 1) % n) for k in range(n - 1) for r in range(n)},
        lambda n: {(k, r, (r + 1) % n) for k in range(n - 1, 2 * (n - 1)) for r in range(n)},
    ),
    "all_reduce/recursive_doubling": (
        lambda n: {(k, r, r ^ 2**k) for k in range(int(np.log2(n))) for r in range(n)},
        lambda n: set(),
    ),
    "broadcast/ring": (lambda n: set(), lambda n: {(r, r, r + 1) for r in range(n - 1)}),
}


@pytest.mark.parametrize("n", [4, 16])
@pytest.mark.parametrize("what", ROUNDS)
def test_trace_rounds(drawn, what, n):
    artists, result = drawn("trace_rounds", n=n, what=what)
    adds, keeps = (messages(n) for messages in ROUNDS[what])
    rounds = max(k for k, _, _ in adds | keeps) + 1
    for name, messages in (("adds", adds), ("keeps", keeps)):
        lines = {tuple(np.ravel(line).round(9).tolist()) for line in artists[name].get_segments()}
        wanted = {(k / rounds, a / (n - 1), (k + 0.86) / rounds, b / (n - 1)) for k, a, b in messages}
        assert lines == {tuple(np.round(line, 9).tolist()) for line in wanted}
    borders = [line[0][0] for line in artists["rounds"].get_segments()]
    assert borders == approx([k / rounds for k in range(rounds + 1)])
    dots = {tuple(np.round(dot, 9).tolist()) for dot in zip(*artists["dots"].get_data(), strict=True)}
    assert dots == {(round(k / rounds, 9), round(a / (n - 1), 9)) for k, a, _ in adds | keeps}
    assert artists["title"].get_text().endswith(f"N = {n}: {rounds} rounds")
    heights = {text.get_text(): text.get_position()[1] for text in artists["names"] if text.get_text()}
    assert heights == {f"rank {r}": approx(r / (n - 1)) for r in range(n)}
    colour = {name: to_rgb(artists[name].get_color()[0][:3]) for name in ("adds", "keeps")}
    assert np.dot(colour["adds"], (0.3, 0.59, 0.11)) < np.dot(colour["keeps"], (0.3, 0.59, 0.11))
    assert result["run"].rounds == rounds
