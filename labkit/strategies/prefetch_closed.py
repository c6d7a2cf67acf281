"""What stage 3 exposes in one micro-batch, in closed form over equal layers: for searches over many plans.

``prefetch.prefetched`` follows the layers one by one; tests hold the two together.
"""

import numpy as np

from labkit.spec.checks import amount, together, whole
from labkit.units import plain


def exposed_prefetch(layers, forward, backward, gather, scatter, depth=1):
    """Seconds of one micro-batch in which a rank waits for gathers and scatters; all may be arrays.

    Arguments as in ``prefetched``, each of **one** layer. From one layer ahead on (``depth`` >= 1) the first
    gather and the last scatter show; between layers the forward is as slow as the slower of computing and
    gathering, the backward as the slower of computing and the two collectives together. Without looking
    ahead every gather shows, and a scatter as far as it outlasts the next layer's backward. A prefetch deeper
    than one layer hides no more of equal layers. ``layers`` may have a fraction (layers / pp).

    >>> exposed_prefetch(3, forward=1, backward=2, gather=0.5, scatter=0.25)
    0.75
    >>> exposed_prefetch(3, forward=1, backward=2, gather=0.5, scatter=0.25, depth=0)
    3.25
    """
    given = {"forward": forward, "backward": backward, "gather": gather, "scatter": scatter}
    together("prefetched layers", layers=layers, depth=depth, **given)
    layers = amount(layers, "the number of layers", zero=True)
    depth = np.asarray(whole(depth, "the prefetch depth", 0, arrays=True))
    forward, backward, gather, scatter = (
        amount(value, f"the {name} of a layer", zero=True) for name, value in given.items()
    )
    between = np.maximum(layers - 1, 0.0)
    ahead = gather + between * np.maximum(gather - forward, 0.0)
    # The last layer's backward finds its gather done where the forward was the slower; two layers at the end
    # have none beside them any more.
    turned = np.maximum(gather - forward, 0.0)
    beside = np.maximum(between - 1, 0.0) * np.maximum(gather + scatter - backward, 0.0)
    ahead = ahead + turned + beside + scatter
    # Where the wire never rests but for the last backward, it decides.
    wire = 2 * layers * gather + layers * scatter + np.maximum(backward - scatter, 0.0)
    ahead = np.maximum(ahead, wire - layers * (forward + backward))
    behind = 2 * layers * gather + between * np.maximum(scatter - backward, 0.0) + scatter
    return plain(np.where(depth > 0, ahead, behind))
