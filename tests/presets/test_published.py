"""Published figures come as rows: comments dropped, numbers as numbers."""

import pytest

from labkit.errors import InputRefused
from labkit.presets import published


def test_a_row_of_the_zero_bubble_rates():
    rows = published("zero_bubble_rates")
    assert len(rows) == 24
    first = rows[0]
    assert (first["model"], first["hidden"], first["m"], first["bubble_rate"]) == ("1.5B", 2304, 24, 0.2431)


def test_an_unknown_table_is_refused():
    with pytest.raises(InputRefused, match="no shipped data file"):
        published("no_such_table")
