"""Seconds of the attention core and of operations that only read and write, on one GPU.

Constants: ``spec.kernels``. Every kernel's start is in these seconds once: take off ``gpu.kernels.launch``
times ``attention_starts``, or times 1 of a streaming operation, where starts are counted apart.
"""

import numpy as np

from labkit.planner.compute import usual_precision
from labkit.planner.products import element_bytes, product_seconds
from labkit.spec import Gpu
from labkit.spec.checks import amount, noun, one_of, together
from labkit.units import plain

_BLOCK = 128  # queries (forward) or keys (backward) that one multiprocessor works on at a time
# The last blocks run on few multiprocessors: so much of a block's time over all keys (or queries) is lost. A
# causal forward starts with the short blocks, a backward with the long ones. Read off SimuMax's A100 rows.
_LAST_FORWARD, _LAST_BACKWARD = 1.0, 0.4
_HEAD = 128  # elements of a head that the shares of peak are given for
# Exponentials of a score take as long as so many more elements of its head: backward on H100 with heads of
# 64 against 128 (Shah et al. 2024, FlashAttention-3, figure 6: 474 and 561 TFLOP/s).
_SOFTMAX = 32
_PADDED = 32  # a fused kernel fills a head up to a multiple of this (FlashAttention-2)
_ALIGNED = 8  # a product on tensor cores wants rows of whole 16 bytes
# Tensors of the scores' size that one softmax reads and writes, scale and mask in it, forward and backward;
# dropout adds one read, one write and a mask of one byte to both.
_SOFTMAX_PASSES, _DROPOUT_PASSES = (2.0, 3.0), 2.5


def streaming_seconds(size, gpu: Gpu):
    """Seconds of one kernel that reads and writes ``size`` bytes in all, one ``kernels.launch`` included.

    ``kernels.streaming`` of the memory bandwidth, as BabelStream measures it on tensors far larger than the
    cache. A GPU without a memory bandwidth takes the launch alone.

    >>> card = Gpu("round", 80e9, {"bf16": 300e12}, 0.8, memory_bandwidth=2e12)
    >>> round((streaming_seconds(1.7e9, card) - card.kernels.launch) * 1e3, 6)
    1.0
    """
    noun(gpu, Gpu, "the gpu")
    size = amount(size, "the bytes of a memory-bound operation", zero=True)
    together("an operation", size=size, gpu=gpu)
    return plain(gpu.kernels.launch + size / (_bandwidth(gpu) * gpu.kernels.streaming))


def attention_seconds(
    batch,
    heads,
    kv_heads,
    queries,
    keys,
    head_dim,
    gpu: Gpu,
    *,
    fused: bool = True,
    causal: bool = True,
    backward: bool = False,
    precision: str | None = None,
    dropout: bool = False,
):
    """Seconds of softmax(Q K^T) V, or of its backward, for ``batch`` sequences; starts of kernels included.

    ``queries`` positions against ``keys`` positions, ``heads`` of ``head_dim`` elements; numbers or arrays
    that broadcast. Fused (Dao 2023, FlashAttention-2): two products of 2 q k d FLOPs each forward, five
    backward, half of it where causal, at ``kernels.attention_forward`` or ``attention_backward`` of the
    peak; heads are filled up to 32 elements, small ones pay for their softmax, and few blocks of 128 do not
    fill the GPU. Keys and values shared by query heads change nothing but the bytes moved (a limit as well).

    Not fused: batched products over the whole square, causal or not, and a softmax that reads and writes the
    scores (with ``dropout``, its mask too), as Megatron-LM's fused softmax does. Heads that are no multiple
    of 8 elements keep tensor cores from reading 16 bytes at once: such products run half as fast (Anthony et
    al. 2024, The Case for Co-Designing Model Architectures with Hardware, from memory). Refused: sizes that
    are not above 0.

    >>> card = Gpu("round", 80e9, {"bf16": 300e12}, 0.8, memory_bandwidth=2e12)
    >>> size = dict(batch=4, heads=32, kv_heads=8, queries=4096, keys=4096, head_dim=128, gpu=card)
    >>> fused, plainly = (1e3 * attention_seconds(**size, fused=fused) for fused in (True, False))
    >>> round(fused, 1), round(plainly, 1)
    (3.3, 13.6)
    """
    precision = usual_precision(gpu, precision)
    for name, value in (("fused", fused), ("causal", causal), ("backward", backward), ("dropout", dropout)):
        one_of((False, True), value, name, arrays=False)
    given = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "queries": queries, "keys": keys}
    given["head_dim"] = head_dim
    together("attention", **given, gpu=gpu)
    sizes = [amount(value, f"{name} of attention") for name, value in given.items()]
    starts = gpu.kernels.launch * attention_starts(fused, backward, dropout)
    work = _fused if fused else _apart
    seconds = work(*sizes, gpu, precision, bool(causal), bool(backward), bool(dropout))
    return plain(starts + seconds)


