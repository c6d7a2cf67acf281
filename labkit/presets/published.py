"""Figures that others published, as rows: the files of ``data/published``, each with its source on top."""

import csv

from labkit.presets.files import data_path, read_bounded


def published(name: str) -> list[dict[str, float | str]]:
    """The rows of ``data/published/NAME.csv``: numbers as numbers, whole ones as int, the rest as text.

    >>> published("zero_bubble_rates")[0]["p"]
    8
    """
    text = read_bounded(data_path(f"published/{name}.csv"), "a table of published figures")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [{key: _value(field) for key, field in row.items()} for row in csv.DictReader(lines)]


def _value(field: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(field)
        except ValueError:
            pass
    return field
