"""Damaged logs: nothing but InputRefused is raised, and no damaged row is taken for a measured one."""

import json
import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import InputRefused, read_sweep
from tests.evidence.nccl_log import log, report, row

TOP = 2**24
SMALL = [(2**k, 20 + 2**k / 50e3, 21 + 2**k / 50e3) for k in range(12, 26, 2)]
LOGS = [
    log(rows=SMALL),
    log("all_gather", 4, SMALL, generation="old", wrong="0e+00"),
    log("broadcast", 2, SMALL, generation="middle", wrong="N/A"),
    log("reduce_scatter", 8, SMALL, wrong="237858"),
    "\n".join("[1,0]<stdout>: " + line for line in log(rows=SMALL).split("\n")),
    json.dumps(report()) + "\n",
]


def read(text):
    """The sweeps, [] when refused; checked for what holds of every sweep."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            sweeps = read_sweep(text if "\n" in text else text + "\n")
        except InputRefused as refusal:
            assert "\n" not in str(refusal) and 10 < len(str(refusal)) < 700
            return []
    for sweep in sweeps:
        assert (
            sweep.size.size
            and (sweep.size > 0).all()
            and np.isfinite(sweep.time).all()
            and (sweep.time > 0).all()
        )
        assert sweep.time.shape == sweep.busbw.shape == sweep.wrong.shape == sweep.size.shape
        assert all("\n" not in said and len(said) < 400 for said in sweep.warnings)
        assert all(isinstance(line, int) and line > 0 and why for line, why in sweep.skipped)
    return sweeps


def rows_of(sweeps):
    return {(size, time) for sweep in sweeps for size, time in zip(sweep.size, sweep.time, strict=True)}


def mutate(text, dice):
    """One injury, of the kinds that logs meet."""
    lines = text.split("\n")
    kind = dice.randrange(8)
    if kind == 0:
        data = bytearray(text.encode())
        for _ in range(dice.choice([1, 5, 50])):
            data[dice.randrange(len(data))] = dice.randrange(256)
        return data.decode("utf-8", "replace")
    if kind == 1:
        dice.shuffle(lines)
    elif kind == 2:
        at = dice.randrange(len(lines))
        lines[at:at] = dice.choice(LOGS).split("\n")
    elif kind == 3:
        lines = [line[: dice.randrange(len(line) + 1)] if dice.random() < 0.2 else line for line in lines]
    elif kind == 4:
        odd = ["-1", "0", "9" * 400, "1e999", "nan", "N/A", "", "\u0663"]
        return "".join(dice.choice(odd) if mark.isdigit() and dice.random() < 0.05 else mark for mark in text)
    elif kind == 5:
        return text.replace(" ", dice.choice(["", "\t", "\0"]), dice.randrange(300))
    elif kind == 6:
        return text.replace("\n", dice.choice(["\r", "\r\n", " ", "\u2028"]))
    else:
        return "".join(mark for mark in text if dice.random() > 0.02)
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(150))
def test_mutated_logs_are_read_or_refused(seed):
    dice = random.Random(seed)
    text = dice.choice(LOGS)
    for _ in range(dice.choice([1, 1, 2, 3])):
        text = mutate(text, dice)
        read(text)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from('0123456789 .-+eNA/\n#[]:{}",floatsum\t'), max_size=300))
def test_any_text_is_read_or_refused(text):
    read(text)


@settings(max_examples=40, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["results", "size", "count", "type", "config", "devices", "rank",
                                         "time", "out_of_place", "alg_bw", "bus_bw", "nwrong", "args"]),
                        inner, max_size=5), max_leaves=30))  # fmt: skip
def test_any_json_is_read_or_refused(value):
    read(json.dumps({"results": value, **(value if isinstance(value, dict) else {})}))


@pytest.mark.parametrize("which", range(len(LOGS) - 1))
def test_a_cut_never_invents_a_row(which):
    text = LOGS[which]
    whole = rows_of(read(text))
    start = text.index("algbw")
    for at in range(start, len(text), 11):
        assert rows_of(read(text[:at])) <= whole
        assert rows_of(read(text[at:])) <= whole


def test_a_first_row_cut_inside_its_size_is_left_out():
    small, large = row("all_reduce", 8, 16, 20.1, 20.2), row("all_reduce", 8, TOP, 355.5, 356.6)
    (sweep,) = read_sweep(f"{small.lstrip()[1:]}\n{large}\n")
    assert sweep.size.tolist() == [TOP] and sweep.skipped[0][0] == 1
    assert read(small.lstrip()[1:]) == []


def test_a_flipped_digit_rarely_passes():
    dice, passed = random.Random(5), 0
    whole = rows_of(read(LOGS[0]))
    digits = [at for at, mark in enumerate(LOGS[0]) if mark.isdigit() and at > LOGS[0].index("(GB/s)")]
    for at in dice.sample(digits, 200):
        other = str((int(LOGS[0][at]) + dice.randrange(1, 10)) % 10)
        passed += bool(rows_of(read(LOGS[0][:at] + other + LOGS[0][at + 1 :])) - whole)
    assert passed <= 20  # a time's digits below what algbw shows


@pytest.mark.parametrize("keep", range(5, 100, 3))
def test_a_last_row_cut_anywhere_is_left_out_with_its_line_number(keep):
    whole, last = row("all_reduce", 8, TOP, 355.5, 356.6), row("all_reduce", 8, 2 * TOP, 691.1, 692.2)
    keep = min(keep, len(last) - 1)
    (sweep,) = read_sweep(f"{whole}\n{last[:keep]}")
    assert sweep.size.tolist() == [TOP]
    assert [line for line, _ in sweep.skipped] == [2]


def test_a_cut_inside_the_last_number_of_a_row_with_every_column():
    rows = [row("all_reduce", 8, TOP << k, 355.5 * 2**k, 356.6 * 2**k, wrong="237858") for k in range(3)]
    for ending in ("", "\n"):
        (sweep,) = read_sweep("\n".join([*rows[:2], rows[2][:-3]]) + ending)
        assert sweep.size.tolist() == [TOP, 2 * TOP] and sweep.skipped[0][0] == 3
    old = [row("broadcast", 8, TOP << k, 355.5 * 2**k, 356.6 * 2**k, "old", wrong="1e-07") for k in range(3)]
    assert len(old[2][:-1].split()) == 12
    (sweep,) = read_sweep("\n".join([*old[:2], old[2][:-1]]))
    assert sweep.size.tolist() == [TOP, 2 * TOP] and sweep.skipped == [
        (3, "it may be cut inside its last number")
    ]


@pytest.mark.parametrize("time, rate", [("1e-320", "0.00"), ("1e300", "0.00"), ("30.0", "1e308")])
def test_numbers_beyond_any_machine_are_no_row(time, rate):
    text = f"{LOGS[0]}    1024   256   float   sum   -1   {time}  {rate}  {rate}  0  30.0  0.03  0.06  0\n"
    assert rows_of(read(text)) == rows_of(read(LOGS[0]))
    data = report()
    half = data["results"][3]["out_of_place"]
    half.update(time=float(time), alg_bw=float(rate), bus_bw=float(rate))
    (sweep,) = read(json.dumps(data) + "\n")
    assert [line for line, _ in sweep.skipped] == [4]
