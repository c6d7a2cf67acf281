"""Recompute: bytes of activations kept with a checkpoint every k layers, and the forward that it costs.

Layers are alike. Two sizes decide: ``boundary``, the bytes of one layer's input, and ``layer``, the bytes
that a layer keeps without recompute, its input among them. Chen et al. (2016), "Training Deep Nets with
Sublinear Memory Cost".
"""

from dataclasses import dataclass

import numpy as np

from labkit.errors import InputRefused
from labkit.spec import Transformer
from labkit.spec.checks import amount, noun, together, whole
from labkit.spec.transformer import DEEPEST
from labkit.units import plain


def checkpoints(layers, every):
    """How many inputs are kept of each micro-batch: ceil(layers / every). Refused: as below.

    >>> checkpoints(32, np.array([1, 4, 5])).tolist()
    [32.0, 8.0, 7.0]
    """
    layers, every = _counts(layers, every)
    return plain(np.ceil(layers / every))


def checkpointed_bytes(layers, every, boundary, layer, in_flight=1):
    """Peak bytes of activations with a checkpoint at the input of every ``every``-th of ``layers`` layers.

    ``in_flight``: micro-batches whose forward is done and backward is not, in a pipeline stage. Kept are
    ceil(layers / every) inputs of each micro-batch; the backward adds **one** group of layers of one
    micro-batch, computed again, whose first input is kept anyhow. All may be arrays; no layers keep nothing.
    A part of a layer, as a mean over uneven stages has, keeps its input whole and that part of its bytes.
    Refused: negative numbers, and ``every`` or ``in_flight`` not above 0.

    >>> checkpointed_bytes(32, np.array([1, 4, 8, 32]), 2.0, 34.0).tolist()
    [96.0, 150.0, 278.0, 1088.0]
    >>> checkpointed_bytes(8, 1, 2.0, 34.0, in_flight=4)
    96.0
    """
    layers, every = _counts(layers, every, boundary=boundary, layer=layer, in_flight=in_flight)
    boundary, layer = _sizes(boundary, layer, zero=True)
    kept = amount(in_flight, "micro-batches in flight") * np.ceil(layers / every) * boundary
    return plain(kept + recomputed_bytes(layers, every, boundary, layer))


def recomputed_bytes(layers, every, boundary, layer):
    """What the backward of a group of layers has computed again, beside its input. Refused: as above.

    >>> recomputed_bytes(32, np.array([1, 4, 64]), 2.0, 34.0).tolist()
    [32.0, 134.0, 1086.0]
    """
    layers, every = _counts(layers, every, boundary=boundary, layer=layer)
    boundary, layer = _sizes(boundary, layer, zero=True)
    again = np.minimum(every, layers) * layer - np.where(layers > 0, boundary, 0.0)
    return plain(np.maximum(again, 0.0))


def best_every(layers, boundary, layer, in_flight=1):
    """Layers per checkpoint, 1 to ``layers``, that keep the fewest bytes; of equals the smallest.

    Found by trying all. All may be arrays. Refused: what ``checkpointed_bytes`` refuses, and no layers.

    >>> best_every(32, 2.0, 34.0), best_every(36, 34.0, 34.0), best_every(128, 2.0, 34.0)
    (1, 6, 3)
    """
    _together(layers=layers, boundary=boundary, layer=layer, in_flight=in_flight)
    layers = np.asarray(whole(layers, "the number of layers", most=DEEPEST, arrays=True))[..., None]
    boundary, layer = (size[..., None] for size in _sizes(boundary, layer))
    in_flight = amount(in_flight, "micro-batches in flight")[..., None]
    every = np.arange(1, layers.max() + 1)
    held = checkpointed_bytes(layers, every, boundary, layer, in_flight)
    # A group cannot be longer than the stack; longer ones hold as much as one of all layers.
    return plain(1 + np.argmin(held, axis=-1))


def closed_form_every(layers, boundary, layer, in_flight=1):
    """Layers per checkpoint where in_flight x layers/k x boundary + k x layer is least, k any real number.

    sqrt(in_flight x layers x boundary/layer). The textbook's sqrt(layers) is the case of one micro-batch and
    a boundary as large as a layer. All may be arrays. Refused: numbers not above 0.

    >>> closed_form_every(36, 34.0, 34.0), closed_form_every(32, 2.0, 34.0)
    (6.0, 1.3719886811400708)
    """
    _together(layers=layers, boundary=boundary, layer=layer, in_flight=in_flight)
    layers = amount(layers, "the number of layers")
    boundary, layer = _sizes(boundary, layer)
    return plain(np.sqrt(amount(in_flight, "micro-batches in flight") * layers * boundary / layer))


