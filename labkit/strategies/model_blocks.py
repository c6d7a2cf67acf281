"""A Transformer as the blocks whose gradients data parallelism reduces: half a layer each."""

from labkit.spec import Transformer
from labkit.spec.checks import noun
from labkit.strategies.checks import single
from labkit.strategies.overlap import Block


def transformer_blocks(
    model: Transformer, batch: float, flops_per_second: float, gradient_bytes: float = 2.0
) -> list[Block]:
    """The embedding, attention and MLP of every layer, and the head, in the order of the forward pass.

    ``batch``: sequences per step on this rank; ``flops_per_second``: what it reaches. Times are FLOPs at that
    rate, backward twice forward; norms and the embedding take none. Each matrix, bias and norm is a gradient
    of its own, query, key and value apart; experts one by one. Where the head is tied, its gradient is that
    of the embedding and so ready last. Refused: numbers not above 0.

    >>> model = Transformer("small", layers=2, hidden=64, heads=4, vocabulary=1000, sequence=128)
    >>> blocks = transformer_blocks(model, batch=1, flops_per_second=1e12, gradient_bytes=2)
    >>> sum(sum(block.gradients) for block in blocks) == 2 * model.parameters
    True
    """
    noun(model, Transformer, "the model")
    batch = single(batch, "the batch")
    flops_per_second = single(flops_per_second, "the FLOP/s of a rank")
    gradient_bytes = single(gradient_bytes, "the bytes of a gradient's element")
    flops = model.forward_flops(batch)
    head = flops.pop("head")
    attention = sum(flops[name] for name in ("query key value", "scores", "context", "projection"))

    def block(forward, elements):
        seconds = forward / flops_per_second
        return Block(seconds, 2 * seconds, tuple(gradient_bytes * count for count in elements))

    embedding = [model.vocabulary * model.hidden]
    if model.learned_positions:
        embedding.append(model.learned_positions * model.hidden)
    halves = [
        block(attention / model.layers, _attention(model)),
        block((flops["mlp"] + flops["router"]) / model.layers, _mlp(model)),
    ]
    end = _norm(model) + ([] if model.tied else [model.vocabulary * model.hidden])
    return [
        block(0.0, embedding + (_norm(model) if model.embedding_norm else [])),
        *(halves * model.layers),
        block(head, end),
    ]


def _norm(model: Transformer) -> list[int]:
    """Weight, and bias where the norm has one."""
    return [model.hidden] * (2 if model.norm == "layer" else 1)


def _attention(model: Transformer) -> list[int]:
    """Elements of the norm before it and of each matrix, with its bias."""
    h, q, kv = model.hidden, model.query_width, model.kv_width
    elements = _norm(model)
    for width in (q, kv, kv):
        elements += [h * width] + ([width] if model.bias or model.qkv_bias else [])
    if model.qk_norm:
        elements += [model.head_dim] * 2
    return elements + [q * h] + ([h] if model.bias else [])


def _mlp(model: Transformer) -> list[int]:
    """Elements of the norm before it, of the router, and of each matrix of each expert, with its bias."""
    h, f = model.hidden, model.ffn
    one = []
    for _ in range(2 if model.gated else 1):
        one += [h * f] + ([f] if model.bias else [])
    one += [f * h] + ([h] if model.bias else [])
    router = [h * model.experts] if model.experts else []
    return _norm(model) + router + one * max(1, model.experts)
