"""What one memory estimate counts and another leaves out: conventions, as settings with their sources."""

from dataclasses import dataclass

from labkit.planner.activations import check_imbalance
from labkit.planner.states import MIXED, Recipe
from labkit.spec.checks import amount, noun, one_of
from labkit.units import MiB


@dataclass(frozen=True, slots=True)
class Conventions:
    """How bytes are counted where frameworks and estimators differ.

    ``recipe``: bytes per parameter of the model states; activations have 16 bits in any. ``logit_bytes``:
    per logit at the loss, 6 for 16-bit logits and an fp32 copy that turns into softmax and gradient
    (Megatron-LM, vocabulary-parallel cross-entropy), 2 where a fused loss turns the logits themselves into
    gradients (TransformerEngine); Korthikanti et al. (2022), section 4.3, count the copy alone, 4.
    ``packed_qkv``: query, key and value are pieces of one product, which outlives the rotated query and key.
    ``copied_gradients``: they are copied into buckets to be reduced, as PyTorch DDP does unless told
    ``gradient_as_bucket_view``; otherwise they live there. ``imbalance``: experts' tokens on the fullest rank
    over the mean. ``workspace``: what matrix products work in, by default two of 32 MiB (PyTorch's cuBLAS
    handles). ``communicator``: bytes that the communication library takes for each group of ranks in use,
    outside of the framework's allocator; 688 MB were measured for groups of more than two A100, 544 MB for
    pairs (NCCL issue 964). ``slack``: share of the framework's bytes that its allocator holds beyond them, in
    pieces that do not fit; median of reserved over allocated in 13 different published runs on 8 B200
    (SimuMax). Refused: negative numbers, and an imbalance below 1.
    """

    recipe: Recipe = MIXED
    logit_bytes: float = 6.0
    packed_qkv: bool = False
    copied_gradients: bool = False
    imbalance: float = 1.0
    workspace: float = 64 * MiB
    communicator: float = 688e6
    slack: float = 0.05

    def __post_init__(self):
        noun(self.recipe, Recipe, "the recipe of the conventions")
        for name in ("packed_qkv", "copied_gradients"):
            one_of((False, True), getattr(self, name), f"{name} of the conventions", arrays=False)
        check_imbalance(self.imbalance)
        for name in ("logit_bytes", "workspace", "communicator", "slack"):
            amount(getattr(self, name), f"{name} of the conventions", zero=True, arrays=False)


USUAL = Conventions()
