"""The guide's claims: one function per id computes what the guide asserts; nothing here is a result typed in.

``guide_claims("2.2")`` is the table that closes a section of a notebook; ``write()`` makes
``data/guide_claims.csv`` of all. The functions stand in ``claims_*.py``, one file per part of the guide, and
register themselves with ``@claim``.
"""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from labkit.course.table import Table, table
from labkit.errors import InputRefused
from labkit.units import digits

COLUMNS = ("id", "section", "claim", "guide_value", "labkit_value", "unit", "verdict", "why")
VERDICTS = ("holds", "approximately", "corrected")
_PARTS = (
    "claims_1",
    "claims_2_1",
    "claims_2_2",
    "claims_2_3",
    "claims_2_4",
    "claims_3_1",
    "claims_3_2",
    "claims_3_3",
    "claims_3_4",
    "claims_3_4_experts",
    "claims_4_1",
    "claims_4_2",
    "claims_4_3",
    "claims_5_1",
    "claims_5_2",
    "claims_5_3",
    "claims_5_3_more",
    "claims_5_4",
    "claims_5_5",
    "claims_5_5_more",
    "claims_6_1",
    "claims_6_2",
    "claims_6_3",
    "claims_6_3_practice",
    "claims_6_3_steps",
    "claims_6_3_saving",
    "claims_6_3_resharding",
)
_REGISTER: dict[str, "Claim"] = {}


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of the guide, what it says, and the function that computes the same quantity."""

    id: str
    claim: str
    guide_value: str
    unit: str
    verdict: str
    why: str
    compute: Callable[[], float | str]

    @property
    def section(self) -> str:
        """The guide's section: ``2.2`` of ``2.2-b``."""
        return self.id.split("-")[0]

    def row(self) -> dict[str, str]:
        """The claim as a row of the table, its value computed now."""
        value = self.compute()
        return {
            "id": self.id,
            "section": self.section,
            "claim": self.claim,
            "guide_value": self.guide_value,
            "labkit_value": value if isinstance(value, str) else digits(value, 4),
            "unit": self.unit,
            "verdict": self.verdict,
            "why": self.why,
        }


def claim(id: str, text: str, guide: str, unit: str = "", verdict: str = "holds", why: str = ""):
    """Register a function as the computation of claim ``id``.

    ``text``: one English line with the key term in Chinese beside it; ``guide``: the guide's value in words;
    ``why``: one sentence, required unless the claim simply holds.
    """
    if verdict not in VERDICTS or id in _REGISTER or (verdict != "holds" and not why):
        raise ValueError(
            f"claim {id}: verdict {verdict!r} must be one of {VERDICTS}, with a reason unless it holds, once"
        )

    def register(function):
        _REGISTER[id] = Claim(id, text, guide, unit, verdict, why, function)
        return function

    return register


def all_claims() -> dict[str, Claim]:
    """Every registered claim by id, in the guide's order."""
    for part in _PARTS:
        import_module(f"labkit.course.{part}")
    return dict(sorted(_REGISTER.items(), key=lambda item: _order(item[0])))


def _order(id: str) -> tuple:
    section, letter = id.split("-")
    return (*map(int, section.split(".")), len(letter), letter)


def guide_claims(section: str) -> Table:
    """The claims of a section (``"2.2"``), or one claim (``"5.1-a"``), computed now.

    Raises InputRefused when nothing stands under that name.
    """
    found = [c.row() for c in all_claims().values() if section in (c.section, c.id)]
    if not found:
        sections = sorted({c.section for c in all_claims().values()})
        raise InputRefused(f"no claims under {section!r}; sections with claims: {', '.join(sections)}")
    marks = {"holds": "✓ holds", "approximately": "≈ approximately", "corrected": "✎ corrected"}
    return table(
        ("id", "the guide's claim", "guide", "computed here", "verdict", "why"),
        (
            (
                r["id"],
                r["claim"],
                r["guide_value"],
                f"{r['labkit_value']} {r['unit']}".strip(),
                marks[r["verdict"]],
                r["why"],
            )
            for r in found
        ),
    )


def as_csv() -> str:
    """All claims as the text of ``guide_claims.csv``."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(c.row() for c in all_claims().values())
    return out.getvalue()


def write(path: str | Path) -> None:
    """Write ``guide_claims.csv``; ``make notebooks`` calls this."""
    Path(path).write_text(as_csv(), encoding="utf-8")
