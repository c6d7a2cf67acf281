"""Names that files have or hold, as a sentence can show them: on one line, without control characters."""

from pathlib import Path

_NAME, _PATH = 100, 300  # characters


def printable(text: str, most: int = _NAME) -> str:
    """A text on one line of at most so many characters.

    >>> printable("mesh_tp"), printable("two\\nlines")
    ('mesh_tp', 'two?lines')
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])


def printable_path(path: Path) -> str:
    """A path on one line; of a very long one its end, which has the file's name.

    >>> printable_path(Path("runs/rank\\x1b[31m0.json"))
    'runs/rank?[31m0.json'
    """
    text = str(path)
    return printable(text if len(text) <= _PATH else "..." + text[-_PATH:], _PATH + 3)
