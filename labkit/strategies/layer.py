"""One Transformer layer on real matrices, forward and backward: what the split layer must equal.

Two blocks, attention and MLP, each inside norm, dropout and residual: x + dropout(block(norm(x))). Norm is
RMS norm with a gain (Zhang and Sennrich 2019), the nonlinearity GELU in its tanh form (Hendrycks and Gimpel
2016).
One sequence of shape (positions, hidden); a larger micro-batch adds rows, and nothing here changes.

Each block returns what its backward pass needs, by name; ``saved_bytes`` counts it as training would hold it.
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import noun, whole
from labkit.strategies.attention import attention_gradients, probabilities, weighted
from labkit.strategies.checks import shaped

MOST = 1024  # of each size of a layer to try things on
KEEP = 0.9  # share of elements that dropout leaves
_EPSILON = 1e-6  # in the root of the norm, so that a row of zeros stays finite

# How tensor parallel cuts each matrix; the gains are whole on every rank.
COLUMNS, ROWS, GAINS = ("query", "key", "value", "up"), ("output", "down"), ("attention_gain", "mlp_gain")


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The matrices of a layer, or the part of them that one rank holds; products are x @ matrix.

    Shapes: query (hidden, heads x head_dim), key and value (hidden, kv_heads x head_dim), output the
    transpose of query's, up (hidden, ffn), down (ffn, hidden), gains (hidden,).
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    output: np.ndarray
    up: np.ndarray
    down: np.ndarray
    attention_gain: np.ndarray
    mlp_gain: np.ndarray
    head_dim: int

    @property
    def heads(self) -> int:
        """Query heads held here."""
        return self.query.shape[1] // self.head_dim

    @property
    def kv_heads(self) -> int:
        """Key and value heads held here."""
        return self.key.shape[1] // self.head_dim


def random_layer(positions=16, heads=8, kv_heads=8, head_dim=4, ffn=None, seed=0):
    """(x, d_output, weights, masks): a small layer to try things on, hidden = heads x head_dim.

    ``ffn`` is 4 x hidden unless given. Refused: heads that the kv heads do not divide.
    """
    positions, head_dim = whole(positions, "positions", most=MOST), whole(head_dim, "head_dim", most=MOST)
    heads, kv_heads = whole(heads, "heads", most=MOST), whole(kv_heads, "kv_heads", most=MOST)
    seed = whole(seed, "the seed", least=0)
    if heads % kv_heads:
        raise InputRefused(
            f"{heads} query heads cannot share {kv_heads} kv heads evenly; use a divisor of {heads}"
        )
    hidden, draw = heads * head_dim, np.random.default_rng(seed)
    ffn = 4 * hidden if ffn is None else whole(ffn, "ffn", most=MOST)

    def matrix(rows, columns):
        return draw.normal(size=(rows, columns)) / np.sqrt(rows)

    keys = kv_heads * head_dim
    weights = Weights(
        query=matrix(hidden, hidden),
        key=matrix(hidden, keys),
        value=matrix(hidden, keys),
        output=matrix(hidden, hidden),
        up=matrix(hidden, ffn),
        down=matrix(ffn, hidden),
        attention_gain=1 + 0.1 * draw.normal(size=hidden),
        mlp_gain=1 + 0.1 * draw.normal(size=hidden),
        head_dim=head_dim,
    )
    masks = tuple(draw.random((positions, hidden)) < KEEP for _ in BLOCKS)
    return draw.normal(size=(positions, hidden)), draw.normal(size=(positions, hidden)), weights, masks


def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Each row over its root mean square, times the gain: needs whole rows, so it is never cut by columns."""
    return x / _root_mean_square(x) * gain


