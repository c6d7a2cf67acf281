"""The commands of a shell script as far as they can be known without running it.

Nothing is executed. Words are split as a shell does; ``$NAME`` is what the script itself assigns to NAME, and
whole-number arithmetic is worked out. What only a run can know (the environment, a command's output) stays
marked as unknown.
"""

import ast
import operator
import re
import shlex
from dataclasses import dataclass, field

from labkit.errors import InputRefused
from labkit.evidence.launchers.slurm import long_options, variables_of

MOST_TEXT = 2_000_000  # characters of a script; the longest launch scripts have some ten thousand
_MOST_VALUE = 200_000  # characters that a variable may grow to
_MOST_JOINED = 400  # lines of one quotation
_MOST_NUMBER = 10**12
_OPEN, _CLOSE = "\ue000", "\ue001"  # around the name of what is unknown
_UNKNOWN = re.compile(f"{_OPEN}(.*?){_CLOSE}", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_]\w*|[0-9@*#?!$-]))")
_BRACES = re.compile(r"(\w+|[@*])(?:\[[@*]\])?(?::?([-=])(.*))?", re.DOTALL)
_ARITHMETIC = re.compile(r"\$\(\(((?:[^()]|\([^()]*\))*)\)\)")
_COMMAND = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_BEFORE = {
    "export",
    "local",
    "declare",
    "readonly",
    "typeset",
    "then",
    "do",
    "else",
    "if",
    "elif",
    "-x",
    "-r",
}
_BREAKS = set(";|&<>\n")
_SUM = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass
class Script:
    """``commands``: the words of each; ``scheduler``: the options of ``#SBATCH`` lines; ``warnings``."""

    commands: list[list[str]] = field(default_factory=list)
    scheduler: list[str] = field(default_factory=list)
    variables: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def unknown_in(word: str) -> list[str]:
    """The names in a word whose value only a run can know, as the script spells them."""
    return [name if name.startswith("$") else f"${name}" for name in _UNKNOWN.findall(word)]


def is_unknown(word: str) -> bool:
    """Whether a word is nothing but what only a run can know, so that it may be several."""
    return bool(_UNKNOWN.search(word)) and not _UNKNOWN.sub("", word).strip()


def plain_word(word: str) -> str:
    """A word as the script spells it, what is unknown in it included."""
    return _UNKNOWN.sub(lambda found: f"${found[1].removeprefix('$')}", word)


def read_script(text: str) -> Script:
    """The commands of a script, or of one command line, with its own variables put in.

    Refused: a quotation that never ends, and a text or a value that is too long.

    >>> read_script('TP=4\\nGPUS=$((TP * 2))\\ntorchrun --nproc-per-node ${GPUS} train.py').commands
    [['torchrun', '--nproc-per-node', '8', 'train.py']]
    """
    if len(text) > MOST_TEXT:
        raise InputRefused(
            f"the script has {len(text):,} characters; give the part that starts the training, of at most "
            f"{MOST_TEXT:,}"
        )
    script, reader = Script(), None
    lines = _without_here_documents(text, script)
    script.scheduler = [word for line in lines if line.startswith("#SBATCH") for word in long_options(line)]
    script.variables |= {name: [value] for name, value in variables_of(script.scheduler).items()}
    reader = _Reader(script)
    reader.read(_words(re.sub(r"\\\n", " ", "\n".join(lines))))
    return script


def _without_here_documents(text: str, script: Script) -> list[str]:
    """The lines of the script itself, without the files that it writes."""
    kept, end = [], None
    for line in text.replace("\x00", "").split("\n"):
        if end is not None:
            end = None if line.strip() == end else end
            continue
        found = _HERE.search(line)
        if found and not line.lstrip().startswith("#"):
            end = found[2]
            script.warnings.append(f"a file that the script writes (<<{end}) is left out: read it by itself")
            line = line[: found.start()]
        kept.append(line)
    return kept


def _words(text: str) -> list[str]:
    """Words and breaks between commands; brackets, which open and close arrays, are words of their own."""
    sums: list[str] = []

    def keep(mark: str):
        def put(found):
            sums.append(next(part for part in found.groups() if part is not None))
            return f"${{{mark}{len(sums) - 1}}}"

        return put

    for _ in range(4):  # a few levels, each inside another
        text = _ARITHMETIC.sub(keep("="), text)
        text = _COMMAND.sub(keep("!"), text)
    words, pending, first = [], "", 0
    for number, line in enumerate(text.split("\n"), 1):
        first = first if pending else number
        pending = f"{pending}\n{line}" if pending else line
        split = shlex.shlex(pending, posix=True, punctuation_chars="();<>|&")
        split.whitespace_split = True
        try:
            words += [*split, "\n"]
        except ValueError:
            if number - first > _MOST_JOINED:
                break
            continue
        pending = ""
    if pending:
        raise InputRefused(f"the quotation that begins in line {first} of the script never ends; close it")
    back = re.compile(r"\$\{([=!])(\d+)\}")

    def spell(found):
        inner = back.sub(spell, sums[int(found[2])])
        return f"${{{found[1]}{inner.replace('{', '').replace('}', '')}}}"

    return [back.sub(spell, word) if "${" in word else word for word in words]


class _Reader:
    """Goes through the words once, as a shell would: assignments, then the commands that use them."""

    def __init__(self, script: Script):
        self.script = script

    def read(self, words: list[str]) -> None:
        command: list[str] = []
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if set(word) <= _BREAKS:
                if ">" in word and command[-1:] in (["1"], ["2"]):  # the stream that goes elsewhere
                    command.pop()
                if command:
                    self.script.commands.append(command)
                command = []
                continue
            found = None if command else _ASSIGNED.fullmatch(word)
            if found and not found[3] and words[at : at + 1] == ["("]:
                end = next((i for i in range(at, len(words)) if words[i] == ")"), len(words))
                inside = [one for one in words[at + 1 : end] if not set(one) <= _BREAKS]
                value = [part for one in inside for part in self._expand(one)]
                self._assign(found[1], value, bool(found[2]), " ".join(inside))
                at = end + 1
            elif found:
                value = "".join(self._expand(found[3], split=False))
                self._assign(found[1], [value], bool(found[2]), found[3])
            elif command or word not in _BEFORE:
                command += self._expand(word)
        if command:
            self.script.commands.append(command)

    def _assign(self, name: str, value: list[str], more: bool, written: str) -> None:
        variables = self.script.variables
        before = variables.get(name)
        if more and before is not None:
            value = [*before, *value] if len(before) > 1 or len(value) > 1 else [before[0] + value[0]]
        elif before not in (None, value) and not (
            name.startswith("SLURM_") or re.search(rf"\$\{{?{name}\b", written)  # it adds to itself
        ):
            said, now = (plain_word(" ".join(part))[:40] or "nothing" for part in (before, value))
            self.script.warnings.append(f"{name} is set more than once ({said}, then {now}): the last counts")
        if sum(map(len, value)) > _MOST_VALUE:
            raise InputRefused(
                f"the variable {name} grows beyond {_MOST_VALUE:,} characters; give a shorter script"
            )
        variables[name] = value

    def _expand(self, word: str, split: bool = True) -> list[str]:
        """The words that one word stands for."""
        alone = _REFERENCE.fullmatch(word)
        if alone and split:
            found = self._value(alone)
            words = found if len(found) != 1 else split_words(found[0])
            return words
        for _ in range(10):  # braces inside braces, the innermost first
            before, word = word, _REFERENCE.sub(lambda one: " ".join(self._value(one)), word)
            if len(word) > _MOST_VALUE:
                raise InputRefused(
                    f"a word of the script grows beyond {_MOST_VALUE:,} characters; give a shorter script"
                )
            if word == before:
                break
        return [word]

    def _value(self, found: re.Match) -> list[str]:
        inner = found[1] if found[1] is not None else found[2]
        if inner.startswith("="):
            return [self._sum(inner[1:])]
        if inner.startswith("!"):
            return [f"{_OPEN}$({' '.join(inner[1:].split()[:1])[:40]}...){_CLOSE}"]
        braces = _BRACES.fullmatch(inner)
        name = braces[1] if braces else inner
        known = self.script.variables.get(name)
        if braces and known not in (None, [""]):
            return known
        if braces and braces[2]:
            usual = self._expand(braces[3])
            if braces[2] == "=":
                self.script.variables[name] = usual
            return usual
        return [f"{_OPEN}{name}{_CLOSE}"] if known is None or not braces else known

    def _sum(self, text: str) -> str:
        """Whole-number arithmetic; unknown where it is anything else."""
        names = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda one: self._number(one[1]), text)
        try:
            return str(_evaluate(ast.parse(names.strip(), mode="eval").body, 0))
        except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
            return f"{_OPEN}$(({''.join(text.split())[:60]})){_CLOSE}"

    def _number(self, name: str) -> str:
        value = "".join(self.script.variables.get(name, [""]))
        return value if re.fullmatch(r"-?\d{1,13}", value) else "?"


def split_words(value: str) -> list[str]:
    """The words of a value that is used without quotation marks."""
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _evaluate(node: ast.expr, depth: int) -> int:
    """A sum of whole numbers of bounded size; ValueError or KeyError for anything else."""
    if depth > 20:
        raise ValueError
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) <= _MOST_NUMBER:
        return node.value
    if not isinstance(node, ast.BinOp):
        raise ValueError
    value = _SUM[type(node.op)](_evaluate(node.left, depth + 1), _evaluate(node.right, depth + 1))
    if abs(value) > _MOST_NUMBER:
        raise ValueError
    return value
