"""An expert layer on real arrays: unsplit, and with its experts on ranks that exchange tokens. The two agree.

An expert is a two-layer MLP with ReLU. A token's output is the sum of its experts' outputs, each weighted by
its gate ("Outrageously Large Neural Networks" 2017, section 2). Forward and backward are both run, because
each needs a dispatch and a combine of its own: the four AllToAlls of the bill are counted here, not assumed.
"""

from dataclasses import dataclass

import numpy as np

from labkit.spec.checks import noun
from labkit.strategies.checks import places, shaped
from labkit.strategies.experts import Routing


@dataclass(frozen=True, slots=True, eq=False)
class LayerRun:
    """What a layer gives, forward and backward, and what it sent.

    ``output`` and ``input_gradient``: (ranks, tokens, hidden); ``gate_gradient``: (ranks, tokens, top_k);
    ``up_gradient``: (experts, hidden, ffn); ``down_gradient``: (experts, ffn, hidden); ``exchanges``: for
    each AllToAll the rows from rank to rank, shape (ranks, ranks).
    """

    output: np.ndarray
    input_gradient: np.ndarray
    gate_gradient: np.ndarray
    up_gradient: np.ndarray
    down_gradient: np.ndarray
    exchanges: tuple[np.ndarray, ...] = ()


def unsplit(x, gradient, up, down, routing: Routing) -> LayerRun:
    """The layer on one rank that holds all tokens and all experts.

    ``x``: (ranks, tokens, hidden); ``gradient``: that of the loss by the output, of the same shape; ``up``:
    (experts, hidden, ffn); ``down``: (experts, ffn, hidden). Dropped choices add nothing.
    """
    x, gradient, up, down = _checked(x, gradient, up, down, routing)
    output, to_input = np.zeros(x.shape), np.zeros(x.shape)
    to_gate, to_up, to_down = np.zeros(routing.gates.shape), np.zeros(up.shape), np.zeros(down.shape)
    for expert in range(routing.experts):
        rank, token, choice = np.nonzero((routing.chosen == expert) & routing.kept)
        rows, back = x[rank, token], gradient[rank, token]
        gate = routing.gates[rank, token, choice][:, None]
        made = _forward(rows, up[expert], down[expert])
        np.add.at(output, (rank, token), gate * made)
        to_gate[rank, token, choice] = (back * made).sum(axis=1)
        sent_back, to_up[expert], to_down[expert] = _backward(rows, gate * back, up[expert], down[expert])
        np.add.at(to_input, (rank, token), sent_back)
    return LayerRun(output, to_input, to_gate, to_up, to_down)


def split(x, gradient, up, down, routing: Routing, seats) -> LayerRun:
    """The same layer with expert e on rank ``seats[e]``: no rank touches another's tokens or weights.

    Each rank sends the rows of its kept choices to the ranks that hold their experts (dispatch), these work
    on what arrived and send the results home (combine), where gates weigh and add them; backward again.
    """
    x, gradient, up, down = _checked(x, gradient, up, down, routing)
    seats = places(seats, "the ranks of the experts", routing.experts, routing.ranks)
    ranks, top_k = range(routing.ranks), routing.chosen.shape[2]
    held = [{e: (up[e], down[e]) for e in np.flatnonzero(seats == r)} for r in ranks]
    exchanges = []

    def all_to_all(boxes):
        """Box [i][j] goes from rank i to rank j, which receives it as [j][i]."""
        exchanges.append(np.array([[len(box) for box in row] for row in boxes]))
        return [[boxes[i][j].copy() for i in ranks] for j in ranks]

    # Which of a rank's choices go where; the numbers of their experts travel ahead of the rows.
    letters = [_letters(routing, seats, r) for r in ranks]
    experts = [[routing.chosen[i].ravel()[letters[i][j]] for i in ranks] for j in ranks]
    weights = [[routing.gates[i].ravel()[letter][:, None] for letter in letters[i]] for i in ranks]

    arrived = all_to_all([[x[i][letter // top_k] for letter in letters[i]] for i in ranks])
    made = [[_by_expert(held[j], experts[j][i], arrived[j][i]) for i in ranks] for j in ranks]
    home = all_to_all(made)
    output, to_input, to_gate = np.zeros(x.shape), np.zeros(x.shape), np.zeros(routing.gates.shape)
    for i in ranks:
        for letter, weight, rows in zip(letters[i], weights[i], home[i], strict=True):
            np.add.at(output[i], letter // top_k, weight * rows)
            back = gradient[i][letter // top_k]
            to_gate[i].reshape(-1)[letter] = (back * rows).sum(axis=1)

    back = [
        [w * gradient[i][letter // top_k] for letter, w in zip(letters[i], weights[i], strict=True)]
        for i in ranks
    ]
    back = all_to_all(back)
    to_up, to_down = np.zeros(up.shape), np.zeros(down.shape)
    returned = [[np.empty_like(rows) for rows in row] for row in back]
    for j in ranks:
        for expert, (w_up, w_down) in held[j].items():
            for i in ranks:
                here = experts[j][i] == expert
                rows, by_up, by_down = _backward(arrived[j][i][here], back[j][i][here], w_up, w_down)
                returned[j][i][here] = rows
                to_up[expert] += by_up
                to_down[expert] += by_down
    for i, row in enumerate(all_to_all(returned)):
        for letter, rows in zip(letters[i], row, strict=True):
            np.add.at(to_input[i], letter // top_k, rows)
    return LayerRun(output, to_input, to_gate, to_up, to_down, tuple(exchanges))


def _checked(x, gradient, up, down, routing: Routing) -> list[np.ndarray]:
    """The arrays of a layer, each of the shape that the routing and the first of them ask for."""
    noun(routing, Routing, "the routing")
    x = shaped(x, "x", routing.ranks, routing.chosen.shape[1], "hidden")
    up = shaped(up, "up", routing.experts, x.shape[2], "ffn")
    return [
        x,
        shaped(gradient, "the gradient", *x.shape),
        up,
        shaped(down, "down", routing.experts, up.shape[2], x.shape[2]),
    ]


def _letters(routing: Routing, seats, rank: int) -> list[np.ndarray]:
    """For each destination the kept choices of ``rank`` that go there, as token x top_k + choice."""
    goes, kept = seats[routing.chosen[rank]].ravel(), routing.kept[rank].ravel()
    return [np.flatnonzero((goes == to) & kept) for to in range(routing.ranks)]


def _by_expert(held, experts, rows) -> np.ndarray:
    """Each row through the expert it came for; a rank that does not hold it would fail here."""
    made = np.empty_like(rows)
    for expert in np.unique(experts):
        here = experts == expert
        made[here] = _forward(rows[here], *held[expert])
    return made


def _forward(rows, up, down) -> np.ndarray:
    return np.maximum(rows @ up, 0) @ down


def _backward(rows, gradient, up, down) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients by the rows and by the two weights."""
    hidden = rows @ up
    inner = (gradient @ down.T) * (hidden > 0)
    return inner @ up.T, rows.T @ inner, np.maximum(hidden, 0).T @ gradient