def attention_starts(fused: bool, backward: bool = False, dropout: bool = False) -> int:
    """Kernels that attention starts: fused 1, backward 3 (row sums, the work, gradients of Q to 16 bits).

    Not fused 3, backward 5, and one more with ``dropout``.

    >>> attention_starts(True), attention_starts(False, backward=True, dropout=True)
    (1, 6)
    """
    for name, value in (("fused", fused), ("backward", backward), ("dropout", dropout)):
        one_of((False, True), value, name, arrays=False)
    if fused:
        return 3 if backward else 1
    return (5 if backward else 3) + bool(dropout)


def _fused(batch, heads, kv_heads, queries, keys, head_dim, gpu, precision, causal, backward, dropout):
    """Seconds of the fused kernel without starts; dropout is drawn inside and costs next to nothing."""
    use = gpu.kernels
    filled = np.ceil(head_dim / _PADDED) * _PADDED
    share = use.attention_backward if backward else use.attention_forward
    share = share * filled / (filled + _SOFTMAX) * ((_HEAD + _SOFTMAX) / _HEAD)
    flops = 2 * (5 if backward else 2) * filled
    along, across = (keys, queries) if backward else (queries, keys)
    block = flops * np.minimum(along, _BLOCK) * across  # with nothing masked
    whole = flops * batch * heads * queries * keys * (0.5 if causal else 1.0) / use.multiprocessors
    last = (_LAST_BACKWARD if backward else _LAST_FORWARD) * block
    rate = gpu.peak[precision] * share / use.multiprocessors
    moved = batch * (heads * queries * 2 + kv_heads * keys * 2) * head_dim * element_bytes(precision)
    moving = (2 if backward else 1) * moved / (_bandwidth(gpu) * use.streaming)
    return np.maximum((whole + last) / rate, moving)


def _apart(batch, heads, kv_heads, queries, keys, head_dim, gpu, precision, causal, backward, dropout):
    """Seconds of the products, the softmax and dropout as kernels of their own, without starts."""
    use, count = gpu.kernels, batch * heads
    aligned = np.ceil(head_dim / _ALIGNED) * _ALIGNED
    head_dim = np.where(head_dim == aligned, aligned, 2 * aligned)
    score = np.asarray(product_seconds(queries, keys, head_dim, gpu, count, precision)) - use.launch
    mixed = np.asarray(product_seconds(queries, head_dim, keys, gpu, count, precision)) - use.launch
    products = score + mixed
    if backward:  # of values, probabilities, queries and keys
        turned = np.asarray(product_seconds(keys, head_dim, queries, gpu, count, precision)) - use.launch
        products = score + mixed + 2 * turned
    passes = _SOFTMAX_PASSES[backward] + dropout * _DROPOUT_PASSES
    scores = count * queries * keys * element_bytes(precision)
    return products + passes * scores / (_bandwidth(gpu) * use.streaming)


def _bandwidth(gpu: Gpu):
    """Bytes/s of the memory; without end where none is given."""
    return np.inf if gpu.memory_bandwidth is None else gpu.memory_bandwidth
