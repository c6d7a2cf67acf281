"""Show labkit's own code in a notebook, so that a formula is never typed a second time."""

import inspect
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """The code of one function, as text and as highlighted Markdown."""

    text: str

    def __repr__(self):
        return self.text

    def _repr_markdown_(self):
        return f"```python\n{self.text}\n```"


def source(function, body_only: bool = True) -> Source:
    """The code of ``function`` as it runs; without its docstring when ``body_only``."""
    text = inspect.getsource(function).rstrip()
    if body_only and function.__doc__:
        for quotes in ('"""', "'''"):
            start = text.find(quotes)
            if start >= 0:
                end = text.index(quotes, start + 3) + 3
                text = text[: text.rindex("\n", 0, start)] + text[end:]
                break
    return Source(text)
