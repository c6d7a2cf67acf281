"""Debug logs: which process a line is of, which rank that is, and which communicator at an address."""

from labkit.evidence.hang.read import hang_of, read_hang
from labkit.evidence.hang.records import Evidence
from labkit.evidence.hang.text import read_text
from tests.evidence.hang.test_text import init, made_call
from tests.evidence.hang.told import read


def diagnose(files):
    evidence = Evidence()
    for name, text in files.items():
        evidence.add(read_text(text, name))
    return hang_of(evidence)


def one_differs(rank, size=4, wrong=2, **at):
    """Five calls of one rank, of which that of rank ``wrong`` differs at call 3."""
    calls = [made_call(number=f"{number:x}", size=size, **at) for number in range(5)]
    if rank == wrong:
        calls[3] = made_call("AllGather", number="3", size=size, **at)
    return "".join(calls)


def test_calls_alone_take_the_ranks_of_the_files_names():
    files = {f"rank_{rank}.log": one_differs(rank, host=f"n{9 - rank}") for rank in range(4)}
    hang = diagnose(files)
    assert (hang.verdict, hang.first.sequence, hang.suspects) == ("mismatch", 3, (2,))


def test_calls_alone_take_the_numbers_of_the_launcher():
    for label in ("{}: ", "[1,{}]<stdout>:", "[rank{}]: "):
        text = "".join(
            label.format(rank) + line
            for rank in range(4)
            for line in one_differs(rank, host=f"n{9 - rank}").splitlines(keepends=True)
        )
        assert diagnose({"job.log": text}).suspects == (2,)


def test_one_number_for_two_processes_is_no_rank():
    """srun numbers tasks, and a task may hold several processes: they are counted, and that is said."""
    text = "".join(
        "0: " + line
        for rank in range(4)
        for line in one_differs(rank, host=f"n{rank}").splitlines(keepends=True)
    )
    evidence = read(text)
    assert sorted({call.rank for call in evidence.calls}) == [0, 1, 2, 3]
    assert any("counted by host and device" in warning for warning in evidence.warnings)


def test_the_start_of_one_log_is_lost_and_its_file_has_the_rank():
    files = {
        f"rank_{rank}.log": (init(rank, size=4, pid=rank, device=rank) if rank != 3 else "")
        + one_differs(rank, wrong=3, pid=rank, device=rank)
        for rank in range(4)
    }
    hang = diagnose(files)
    assert (hang.verdict, hang.suspects) == ("mismatch", (3,))
    assert any("the start of a communicator of 4 ranks is lost" in warning for warning in hang.warnings)
    assert diagnose({"job.log": "".join(files.values())}).suspects == (3,)  # the rank that is left over


def test_containers_of_one_name_and_number_are_told_apart_by_file():
    same = {"host": "localhost", "pid": 17}
    for names in (("rank_0.log", "rank_1.log"), ("a.log", "b.log")):
        files = {
            name: init(rank, **same) + one_differs(rank, size=2, wrong=1, **same)
            for rank, name in enumerate(names)
        }
        hang = diagnose(files)
        assert (hang.verdict, sorted(hang.first.calls)) == ("mismatch", [0, 1])


def test_a_log_that_goes_on_in_another_file_is_of_one_process():
    files = {"a.log": "".join(init(rank, pid=rank) for rank in range(2))}
    files["b.log"] = "".join(made_call(number=f"{at:x}", pid=rank) for at in range(3) for rank in range(2))
    evidence = Evidence()
    for name, text in files.items():
        evidence.add(read_text(text, name))
    hang = hang_of(evidence)
    assert {(call.rank, call.group.name) for call in evidence.calls} == {(0, "0xfeed"), (1, "0xfeed")}
    assert hang.verdict == "undecided"


def pairs_and_columns(wrong=None):
    """Eight processes on two hosts in pairs and in two groups of four, and no communicator of all."""
    by_rank = {}
    for rank in range(8):
        at = {"host": f"n{rank // 4}", "pid": 40 + rank, "device": rank % 4}
        lines = init(rank % 2, size=2, comm="0xb", ident=f"0xb{rank // 2}", **at)
        lines += init(rank // 2, size=4, comm="0xc", ident=f"0xc{rank % 2}", **at)
        for number in range(3):
            name = "AllGather" if (rank, number) == (wrong, 1) else "AllReduce"
            lines += made_call(name, number=f"{number:x}", comm="0xb", **at)
            lines += made_call(number=f"{number:x}", comm="0xc", size=4, **at)
        by_rank[rank] = lines
    return by_rank


def test_members_of_pairs_do_not_collapse_where_no_communicator_holds_all():
    by_rank = pairs_and_columns(wrong=5)
    hang = diagnose({"job.log": "".join(by_rank.values())})
    assert (hang.verdict, sorted(hang.first.calls), hang.suspects) == ("mismatch", [4, 5], ())
    assert any("rank 5 is n1:45" in warning for warning in hang.warnings)


def test_names_of_files_go_before_counting():
    """The last host's processes have the first ranks."""
    by_rank = pairs_and_columns(wrong=5)
    hang = diagnose({f"rank_{(rank + 4) % 8}.log": text for rank, text in by_rank.items()})
    assert (hang.verdict, sorted(hang.first.calls), hang.warnings) == ("mismatch", [0, 1], ())


def test_a_communicator_that_was_made_anew_at_the_same_address_is_another():
    text = ""
    for rank in range(4):
        at = {"pid": rank, "device": rank}
        text += init(rank, size=4, ident="0x1", **at) + "".join(
            made_call(number=f"{number:x}", size=4, **at) for number in range(9)
        )
        text += init(rank, size=4, ident="0x1", what="Destroy", **at) + init(rank, size=4, ident="0x2", **at)
        text += "".join(
            made_call(number=f"{number:x}", size=4, count=20, **at) for number in range(3 if rank == 2 else 6)
        )
    hang = diagnose({"job.log": text})
    found = {one.group.name: (one.verdict, one.absent) for one in hang.findings}
    assert found == {"0x2": ("undecided", (2,)), "0x1": ("undecided", ())}
    assert hang.first.sequence == 3


def test_numbers_that_begin_anew_are_of_another_communicator():
    text = "".join(
        init(rank, size=2, ident="0x1", pid=rank)
        + "".join(made_call(number=number, pid=rank) for number in ("0", "1", "0"))
        for rank in range(2)
    )
    evidence = read(text)
    assert sorted(
        len([c for c in evidence.calls if c.group == g]) for g in {c.group for c in evidence.calls}
    ) == [
        1,
        1,
        4,
    ]


def test_one_process_has_and_two_have():
    text = init(0, size=4, ident="0x9") + made_call(comm="0xbb", size=4, host="n2", pid=99)
    one = read(text).warnings
    assert any("1 of 2 processes has no line that tells its rank" in warning for warning in one)


def test_source_code_and_documentation_in_a_folder_are_passed_over(tmp_path):
    line = (
        "[rank3]:[E607 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600010 "
        "milliseconds before timing out.\n"
    )
    for name in ("README.md", "guide.rst", "test_x.py", "notes.ipynb"):
        (tmp_path / name).write_text(f"If you see\n\n    {line}\n")
    (tmp_path / "job.log").write_text("[rank0]: step 1 loss 2.0\n" * 50)
    hang = read_hang(tmp_path)
    assert hang.first is None and [source.path.split("/")[-1] for source in hang.sources] == ["job.log"]
    (said,) = hang.warnings
    assert said.startswith("4 files of source code or documentation passed over") and "README.md" in said
    assert read_hang(tmp_path / "README.md").first.sequence == 7
