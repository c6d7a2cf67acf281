"""Measured figures as rows, each file with its source on top: ``data/published``, ``data/recorded``."""

import csv

from labkit.presets.files import data_path, read_bounded


def published(name: str) -> list[dict[str, float | str]]:
    """The rows of ``data/published/NAME.csv``: numbers as numbers, whole ones as int, the rest as text.

    >>> published("zero_bubble_rates")[0]["p"]
    8
    """
    return _rows(f"published/{name}.csv", "a table of published figures")


def recorded(name: str) -> list[dict[str, float | str]]:
    """The rows of ``data/recorded/NAME.csv``, which this project measured itself.

    >>> recorded("slow_rank_steps")[0]["rank"]
    0
    """
    return _rows(f"recorded/{name}.csv", "a table of recorded figures")


def _rows(name: str, kind: str) -> list[dict[str, float | str]]:
    text = read_bounded(data_path(name), kind)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [{key: _value(field) for key, field in row.items()} for row in csv.DictReader(lines)]


def _value(field: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(field)
        except ValueError:
            pass
    return field
