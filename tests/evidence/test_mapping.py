"""Reading rank to host listings of every kind, whole, damaged and mixed with other lines."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.mapping import Mapping, read_mapping
from labkit.presets import sample_sweeps

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "nccl_tests"
# Three layouts of Open MPI's map, by the lines that its issues 4449 and 11570 and its mailing list show.
OLD = """
 ========================   JOB MAP   ========================

 Data for node: Name: nodeA\tNum procs: 2
 \tProcess OMPI jobid: [7838,1] Process rank: 0
 \tProcess OMPI jobid: [7838,1] Process rank: 2

 Data for node: Name: nodeB\tNum procs: 2
 \tProcess OMPI jobid: [7838,1] Process rank: 1
 \tProcess OMPI jobid: [7838,1] Process rank: 3

 =============================================================
"""
FOUR = (
    OLD.replace("Name: ", "").replace("] Process", "] App: 0 Process").replace("\tNum", " Num slots: 2   Num")
)
FIVE = FOUR.replace("OMPI jobid: [7838,1]", "jobid: prterun-head-301741@1")
DEVEL = """
Data for node: nodeA\tState: 3\tFlags: MAPPED:SLOTS_GIVEN
        Daemon: [prterun-head-1@0,1]\tDaemon launched: False
        Data for proc: [prterun-head-1@1,0]
                Pid: 0\tLocal rank: 0\tNode rank: 0\tApp rank: 0
        Data for proc: [[40608,1],2]
Data for node: nodeB\tState: 3
        Data for proc: [prterun-head-1@1,1]
        Data for proc: [prterun-head-1@1,3]
