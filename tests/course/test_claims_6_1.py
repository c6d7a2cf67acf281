"""Section 6.1's claims against the guide, the claim lists and what each recorded job was made to do."""

import pytest

from labkit.course.chapter6_hangs import (
    KINDS,
    counters_table,
    kinds_table,
    moments_table,
    stack_table,
    triage,
    triage_table,
)
from labkit.course.claims import all_claims
from labkit.evidence.hang_jobs import JOBS
from tests.course.claim_values import figures, value

CLAIMS = {id: claim for id, claim in all_claims().items() if claim.section == "6.1"}

# From the guide, the claim lists and the jobs' own sentences; never copied from labkit's output.
EXPECTED = {
    "6.1-a": ["count: missing rank", "order: order (operation)", "shape: mismatch (number of elements)",
              "likely rank 3"],
    "6.1-b": ["DETAIL", "recorder"],
    "6.1-c": ["branch: mismatch", "missing: missing rank", "loading: timeout too short",
              "circular: circular wait", "nothing for 4 s"],
    "6.1-d": ["WARN", "INFO", "COLL"],
    # A barrier, a sum and three buckets: five calls; the wait is for the first of the buckets.
    "6.1-e": ["bucket 3 issued", "its call 5", "waits in call 3", "rank 3 has made 2",
              "last line call 8, stuck call 5"],
    "6.1-f": ["rank 0 barrier from branch", "rank 1 all_reduce from train_step", "called by rank 0 alone"],
    "6.1-g": ["flight recorder", "INFO", "DETAIL"],
    "6.1-h": ["data type: mismatch", "group: missing rank", "rank missing: missing rank", "root: ",
              "4 elements sent where 8 are expected", "7.0, 7.0, 7.0, 7.0, 0.0, 0.0, 0.0, 0.0"],
    "6.1-i": ["limit 4 s: 4 ranks silent for 4 s", "call 4 of group 0"],
    "6.1-j": ["8 questions", "order at 3 order", "shape at 4 sizes", "branch at 5 rank condition",
              "extra batch at 6 last batch", "loading at 7 interface, limit"],
}  # fmt: skip


@pytest.mark.parametrize("id", EXPECTED)
def test_the_computed_value_has_what_was_worked_out_apart(id):
    missing = [text for text in EXPECTED[id] if text not in value(id)]
    assert not missing, f"{missing} not in {value(id)!r}"


def test_every_claim_of_the_section_is_looked_at():
    assert set(EXPECTED) == set(CLAIMS) == {f"6.1-{letter}" for letter in "abcdefghij"}


def test_verdicts_are_those_of_the_claim_lists():
    assert all(CLAIMS[f"6.1-{letter}"].verdict == "corrected" for letter in "cd")
    assert all(CLAIMS[f"6.1-{letter}"].verdict == "approximately" for letter in "efi")


def test_the_lost_table_has_its_eight_rows_in_order():
    rows = triage_table().rows
    assert [row[0] for row in rows] == list("12345678")
    order = (
        "进程都活着吗",
        "次数",
        "顺序",
        "形状与 dtype",
        "条件分支",
        "最后一个 batch",
        "网卡与超时",
        "硬件与网络自检",
    )
    assert all(words in row[1] for words, row in zip(order, rows, strict=True))


def test_each_kind_is_recorded_and_the_walk_stops_where_it_belongs():
    stops = {row[0].split()[0]: row[4] for row in kinds_table().rows}
    assert stops["count"] == "6 last batch" and stops["order"] == "3 order"
    assert stops["shape"] == stops["data"] == "4 sizes"
    assert set(KINDS.values()) <= set(JOBS)


def test_the_ranks_named_are_those_with_the_mistake():
    """The last rank in each job but that of the branch, by the sentences of the jobs."""
    likely = {row[0].split()[0]: row[3] for row in kinds_table().rows}
    assert likely["count"] == likely["order"] == likely["shape"] == likely["data"] == "rank 3"
    assert likely["group"] == "rank 2"  # of three ranks
    assert likely["rank"] in ("rank 0", "rank 3")


def test_walks_of_healthy_questions_end_early():
    assert [step.name for step in triage("branch").steps] == [
        "alive", "counts", "order", "sizes", "rank condition",
    ]  # fmt: skip


def test_tables_have_a_row_for_each_rank():
    assert [len(table.rows) for table in (counters_table(), stack_table(), moments_table())] == [4, 4, 4]


def test_checks_before_each_call_cost_more_than_the_recorder():
    recorder, info, detail = figures(
        "6.1-g", r"flight recorder ([\d.]+) times, INFO ([\d.]+) times, DETAIL ([\d.]+) times"
    )
    assert detail > recorder and detail > info
