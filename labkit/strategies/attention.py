"""Attention of one sequence and its gradients, whole or for a block of keys: what the split forms must equal.

Arrays are (heads, positions, head dimension). Several query heads may share a key and value head, as in
grouped-query attention (Ainslie et al. 2023): query head i reads key head i // (heads / kv_heads).
"""

import numpy as np


def scores(query: np.ndarray, key: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Q K^T / sqrt(d), and -inf where a position would look ahead: shape (kv_heads, group, rows, columns).

    ``rows`` and ``columns`` are the positions in the sequence of the queries and of the keys.
    """
    grouped = by_key_head(query, len(key))
    raw = grouped @ np.swapaxes(key, -1, -2)[:, None] / np.sqrt(query.shape[-1])
    return np.where(columns <= rows[:, None], raw, -np.inf)


def probabilities(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Causal softmax of the scores over a whole sequence."""
    positions = np.arange(query.shape[1])
    raw = scores(query, key, positions, positions)
    weight = np.exp(raw - raw.max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


def weighted(p: np.ndarray, value: np.ndarray) -> np.ndarray:
    """P V, back in the shape of the queries."""
    return (p @ value[:, None]).reshape(-1, p.shape[-2], value.shape[-1])


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Causal attention of one whole sequence, shape of ``query`` (Vaswani et al. 2017, section 3.2.1)."""
    return weighted(probabilities(query, key), value)


def attention_gradients(query, key, value, p, output, d_output):
    """Gradients of query, key and value for these keys, from their probabilities ``p``.

    The softmax needs the row sums of P dP over **all** keys; they equal those of O dO (Dao et al. 2022,
    FlashAttention, appendix B.2), so that a block of keys needs nothing of the other blocks but the output.
    """
    kv_heads, root = len(key), np.sqrt(query.shape[-1])
    d_grouped = by_key_head(d_output, kv_heads)
    row_sums = (d_grouped * by_key_head(output, kv_heads)).sum(axis=-1, keepdims=True)
    d_scores = p * (d_grouped @ np.swapaxes(value, -1, -2)[:, None] - row_sums) / root
    d_query = (d_scores @ key[:, None]).reshape(query.shape)
    d_key = (np.swapaxes(d_scores, -1, -2) @ by_key_head(query, kv_heads)).sum(axis=1)
    d_value = (np.swapaxes(p, -1, -2) @ d_grouped).sum(axis=1)
    return d_query, d_key, d_value


def by_key_head(heads: np.ndarray, kv_heads: int) -> np.ndarray:
    """(heads, positions, d) as (kv_heads, group, positions, d): the query heads of each key head together."""
    return heads.reshape(kv_heads, -1, *heads.shape[1:])
