"""Settings that make no sense, each answered by one calm sentence in the figure's place."""

from labkit.errors import InputRefused


def several_ranks(n: int, most: int | None = None) -> None:
    """Refuses fewer than two ranks, a part of a rank, and more than ``most``, the room of a picture.

    >>> several_ranks(1)
    Traceback (most recent call last):
    ...
    labkit.errors.InputRefused: 1 rank has nobody to talk to: ... Choose N of at least 2.
    """
    if n != int(n):
        raise InputRefused(f"{n} is no number of ranks. Choose a whole N of at least 2.")
    if n < 2:
        whom = "1 rank has nobody" if n == 1 else f"{n} ranks have nobody"
        raise InputRefused(f"{whom} to talk to: a collective costs nothing. Choose N of at least 2.")
    if most is not None and n > most:
        raise InputRefused(f"{n:,} ranks do not fit this picture. Choose N up to {most}.")


def some_bytes(size: float) -> None:
    """Refuses a message without bytes."""
    if not size > 0:
        raise InputRefused(f"A message of {size} bytes carries nothing. Choose a size above 0.")
