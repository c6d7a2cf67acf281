"""Transformer: a decoder's shape, its exact parameter counts by part, and its FLOPs by matrix product.

A multiply-add counts as two operations. Counts are those of the weights that a checkpoint holds, without any
padding of the vocabulary (that belongs to a plan, not to a model).
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec.checks import LARGEST, amount, label, one_of, whole
from labkit.units import plain

NORMS = ("layer", "rms")
RECOMPUTE = ("none", "selective", "full")
DEEPEST = 100_000  # layers; the lists that a plan gives of them stay short
_AT_LEAST_ONE = ("layers", "hidden", "heads", "vocabulary", "sequence")
_MAY_BE_LEFT_OUT = ("kv_heads", "head_dim", "ffn", "experts", "top_k", "learned_positions")
_YES_OR_NO = ("gated", "tied", "bias", "qkv_bias", "embedding_norm", "qk_norm", "dropout")


@dataclass(frozen=True, slots=True)
class Transformer:
    """A decoder-only Transformer. What is left out takes the usual value, as in GPT-2.

    ``kv_heads`` below ``heads`` is grouped-query attention; ``head_dim`` is hidden / heads unless given;
    ``ffn`` is the width of the MLP (4 x hidden), of one expert where there are ``experts``, of which each
    token visits ``top_k``. A ``gated`` MLP has three matrices (SwiGLU), a plain one two. ``tied``: the output
    head is the embedding. ``learned_positions``: rows of a position embedding, 0 for rotary and ALiBi.
    ``norm`` is ``layer`` (weight and bias) or ``rms`` (weight). ``bias``: on the attention matrices and the
    MLP; ``qkv_bias``: on query, key and value alone; ``qk_norm``: an RMS norm of each head's query and key
    (Qwen3); ``embedding_norm``: one more norm after the embedding (BLOOM). ``dropout``: trained with dropout,
    whose masks are kept. ``sequence``: the usual training length.

    Refused: numbers that are not whole or below 1, heads that kv heads do not divide, and a ``top_k`` that
    does not fit the experts.

    >>> Transformer("gpt2", layers=12, hidden=768, heads=12, vocabulary=50257, sequence=1024,
    ...             learned_positions=1024).parameters
    124439808
    """

    name: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0
    gated: bool = False
    tied: bool = True
    experts: int = 0
    top_k: int = 0
    norm: str = "layer"
    bias: bool = True
    qkv_bias: bool = False
    learned_positions: int = 0
    embedding_norm: bool = False
    qk_norm: bool = False
    dropout: bool = True

    def __post_init__(self):
        label(self.name, "the name of a model")
        for names, least in ((_AT_LEAST_ONE, 1), (_MAY_BE_LEFT_OUT, 0)):
            for name in names:
                most = DEEPEST if name == "layers" else LARGEST
                self._set(name, whole(getattr(self, name), f"{self.name}: {name}", least, most))
        for name in _YES_OR_NO:
            given = one_of((False, True), getattr(self, name), f"{self.name}: {name}", arrays=False)
            self._set(name, given.item())
        self._set("norm", one_of(NORMS, self.norm, f"{self.name}: norm", arrays=False).item())
        self._set("kv_heads", self.kv_heads or self.heads)
        self._set("ffn", self.ffn or 4 * self.hidden)
        if not self.head_dim and self.hidden % self.heads:
            raise InputRefused(
                f"{self.name}: hidden {self.hidden} is no multiple of {self.heads} heads; give head_dim"
            )
        self._set("head_dim", self.head_dim or self.hidden // self.heads)
        if self.heads % self.kv_heads:
            raise InputRefused(
                f"{self.name}: {self.heads} heads cannot share {self.kv_heads} kv heads evenly; "
                "kv_heads must divide heads"
            )
        if self.experts and not 1 <= self.top_k <= self.experts:
            raise InputRefused(
                f"{self.name}: a token cannot visit {self.top_k} of {self.experts} experts; "
                f"use top_k from 1 to {self.experts}"
            )
        if self.top_k and not self.experts:
            raise InputRefused(f"{self.name}: top_k is {self.top_k} without experts; leave it out")

    def _set(self, name: str, value) -> None:
        object.__setattr__(self, name, value)

    @property
    def query_width(self) -> int:
        """Columns of the query: heads x head_dim, which is ``hidden`` in most models."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of the key, and of the value: kv heads x head_dim."""
        return self.kv_heads * self.head_dim

    @property
    def _norm(self) -> int:
        return self.hidden * (2 if self.norm == "layer" else 1)

    def layer_parts(self) -> dict[str, int]:
        """Parameters of one layer by part: attention, mlp (all experts), router, norms."""
        h, q, kv, f = self.hidden, self.query_width, self.kv_width, self.ffn
        attention = h * (q + 2 * kv) + q * h
        if self.bias:
            attention += q + 2 * kv + h
        elif self.qkv_bias:
            attention += q + 2 * kv
        if self.qk_norm:
            attention += 2 * self.head_dim
        mlp = (3 if self.gated else 2) * h * f
        if self.bias:
            mlp += (2 if self.gated else 1) * f + h
        return {
            "attention": attention,
            "mlp": mlp * max(1, self.experts),
            "router": h * self.experts,
            "norms": 2 * self._norm,
        }

    def parts(self) -> dict[str, int]:
        """Parameters of the whole model by part; their sum is ``parameters``.

        ``head`` is 0 where it is tied to the embedding.
        """
        per_layer = self.layer_parts()
        return {
            "embedding": self.vocabulary * self.hidden,
            "positions": self.learned_positions * self.hidden,
            **{part: self.layers * count for part, count in per_layer.items()},
            "other norms": self._norm * (2 if self.embedding_norm else 1),
            "head": 0 if self.tied else self.vocabulary * self.hidden,
        }

    @property
    def parameters(self) -> int:
        """All parameters, exactly."""
        return sum(self.parts().values())

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer, all experts counted."""
        return sum(self.layer_parts().values())

    @property
    def active_parameters(self) -> int:
        """Parameters that one token visits: with experts, ``top_k`` of them."""
        if not self.experts:
            return self.parameters
        idle = self.layer_parts()["mlp"] * (self.experts - self.top_k) // self.experts
        return self.parameters - self.layers * idle

    @property
    def head_in_layers(self) -> float:
        """The output head's forward FLOPs in units of one layer's matrix products with weights.

        V/(12 h) for a plain dense layer (claim 3.3-h).
        """
        flops = self.forward_flops()
        with_weights = sum(flops[name] for name in ("query key value", "projection", "mlp"))
        return flops["head"] * self.layers / with_weights

    def forward_flops(self, batch=1, sequence=None, causal=False) -> dict[str, float]:
        """Forward FLOPs of ``batch`` sequences by matrix product, all layers together.

        Keys: query key value, scores, context, projection, mlp, router, head. The attention matrix counts in
        full unless ``causal``, which counts the half below its diagonal, (s + 1)/2 of s columns: the way
        flash attention works and some frameworks report. Norms, softmax and activation function are left out.
        "Efficient Large-Scale Language Model Training on GPU Clusters" (2021), appendix.
        """
        s = amount(self.sequence if sequence is None else sequence, "sequence")
        tokens = amount(batch, "batch") * s
        h, q, kv = self.hidden, self.query_width, self.kv_width
        seen = np.where(one_of((False, True), causal, "causal"), (s + 1) / 2, s)
        visited = self.top_k if self.experts else 1
        per_token = {
            "query key value": 2 * h * (q + 2 * kv),
            "scores": 2 * seen * q,
            "context": 2 * seen * q,
            "projection": 2 * q * h,
            "mlp": 2 * (3 if self.gated else 2) * h * self.ffn * visited,
            "router": 2 * h * self.experts,
        }
        flops = {name: plain(self.layers * tokens * count) for name, count in per_token.items()}
        return {**flops, "head": plain(tokens * 2 * h * self.vocabulary)}

    def model_flops(self, batch=1, sequence=None, causal=False):
        """FLOPs of forward and backward: 3 x forward. What MFU counts, whatever was recomputed.

        >>> gpt3 = Transformer("gpt3", 96, 12288, 96, 51200, 2048)
        >>> b, s, l, h, V = 1536, 2048, 96, 12288, 51200
        >>> paper = 72 * b * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h))
        >>> round(gpt3.model_flops(1536) / paper, 12)
        1.0
        """
        return plain(3 * sum(map(np.asarray, self.forward_flops(batch, sequence, causal).values())))

    def hardware_flops(self, batch=1, sequence=None, recompute="none", causal=False):
        """FLOPs that the GPU really does: ``model_flops`` and what is computed again before the backward.

        ``full`` repeats the forward of the layers (not of the head), ``selective`` that of scores and context
        ("Reducing Activation Recomputation in Large Transformer Models", 2022, section 5; the HFU printed
        there for selective counts three times as much as is repeated, as if its backward ran twice too).
        """
        mode = one_of(RECOMPUTE, recompute, "recompute")
        forward = self.forward_flops(batch, sequence, causal)
        attention = np.where(mode != "none", 1.0, 0.0)
        others = np.where(mode == "full", 1.0, 0.0)
        repeated = sum(
            np.asarray(forward[name]) * (attention if name in ("scores", "context") else others)
            for name in forward
            if name != "head"
        )
        return plain(np.asarray(self.model_flops(batch, sequence, causal)) + repeated)

    def utilisation(self, step_seconds, batch, gpus, peak, recompute=None, causal=False):
        """MFU of a step of ``batch`` sequences on ``gpus`` GPUs, or HFU where ``recompute`` is given.

        ``peak``: dense FLOP/s of one GPU at the precision used; the vendor's sparse figure is twice that and
        halves the answer. "PaLM" (2022), appendix B.
        """
        seconds, count = amount(step_seconds, "step_seconds"), amount(gpus, "gpus")
        done = (
            self.model_flops(batch, causal=causal)
            if recompute is None
            else self.hardware_flops(batch, recompute=recompute, causal=causal)
        )
        return plain(np.asarray(done) / (seconds * count * amount(peak, "peak")))
