"""Zero-bubble schedules by hand: the weight gradient waits, the input gradient is what the next stage needs.

"Zero Bubble Pipeline Parallelism" (Qi et al. 2024), section 2. Both hold equally many micro-batches on all
ranks: what a later rank holds less of as activations, it holds as weight gradients put off.
"""

from labkit.strategies.pipeline.order import Order, check_counts
from labkit.strategies.timeline import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT


def zb_h1(p: int, m: int) -> Order:
    """ZB-H1: forwards and input gradients as in 1F1B, weight gradients put off by i micro-batches on rank i.

    At most p micro-batches are held, as 1F1B holds on its first rank (section 2.1).

    >>> " ".join(f"{kind[0]}{k}" for kind, k, _ in zb_h1(2, 3)[1])
    'f0 i0 f1 i1 w0 f2 i2 w1 w2'
    """
    p, m, _ = check_counts(p, m)
    return [_put_off(i, m, ahead=p - 1 - i, put_off=i) for i in range(p)]


def zb_h2(p: int, m: int) -> Order:
    """ZB-H2: twice the forwards ahead, weight gradients put off by 2 i micro-batches on rank i.

    At most 2 p - 1 micro-batches are held. With forward = input gradient = weight gradient no rank waits
    between its first and its last operation (section 2.2); ranks still begin one after the other, so the step
    is that short only where the optimizer does not wait for all ranks (section 4).

    >>> " ".join(f"{kind[0]}{k}" for kind, k, _ in zb_h2(2, 4)[0])
    'f0 f1 f2 i0 w0 f3 i1 w1 i2 w2 i3 w3'
    """
    p, m, _ = check_counts(p, m)
    return [_put_off(i, m, ahead=2 * (p - 1 - i), put_off=2 * i) for i in range(p)]


def _put_off(i: int, m: int, ahead: int, put_off: int) -> list:
    """One rank: ``ahead`` forwards, then a forward, an input gradient and a weight gradient in turn."""
    ahead = min(ahead, m)
    operations = [(FORWARD, k, i) for k in range(ahead)]
    for k in range(m):
        if ahead + k < m:
            operations.append((FORWARD, ahead + k, i))
        operations.append((INPUT_GRADIENT, k, i))
        if k >= put_off:
            operations.append((WEIGHT_GRADIENT, k - put_off, i))
    return operations + [(WEIGHT_GRADIENT, k, i) for k in range(max(0, m - put_off), m)]