def norm_backward(d_y: np.ndarray, x: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of input and gain; the gain's is a sum over the rows at hand."""
    size = _root_mean_square(x)
    unit = x / size
    d_unit = d_y * gain
    d_x = (d_unit - unit * (d_unit * unit).mean(axis=-1, keepdims=True)) / size
    return d_x, (d_y * unit).sum(axis=0)


def _root_mean_square(x):
    return np.sqrt((x**2).mean(axis=-1, keepdims=True) + _EPSILON)


def attention_block(x: np.ndarray, w: Weights) -> tuple[np.ndarray, dict]:
    """Attention over the heads of ``w``: the block's output, or a rank's summand of it."""
    query, key, value = (_heads(x @ matrix, w.head_dim) for matrix in (w.query, w.key, w.value))
    p = probabilities(query, key)
    context = weighted(p, value)
    saved = {"input": x, "query": query, "key": key, "value": value, "probabilities": p, "context": context}
    return _joined(context) @ w.output, saved


def attention_block_backward(d_y: np.ndarray, saved: dict, w: Weights) -> tuple[np.ndarray, dict]:
    """Gradient of the block's input, or a rank's summand of it, and those of the matrices held.

    Probabilities that were not saved are computed again: that is selective recompute.
    """
    query, key, value, context = (saved[name] for name in ("query", "key", "value", "context"))
    p = saved["probabilities"] if "probabilities" in saved else probabilities(query, key)
    d_context = _heads(d_y @ w.output.T, w.head_dim)
    parts = attention_gradients(query, key, value, p, context, d_context)
    d_query, d_key, d_value = map(_joined, parts)
    x = saved["input"]
    gradients = {"query": x.T @ d_query, "key": x.T @ d_key, "value": x.T @ d_value}
    gradients["output"] = _joined(context).T @ d_y
    return d_query @ w.query.T + d_key @ w.key.T + d_value @ w.value.T, gradients


def mlp_block(x: np.ndarray, w: Weights) -> tuple[np.ndarray, dict]:
    """GELU(x up) down over the columns of ``up`` in ``w``: the block's output, or a rank's summand of it."""
    wide = x @ w.up
    active = gelu(wide)
    return active @ w.down, {"input": x, "wide": wide, "active": active}


def mlp_block_backward(d_y: np.ndarray, saved: dict, w: Weights) -> tuple[np.ndarray, dict]:
    """Gradient of the block's input, or a rank's summand of it, and those of the matrices held."""
    d_wide = d_y @ w.down.T * _gelu_slope(saved["wide"])
    return d_wide @ w.up.T, {"down": saved["active"].T @ d_y, "up": saved["input"].T @ d_wide}


# The gain in front of each block, and the block: a layer is these two in order.
BLOCKS = (
    ("attention_gain", attention_block, attention_block_backward),
    ("mlp_gain", mlp_block, mlp_block_backward),
)


def whole_layer(x: np.ndarray, d_output: np.ndarray, weights: Weights, masks):
    """(output, input gradient, gradients by name, saved by block) of the layer on one rank."""
    x, d_output, masks = checked(x, d_output, weights, masks)
    output, saved = layer_forward(x, weights, masks)
    return output, *layer_backward(d_output, saved, weights), saved


def layer_forward(x: np.ndarray, w: Weights, masks) -> tuple[np.ndarray, list[dict]]:
    """The layer's output, and for each block what its backward pass needs."""
    saved = []
    for (gain, block, _), mask in zip(BLOCKS, masks, strict=True):
        out, kept = block(norm(x, getattr(w, gain)), w)
        saved.append({"residual": x, "mask": mask, **kept})
        x = x + out * mask / KEEP
    return x, saved


def layer_backward(d_output: np.ndarray, saved: list[dict], w: Weights) -> tuple[np.ndarray, dict]:
    """Gradient of the layer's input, and those of its weights by name."""
    gradients = {}
    for (gain, _, backward), kept in zip(reversed(BLOCKS), reversed(saved), strict=True):
        d_normed, found = backward(d_output * kept["mask"] / KEEP, kept, w)
        d_x, gradients[gain] = norm_backward(d_normed, kept["residual"], getattr(w, gain))
        gradients |= found
        d_output = d_output + d_x
    return d_output, gradients


def checked(x, d_output, weights: Weights, masks) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Input, output gradient and dropout masks of a layer; refused when they do not fit its weights."""
    noun(weights, Weights, "the weights")
    x = shaped(x, "x", "positions", weights.query.shape[0])
    d_output = shaped(d_output, "the output gradient", *x.shape)
    if not isinstance(masks, tuple | list) or len(masks) != len(BLOCKS):
        raise InputRefused(f"a layer has {len(BLOCKS)} dropout masks; give a list of so many")
    return x, d_output, [shaped(mask, "a dropout mask", *x.shape) for mask in masks]


def saved_bytes(saved: list[dict]) -> float:
    """Bytes that these arrays take in training: 2 an element, 1 where it is yes or no (dropout masks)."""
    return float(
        sum(array.size * (1 if array.dtype == bool else 2) for kept in saved for array in kept.values())
    )


def gelu(x):
    """The Gaussian error linear unit, tanh form."""
    return 0.5 * x * (1 + np.tanh(_inner(x)))


def _gelu_slope(x):
    t = np.tanh(_inner(x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


def _inner(x):
    return np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)


def _heads(x: np.ndarray, head_dim: int) -> np.ndarray:
    """(positions, heads x d) as (heads, positions, d)."""
    return x.reshape(len(x), -1, head_dim).swapaxes(0, 1)


def _joined(heads: np.ndarray) -> np.ndarray:
    """(heads, positions, d) as (positions, heads x d)."""
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)