def _together(**given):
    together("checkpointed layers", **given)


def _counts(layers, every, **sizes):
    _together(layers=layers, every=every, **sizes)
    return amount(layers, "the number of layers", zero=True), amount(every, "layers per checkpoint")


def _sizes(boundary, layer, zero=False):
    return (
        amount(boundary, "bytes of a layer's input", zero=zero),
        amount(layer, "bytes that a layer keeps", zero=zero),
    )


def extra_compute(model: Transformer, recompute, sequence=None):
    """FLOPs that are done twice, as a share of forward and backward without: 0.32 for ``full`` of a 13B.

    Below 1/3 by the output head, which is not repeated. How many layers a checkpoint covers changes nothing:
    each layer runs forward once more. Refused: what ``Transformer.hardware_flops`` refuses.
    """
    noun(model, Transformer, "the model")
    together("extra compute", recompute=recompute, sequence=sequence)
    done = np.asarray(model.hardware_flops(sequence=sequence, recompute=recompute))
    return plain(done / model.model_flops(sequence=sequence) - 1)


def break_even_share(extra, growth):
    """Share of the step, before, beyond which recompute pays by a ``growth`` times larger micro-batch.

    Of the same samples the step before is 1 - s compute and s exposed cost per micro-batch (gathers of stage
    3, latencies, launches); after, it is (1 - s)(1 + extra) + s / growth. That is less where s > extra /
    (1 + extra - 1/growth); without growth s = 1 breaks even, so it never pays. Cost per sample, such as the
    bytes of tensor parallel, stands on neither side: s is then a share of the other two. Both may be arrays.
    Refused: ``extra`` not above 0 and ``growth`` below 1.

    >>> [round(break_even_share(1 / 3, growth), 3) for growth in (1, 2, 4)]
    [1.0, 0.4, 0.308]
    """
    extra, growth = amount(extra, "the extra compute"), amount(growth, "the growth of the micro-batch")
    together("the break-even", extra=extra, growth=growth)
    if np.any(growth < 1):
        raise InputRefused("recompute makes room for a larger micro-batch; give a growth of at least 1")
    return plain(extra / (1 + extra - 1 / growth))


@dataclass(frozen=True, slots=True)
class Recursion:
    """What recursive recompute took: layers run forward **again**, and inputs of layers held at once."""

    layers: int
    forwards: int
    inputs: int

    @property
    def extra_forwards(self) -> float:
        """The extra forwards in units of one forward pass of all layers."""
        return self.forwards / self.layers

    def held(self, boundary, layer):
        """Peak bytes: the inputs, and one layer's working set, its input among the inputs already."""
        _together(boundary=boundary, layer=layer)
        boundary, layer = _sizes(boundary, layer)
        return plain((self.inputs - 1) * boundary + layer)


def recursive_recompute(layers: int, parts: int = 2) -> Recursion:
    """Checkpoints inside checkpoints, counted by going through them.

    A run of layers, its input held, is cut into ``parts``: a forward to the last part keeps the parts'
    inputs, then each part is treated alike, the last one first; a single layer is computed again and used.
    The first of all these forwards is the training's own. With 2 parts about log2(L) inputs are held and
    (1 + log2(L)) / 2 more forwards done; with as many parts as layers it is one checkpoint per layer. Chen et
    al. (2016), the recursion g(n) = k + g(n / (k + 1)). Refused: layers not whole or below 1, parts below 2.

    >>> recursive_recompute(32).extra_forwards, recursive_recompute(32).held(2.0, 34.0)
    (3.0, 44.0)
    >>> recursive_recompute(32, 32).extra_forwards, recursive_recompute(32, 32).held(2.0, 34.0)
    (1.0, 96.0)
    """
    layers = whole(layers, "the number of layers", most=DEEPEST)
    parts = whole(parts, "parts of a run of layers", 2)
    forwards, inputs = _backward(layers, parts, 1)
    return Recursion(layers, forwards - sum(_pieces(layers, parts)[:-1]), inputs)


def _pieces(layers: int, parts: int) -> list[int]:
    """The lengths of the parts of a run of layers, as equal as they can be."""
    length, longer = divmod(layers, min(parts, layers))
    return [length + (place < longer) for place in range(min(parts, layers))]


def _backward(layers: int, parts: int, held: int) -> tuple[int, int]:
    """Layers run forward for the backward of a run of them, and the most inputs held; now ``held`` are."""
    if layers == 1:
        return 1, held
    pieces = _pieces(layers, parts)
    below = [_backward(piece, parts, held + place) for place, piece in enumerate(pieces)]
    return sum(pieces[:-1]) + sum(done for done, _ in below), max(most for _, most in below)
