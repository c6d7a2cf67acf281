"""The tensors of a model as a checkpoint holds them: how long each is along the axis that a plan cuts."""

from dataclasses import dataclass

from labkit.spec import Plan, Transformer
from labkit.spec.rules import check_nouns

WHOLE, TENSOR, KV, VOCABULARY, EXPERT = "whole", "tp", "kv", "vocabulary", "experts"
FIRST, LAYER, LAST = "first stage", "layer", "last stage"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, or several of equal cut taken together, with the axis that is cut laid first.

    ``length``: how many of what is never cut inside (heads, columns of the MLP, rows of the vocabulary,
    experts), each with ``width`` parameters; ``cut``: by what it is cut; ``place``: in every layer, or on the
    stage of the pipeline that has it; ``unit``: what one of the length is, in words.
    """

    name: str
    length: int
    width: int
    cut: str
    place: str
    unit: str = ""

    @property
    def parameters(self) -> int:
        """Parameters in one layer, or on its stage."""
        return self.length * self.width


def tensors(model: Transformer) -> list[Tensor]:
    """Every tensor of a model, by part; their parameters, those of a layer times the layers, are the model's.

    Tensor parallel cuts what goes into attention and the MLP by heads and columns, what comes out by the same
    heads and columns ("Megatron-LM", 2019, section 3); a gated MLP's two matrices are cut each for itself.
    The last stage of a pipeline has a copy of a tied embedding, which is not listed.

    >>> [(t.name, t.length, t.unit) for t in tensors(Transformer("gpt", 2, 64, 4, 1000, 128))][:3]
    [('embedding', 1000, 'row'), ('query', 4, 'head'), ('key and value', 4, 'kv head')]
    """
    check_nouns(model=model)
    h, d, bias = model.hidden, model.head_dim, int(model.bias)
    qkv_bias = int(model.bias or model.qkv_bias)
    into = 2 if model.gated else 1
    parts = model.layer_parts()
    norms = parts["norms"] + h * bias + (2 * d if model.qk_norm else 0)
    rows = [
        Tensor("embedding", model.vocabulary, h, VOCABULARY, FIRST, "row"),
        Tensor("positions", 1, model.learned_positions * h, WHOLE, FIRST),
        Tensor("norm of the embedding", 1, _norm(model) * model.embedding_norm, WHOLE, FIRST),
        Tensor("query", model.heads, d * (h + qkv_bias), TENSOR, LAYER, "head"),
        Tensor("key and value", model.kv_heads, 2 * d * (h + qkv_bias), KV, LAYER, "kv head"),
        Tensor("projection", model.heads, d * h, TENSOR, LAYER, "head"),
    ]
    mlp = into * (h + bias) + h
    if model.experts:
        rows.append(Tensor("experts", model.experts, model.ffn * mlp + h * bias, EXPERT, LAYER, "expert"))
        rows.append(Tensor("router", 1, parts["router"], WHOLE, LAYER))
    else:
        rows.append(Tensor("MLP", model.ffn, mlp, TENSOR, LAYER, "column"))
        norms += h * bias  # the bias that is added after the ranks' sum
    rows += [
        Tensor("norms and biases", 1, norms, WHOLE, LAYER),
        Tensor("last norm", 1, _norm(model), WHOLE, LAST),
    ]
    if not model.tied:
        rows.append(Tensor("head", model.vocabulary, h, VOCABULARY, LAST, "row"))
    return [tensor for tensor in rows if tensor.width]


def _norm(model: Transformer) -> int:
    return model.hidden * (2 if model.norm == "layer" else 1)


def degree(tensor: Tensor, plan: Plan) -> int:
    """Into how many pieces a plan cuts the tensor: 1 where every rank of a stage holds all of it."""
    if tensor.cut == EXPERT:
        return plan.ep
    return 1 if tensor.cut == WHOLE else plan.tp


def padded_length(tensor: Tensor, plan: Plan) -> int:
    """The length as the plan holds it: rows of the vocabulary with its padding.

    >>> gpt = Transformer("gpt", 2, 64, 4, 1000, 128)
    >>> padded_length(tensors(gpt)[0], Plan(tp=4))
    1024
    """
    return plan.padded_vocabulary(tensor.length) if tensor.cut == VOCABULARY else tensor.length