"""
BENCH = """some warning of torch
rank 0: host nodeA, local rank 0, device cuda:0, interface eth0, backend nccl
[default1]:rank 2: host nodeA, local rank 1, device cuda:1
rank 1: host nodeB, local rank 0
rank 3: host nodeB
"""
SRUN = "srun: job 12 queued\n 2: nodeA\n 0: nodeA\n03: nodeB\n1: nodeB\n0: all done now\n"
NCCL = "".join(
    f"#  Rank  {rank} Group  0 Pid  12 on node{host} device  {device} [0000:0a:00] NVIDIA H100\n"
    for rank, host, device in ((0, "A", 0), (1, "B", 0), (2, "A", 1), (3, "B", 1))
)
COMMAS = "rank,host,device\n0,nodeA,0\n1,nodeB,0\n2,nodeA,1\n3,nodeB,1\n"
TABLES = {
    "commas": COMMAS,
    "tabs": COMMAS.replace(",", "\t"),
    "semicolons": COMMAS.replace(",", ";"),
    "quoted": '"rank","host","device"\n' + re.sub(r"(\w+)", r'"\1"', COMMAS.split("\n", 1)[1]),
    "blanks": COMMAS.replace(",", "  "),
    "no head": COMMAS.split("\n", 1)[1].replace(",", " "),
    "no head, commas": COMMAS.split("\n", 1)[1],
    "other columns": "# node pid Rank gpu\nnodeA 7 0 0\nnodeB 8 1 0\nnodeA 9 2 1\nnodeB 10 3 1\n",
    "two columns": "rank host\n0 nodeA\n1 nodeB\n2 nodeA\n3 nodeB\n",
    "other lines": "loss 3.1 at step 4\n" + COMMAS + "8,float,sum\n1 4.5 3\nbye, bye, 1\n",
}


@pytest.mark.parametrize("text", [OLD, FOUR, FIVE, DEVEL, BENCH, SRUN, NCCL, *TABLES.values()])
def test_every_kind_of_listing_reads_the_same(text):
    found = read_mapping(text)
    assert found.hosts == ("nodeA", "nodeB", "nodeA", "nodeB") and found.devices == (0, 0, 1, 1)
    assert found.order == "cyclic" and not found.consecutive and found.warnings == ()
    assert read_mapping(text.replace("\n", "\r\n")) == found


@pytest.mark.parametrize(
    ("text", "kind"), [(FIVE, "an Open MPI map"), (BENCH, "the print of labkit's bench"), (COMMAS, "a table")]
)
def test_it_says_what_kind_it_was(text, kind):
    assert read_mapping(text).source == kind and kind in repr(read_mapping(text))


def test_a_map_that_is_printed_twice_counts_once():
    """As Open MPI 2 and 3 do on the first node, issue 4449."""
    assert read_mapping(FOUR + FOUR) == read_mapping(FOUR)


def test_the_kind_that_names_devices_wins():
    assert read_mapping(FOUR + NCCL).source == "the device list of nccl-tests"


def test_a_file_and_the_heads_of_shipped_sweeps(tmp_path):
    path = tmp_path / "map.txt"
    path.write_bytes(FIVE.encode("utf-16"))
    assert read_mapping(path) == read_mapping(FIVE)
    found = read_mapping(sample_sweeps()["h100-2x8-infiniband"])
    assert found.consecutive and found.ranks_on == {"node01": [*range(8)], "node02": [*range(8, 16)]}
    assert found.devices == (*range(8), *range(8))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0: nodeA\n1: nodeA\n4: nodeB\n", "ranks 2, 3 are missing of 0 to 4"),
        ("0: nodeA\n2: nodeA\n", "rank 1 is missing of 0 to 2"),
        ("0: nodeA\n1: nodeA\n0: nodeB\n", "rank 0 is on nodeA in line 1 and on nodeB in line 3"),
        (COMMAS + "1,nodeB,1\n", "rank 1 is on nodeB, device 0 in line 3 and on nodeB, device 1 in line 6"),
        ("hello\nworld\n", "names no rank and host; give the output of srun -l hostname"),
        ("\n", "the text is empty; give a listing of ranks and hosts"),
        ("\x00\x01\x02\n" * 50, "the text is binary data; give a listing of ranks and hosts as text"),
        ("\x1f\x8b\x08\x00\ufffd\n" * 50, "is binary data, packed with gzip; give a listing"),
        ("0: nodeA\n9999999: nodeB\n", "line 2 is one rank too many"),
        ("x\n" * 1_000_001, "in 1,000,001 lines is not looked for"),
        (
            "\n".join(f"{rank}: a" for rank in range(0, 400, 2)) + "\n",
            "1, 3, 5, 7, 9, 11, 13, 15 and 191 more",
        ),
    ],
)
def test_refusals_name_the_place(text, says):
    with pytest.raises(InputRefused) as refused:
        read_mapping(text)
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("source", [None, 8, b"0: a\n", ["a"], "", "/no/such/file", "."])
def test_what_is_no_listing_is_refused(source):
    with pytest.raises(InputRefused):
        read_mapping(source)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (COMMAS.replace("2,nodeA,1", "2,nodeA,0"), "ranks 0, 2 share device 0 of nodeA: bind each process"),
        ("0: a\n1: a\n2: b\n", "unequal numbers of ranks (a 2, b 1)"),
        ("0 a 1\n1 a 0\n", "on a the devices do not follow the ranks"),
    ],
)
def test_what_can_be_read_and_should_not_be_so_is_a_warning(text, says):
    (warning,) = read_mapping(text).warnings
    assert says in warning


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared logs do not stand beside this checkout")
def test_shared_logs_are_read_or_refused():
    """Real logs of nccl-tests: those with a whole device list give every rank."""
    found = {}
    for path in sorted(SHARED.glob("*.txt")):
        try:
            found[path.name] = read_mapping(path)
        except InputRefused as refused:
            assert "\n" not in str(refused)
    assert len(found) >= 8 and all(mapping.consecutive for mapping in found.values())


@given(st.text(max_size=200), st.sampled_from([OLD, BENCH, SRUN, COMMAS]), st.integers(0, 400))
def test_damaged_text_is_read_or_refused(noise, text, at):
    for damaged in (text[:at] + noise + text[at:], text[:at] + "\n" + noise):
        try:
            found = read_mapping(damaged + "\n")
        except InputRefused as refused:
            assert "\n" not in str(refused)
        else:
            assert len(found.hosts) == len(found.devices) == found.ranks


# ---- orders


@pytest.mark.parametrize(
    ("hosts", "order"),
    [("aabb", "block"), ("abab", "cyclic"), ("abba", "mixed"), ("a", "block"), ("aba", "cyclic")],
)
def test_orders(hosts, order):
    mapping = Mapping(tuple(hosts))
    assert mapping.order == order and mapping.consecutive == (order == "block")


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40))
def test_block_order_is_a_permutation_that_makes_it_consecutive(hosts):
    mapping = Mapping(tuple(hosts))
    ordered = mapping.in_order()
    assert sorted(mapping.block_order) == list(range(mapping.ranks)) and ordered.consecutive
    assert sorted(zip(ordered.hosts, ordered.devices, strict=True)) == sorted(
        zip(mapping.hosts, mapping.devices, strict=True)
    )
    assert ordered.in_order() == ordered
    if mapping.consecutive:
        assert mapping.block_order == list(range(mapping.ranks))


@pytest.mark.parametrize("given", [{"hosts": ()}, {"hosts": "ab"}, {"hosts": None}, {"hosts": (1,)}])
def test_a_mapping_by_hand_is_checked(given):
    with pytest.raises(InputRefused):
        Mapping(**given)
    with pytest.raises(InputRefused):
        Mapping(("a", "b"), (0,))
