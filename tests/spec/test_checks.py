"""What every noun and formula asks of its input: taken as numbers, or refused in one line."""

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pytest

from labkit.errors import InputRefused
from labkit.spec.checks import (
    amount,
    broadcasting,
    floats,
    label,
    noun,
    one_of,
    shown,
    together,
    whole,
    without_arrays,
)

NO_NUMBER = ["8", "", None, [8], (8,), [], {}, True, 1j, b"8", object(), np.array(["8"]), np.array([])]


def refusal(check, *arguments, **options) -> str:
    with pytest.raises(InputRefused) as refused:
        check(*arguments, **options)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 150
    return str(refused.value)


@pytest.mark.parametrize("value", [*NO_NUMBER, float("nan"), -1, 0, float("inf"), -(10**400), 10**400])
def test_amounts_that_cannot_be(value):
    assert refusal(amount, value, "bytes").startswith("bytes is ")


def test_amounts_that_can():
    assert amount(10**30, "bytes") == 1e30 and amount(np.float32(0.5), "bytes") == 0.5
    assert amount(0, "bytes", zero=True) == 0 and amount(np.inf, "bytes", endless=True) == np.inf
    assert amount(np.array([1, 2]), "bytes").tolist() == [1.0, 2.0]
    assert refusal(amount, np.array([1, 2]), "bytes", arrays=False).startswith(
        "bytes is an array of 2 values"
    )
    assert refusal(amount, -1, "bytes", zero=True) == "bytes is -1; give a number from 0 up"
    assert refusal(amount, Decimal(2), "bytes") == "bytes is of type Decimal; give a number above 0"


@pytest.mark.parametrize("value", [*NO_NUMBER, float("nan"), -1, 0, 1.5, float("inf"), 10**10, 10**400])
def test_whole_numbers_that_cannot_be(value):
    assert refusal(whole, value, "tp", arrays=True).startswith("tp is ")


def test_numbers_or_one_nan():
    assert floats([1, 2]).tolist() == [1.0, 2.0] and floats(np.array(3)).tolist() == 3.0
    for value in ("8", None, True, {}, [[1], [1, 2]], [], ["8"], 10**400):
        assert np.isnan(floats(value)).tolist() is True


def test_one_of():
    assert one_of((1, 2), np.array([1, 2, 2]), "stage").tolist() == [1, 2, 2]
    for value in (3, True, "1", [1], None, np.array([1, 3]), np.array([]), 1.0):
        assert refusal(one_of, (1, 2), value, "stage").endswith("; use 1 or 2")
    assert refusal(one_of, (1, 2), np.array([1, 2]), "stage", arrays=False).startswith("stage is an array")


def test_labels_nouns_and_shapes():
    assert label("llama", "name") == "llama"
    for value in ("", "a\nb", "x" * 101, None, 5, ["a"]):
        assert refusal(label, value, "name").endswith("give one line of 1 to 100 characters")
    noun({}, dict, "the table")
    assert refusal(noun, "a100", dict, "the table") == "the table is 'a100'; give a dict"
    broadcasting({"tp": (2, 1), "dp": (3,), "pp": ()}, "one plan")
    said = refusal(broadcasting, {"tp": (2,), "dp": (3,), "pp": ()}, "one plan")
    assert said == "arrays of one plan must broadcast, not tp (2,), dp (3,); reshape them"


def test_amounts_have_an_upper_bound():
    assert amount(1e60, "bytes") == 1e60 and amount(np.inf, "bytes", endless=True) == np.inf
    said = refusal(amount, 1e61, "bytes", endless=True)
    assert said == "bytes is 1e+61; give a number above 0 and at most 1e+60"
    assert refusal(amount, -1, "bytes", zero=True).endswith("give a number from 0 up")


@dataclass
class Holder:
    number: object
    inside: dict


def test_arrays_of_arguments_and_of_the_nouns_among_them():
    two, three = np.ones(2), np.ones(3)
    together("a sum", a=two, b=[1, 2], c=Holder(np.ones((3, 1)), {"bf16": 1.0}), d="x", e=None, f=(1, 2))
    said = refusal(together, "a sum", a=two, b=Holder(1, {"bf16": three}), c=[object()])
    assert said == "arrays of a sum must broadcast, not a (2,), b.inside bf16 (3,); reshape them"
    assert "not a (2,), b (3,)" in refusal(together, "a sum", a=two, b=[1, 2, 3])
    without_arrays("a sum", a=1.0, b=np.array(2), c=Holder(1, {}))
    said = refusal(without_arrays, "a sum", a=1, b=Holder(two, {}))
    assert said == "a sum takes single numbers, and b.number is an array; give one number"


def test_shown_on_one_short_line():
    for value in (NO_NUMBER, "a\nb", "x" * 5000, 10**400, np.array(8), np.ones(3), np.float64(2.5)):
        assert "\n" not in shown(value) and len(shown(value)) < 60
    assert (shown(np.array(8)), shown(np.float64(2.5))) == ("8", "2.5")
