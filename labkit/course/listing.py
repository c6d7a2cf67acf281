"""Show labkit's own code in a notebook, so that a formula is never typed a second time.

What checks the input is left out: it is most of the lines of a short function, and none of the idea.
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
    """The code of ``function`` as it runs; without docstring and checks of its input when ``body_only``."""
    text = inspect.getsource(function).rstrip()
    if not body_only:
        return Source(text)
    definition = ast.parse(textwrap.dedent(text)).body[0]
    left_out, body = [], definition.body
    if inspect.getdoc(function):
        left_out, body = body[:1], body[1:]
    named = {argument.arg for argument in ast.walk(definition.args) if isinstance(argument, ast.arg)}
    leading = True
    for node in body:
        leading = leading and (is_refusal(node) or is_check(node, named))
        if leading or is_refusal(node):
            left_out.append(node)
    lines = {line for node in left_out for line in range(node.lineno, node.end_lineno + 1)}
    return Source("\n".join(line for at, line in enumerate(text.split("\n"), start=1) if at not in lines))


def is_refusal(node: ast.stmt) -> bool:
    """Whether a statement does nothing but refuse bad input, with the words for it."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    *words, last = node.body
    return isinstance(last, ast.Raise) and all(isinstance(s, ast.Assign | ast.Raise) for s in words)


def is_check(node: ast.stmt, named: set[str]) -> bool:
    """Whether a statement only passes arguments through a function: ``n = check(n)`` or ``check(n)``."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return any(isinstance(argument, ast.Name) and argument.id in named for argument in node.value.args)
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    targets, values = (_elements(part) for part in (node.targets[0], node.value))
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    calls = [value.elt if isinstance(value, ast.GeneratorExp) else value for value in values]
    if len(names) < len(targets) or not names <= named or not all(isinstance(c, ast.Call) for c in calls):
        return False
    read = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    return names <= read


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]
