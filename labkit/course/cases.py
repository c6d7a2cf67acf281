"""Six cases "what happened here?": recorded evidence, possible answers, and the one that the readers find.

Nothing here knows the right letter: each answer stands for what ``read_hang`` or ``scaling_triage`` may
decide, and what they do decide on the files of the case picks it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from labkit.course import case_evidence
from labkit.errors import InputRefused
from labkit.spec.checks import whole


@dataclass(frozen=True, slots=True)
class Choice:
    """A possible answer in words, and what the reader must have decided for it to be the right one."""

    words: str
    decided: str


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """What a job left behind, and what may have happened; its repr has both."""

    number: int
    title: str
    evidence: str
    choices: tuple[Choice, ...]

    def __repr__(self):
        answers = [f"  {letter}  {one.words}" for letter, one in zip("ABCD", self.choices, strict=False)]
        return "\n".join([f"case {self.number}: {self.title}", "", self.evidence, "", *answers])


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """The answer that labkit's readers come to: its ``letter``, and the ``report`` they give.

    On a page it is folded, so that nobody reads it by accident.
    """

    letter: str
    words: str
    report: str

    def __repr__(self):
        return f"{self.letter}: {self.words}\n\n{self.report}"

    def _repr_html_(self):
        return (
            "<details><summary>Open the answer</summary>"
            f"<p><b>{self.letter}</b>: {escape(self.words)}</p><pre>{escape(self.report)}</pre></details>"
        )


@dataclass(frozen=True, slots=True)
class _Plot:
    """A case in the making: ``decide`` gives what the reader decides, and its report."""

    title: str
    evidence: Callable[[], str]
    decide: Callable[[], tuple[str, str]]
    choices: tuple[Choice, ...]


_PLOTS = (
    _Plot(
        "two ranks with two groups stop after their first step",
        lambda: case_evidence.of_hang("circular", (0, 1)),
        lambda: case_evidence.decided_hang("circular"),
        (
            Choice("rank 1 has left a call of data_parallel out", "missing_rank 1"),
            Choice("each rank waits in another group: they use the two in different orders", "circular_wait"),
            Choice("both called the same, and the network does not deliver", "stall"),
        ),
    ),
    _Plot(
        "four ranks stop before their first step is done",
        lambda: case_evidence.of_hang("loading", (0, 1, 2, 3)),
        lambda: case_evidence.decided_hang("loading"),
        (
            Choice("rank 3 died: its last line is of a connection that was closed", "missing_rank 3"),
            Choice("the network: a transfer timed out on three ranks", "stall"),
            Choice("all made the same call, rank 3 later than the limit of the others", "timeout_too_short"),
            Choice("rank 3 made a call that the others did not make", "mismatch 3"),
        ),
    ),
    _Plot(
        "four ranks add up their step numbers, and stop",
        lambda: case_evidence.of_hang("skipped", (0, 1, 2, 3)),
        lambda: case_evidence.decided_hang("skipped"),
        (
            Choice("rank 2 made one call fewer; its numbers say where it left it out", "missing_rank 2"),
            Choice("ranks 0, 1 and 3 had one batch more than rank 2", "missing_rank 0, 1 and 3"),
            Choice("the network failed in step 3, and rank 2 was lucky", "stall"),
        ),
    ),
    _Plot(
        "a job that never begins",
        case_evidence.never_joined,
        case_evidence.decided_never_joined,
        (
            Choice("rank 0 has another error than the others: it is the one at fault", "missing_rank 0"),
            Choice("the processes chose an interface that reaches nobody", "wrong_interface"),
            Choice("the limit of 5 s was too short", "timeout_too_short"),
            Choice("one process never came: not started, or it cannot reach the address", "never_formed"),
        ),
    ),
    _Plot(
        "four cards, and the profiler books half of the step as communication",
        lambda: case_evidence.of_steps("one worker"),
        lambda: case_evidence.decided_steps("one worker"),
        (
            Choice("the network: an all_reduce takes several times what it takes alone", "contention"),
            Choice("too many bytes for this network: another plan", "volume"),
            Choice("rank 1 waits for its input, and the others wait for rank 1", "data_loading"),
        ),
    ),
    _Plot(
        "four cards again, and again most of the step is communication",
        lambda: case_evidence.of_steps("contention"),
        lambda: case_evidence.decided_steps("contention"),
        (
            Choice("all wait for a late rank", "late_ranks"),
            Choice("the transfer itself is slow: something else is on the network", "contention"),
            Choice("nothing is wrong: so many bytes take so long", "volume"),
            Choice("the input", "data_loading"),
        ),
    ),
)


def case(number: int) -> Case:
    """Case 1 to 6: what was left behind, in a few lines, and three or four possible answers."""
    number = whole(number, "the number of the case", most=len(_PLOTS))
    plot = _PLOTS[number - 1]
    return Case(number, plot.title, plot.evidence(), plot.choices)


def answer(number: int) -> Answer:
    """What the readers decide on the same files, now."""
    number = whole(number, "the number of the case", most=len(_PLOTS))
    plot = _PLOTS[number - 1]
    decided, report = plot.decide()
    for letter, choice in zip("ABCD", plot.choices, strict=False):
        if choice.decided == decided:
            return Answer(letter, choice.words, report)
    raise InputRefused(
        f"case {number} was decided as {decided}, which is none of its answers; reinstall labkit"
    )
