"""Settings that make no sense, each answered by one calm sentence in the figure's place."""

from labkit.errors import InputRefused


def several_ranks(n: int) -> None:
    """Refuses fewer than two ranks.

    >>> several_ranks(1)
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: 1 rank has nobody to talk to: ... Choose N of at least 2.
    """
    if n < 2:
        raise InputRefused(
            f"{n} rank{'' if n == 1 else 's'} has nobody to talk to: a collective costs nothing. "
            "Choose N of at least 2."
        )


def some_bytes(size: float) -> None:
    """Refuses a message without bytes."""
    if not size > 0:
        raise InputRefused(f"A message of {size} bytes carries nothing. Choose a size above 0.")
