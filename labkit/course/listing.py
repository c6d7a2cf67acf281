"""Show labkit's own code in a notebook, so that a formula is never typed a second time.

What refuses bad input is left out: it is most of the lines of a short function, and none of the idea.
"""

import ast
import inspect
import textwrap
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
    """The code of ``function`` as it runs; without docstring and refusals of bad input when ``body_only``."""
    text = inspect.getsource(function).rstrip()
    if not body_only:
        return Source(text)
    body = ast.parse(textwrap.dedent(text)).body[0].body
    left_out = [node for node in body if is_refusal(node)]
    if inspect.getdoc(function):
        left_out.append(body[0])
    lines = {line for node in left_out for line in range(node.lineno, node.end_lineno + 1)}
    return Source("\n".join(line for at, line in enumerate(text.split("\n"), start=1) if at not in lines))


def is_refusal(node: ast.stmt) -> bool:
    """Whether a statement does nothing but refuse bad input."""
    return isinstance(node, ast.If) and not node.orelse and all(isinstance(s, ast.Raise) for s in node.body)
