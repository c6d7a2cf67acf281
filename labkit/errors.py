"""The one error a reader or a formula raises about its input."""


class InputRefused(ValueError):
    """Input that cannot be used, said in one sentence: what is wrong, where, and what to do.

    >>> raise InputRefused("48 ranks do not fit: the cluster has 32; lower n or add nodes")
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: 48 ranks do not fit: the cluster has 32; lower n or add nodes
    """
