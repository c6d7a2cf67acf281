"""The six cases: the evidence is there, and the answer is the one that the jobs were made for."""

import pytest

from labkit.course.cases import answer, case
from labkit.errors import InputRefused

# What each job was made to do wrong, by the words of the right answer.
MADE = {
    1: "use the two in different orders",
    2: "later than the limit",
    3: "rank 2 made one call fewer",
    4: "one process never came",
    5: "rank 1 waits for its input",
    6: "something else is on the network",
}


@pytest.mark.parametrize("number", MADE)
def test_the_readers_come_to_what_the_job_was_made_for(number):
    found = answer(number)
    assert MADE[number] in found.words
    assert found.report in repr(found)


@pytest.mark.parametrize("number", MADE)
def test_a_case_shows_evidence_and_three_or_four_answers_that_exclude_each_other(number):
    shown = case(number)
    assert len(shown.choices) in (3, 4)
    assert len({one.decided for one in shown.choices}) == len({one.words for one in shown.choices})
    lines = repr(shown).splitlines()
    assert 9 <= len(lines) <= 24 and max(map(len, lines)) <= 110
    assert not any(line.strip().startswith("/") for line in lines)


def test_answers_differ_in_letter_and_stay_folded_on_a_page():
    letters = [answer(number).letter for number in MADE]
    assert set(letters) >= {"A", "B", "C", "D"}
    html = answer(1)._repr_html_()
    assert html.startswith("<details><summary>") and "<script" not in html


def test_the_evidence_by_hand():
    assert "[data_parallel] 1 all_reduce of [4]" in repr(case(1))
    assert "3/4 clients joined" in repr(case(4))
    third = repr(case(3))
    assert "step 1: sum of step numbers 5" in third  # 1 + 1 + 2 + 1: rank 2 was at its step 2
    assert "2 to 5 all_reduce" in third and "2 to 4 all_reduce" in third


@pytest.mark.parametrize("wrong", [0, 7, "one", 1.5, None])
def test_refused(wrong):
    for function in (case, answer):
        with pytest.raises(InputRefused):
            function(wrong)
