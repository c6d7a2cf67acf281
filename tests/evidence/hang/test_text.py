"""What the readers make of small logs with the traits of real ones: spellings, labels, wraps, mixtures."""

import pytest

from labkit.evidence.hang.joined import join
from labkit.evidence.hang.records import NOTES, Evidence
from labkit.evidence.hang.text import read_text
from tests.evidence.hang.told import read, told

WORK = "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=5000)"
CAUGHT = "Watchdog caught collective operation timeout:"
RAN = "ran for 5010 milliseconds before timing out."


def nccl(message, host="n1", pid=10, device=0, level="INFO", place=""):
    return f"{host}:{pid}:{pid + 1} [{device}] {place}NCCL {level} {message}\n"


def made_call(name="AllReduce", number="a", count=8, comm="0xaa", size=2, root=0, dtype=7, more="", **at):
    return nccl(
        f"{name}: opCount {number} sendbuff 0x1 recvbuff (nil) count {count} datatype {dtype} op 0 "
        f"root {root} "
        f"comm {comm} [nranks={size}] stream 0x5{more}",
        **at,
    )


def init(rank, size=2, comm="0xaa", ident="0xfeed", step="COMPLETE", what="Init", **at):
    named = f" commId {ident}" if ident else ""
    return nccl(f"comm {comm} rank {rank} nranks {size} cudaDev 0 busId 1000{named} - {what} {step}", **at)


# ---- the watchdog


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"[Rank 3] {CAUGHT} WorkNCCL(OpType=BROADCAST, TensorShape=[2, 3], Timeout(ms)=5000) {RAN}",
         "3 in ?: broadcast - [[2, 3]] limit 5 waited 5.01"),
        (f"RuntimeError: [Rank 3] Caught collective operation timeout: {WORK} {RAN}",
         "3 in ?: all_reduce #12 x64 -> 64 limit 5 waited 5.01"),
        (f"[rank9]:[E1] [PG ID 4 PG GUID 22(TENSOR) Rank 1] Process group watchdog thread terminated with "
         f"exception: [Rank 1] {CAUGHT} {WORK} {RAN}",
         "9 in 22(TENSOR): all_reduce #12 x64 -> 64 limit 5 waited 5.01"),
        (f"[rank3]: Work {WORK} timed out in blocking wait.", "3 in ?: all_reduce #12 x64 -> 64 limit 5"),
        ("[rank3]:[E1] [PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog at work sequence "
         "id: 12 PG status: last enqueued work: 14, last started work: -1, last completed work: 11",
         "3 in 0(default_pg): enqueued 14 started -1 completed 11"),
        ("[rank3]:[E1] [PG 0 Rank 3] Timeout at NCCL work: 12, last enqueued NCCL work: 14, last completed "
         "NCCL work: 11.", "3 in 0: enqueued 14 completed 11"),
        ("[rank3]: [PG ID 2 PG GUID 7 Rank 1] last enqueued work: 39, last started work: 19 "
         "(_ALLGATHER_BASE), last completed work: 17", "3 in 7: enqueued 39 started 19 completed 17"),
        ("[rank1]: RuntimeError: [x/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for "
         "recv operation to complete", "1 in ?: waited 5"),
    ],
)  # fmt: skip
def test_spellings_of_the_watchdog(text, expected):
    assert told(read(text + "\n"))["waits"] == [expected]


@pytest.mark.parametrize("width", [40, 77, 100])
@pytest.mark.parametrize("padded", [False, True])
def test_lines_that_a_terminal_wrapped_are_joined(width, padded):
    before = "[rank3]:[E1] [PG 0 (default_pg) Rank 3] thread terminated with exception: [Rank 3]"
    line = f"{before} {CAUGHT} {WORK} {RAN}"
    parts = [line[start : start + width] for start in range(0, len(line), width)]
    text = "\n".join(part.ljust(width) if padded else part for part in parts) + "\nloss 2.5\n"
    assert told(read(text))["waits"] == ["3 in 0(default_pg): all_reduce #12 x64 -> 64 limit 5 waited 5.01"]


def test_one_work_is_told_once_however_often_it_is_reported():
    text = (
        f"[rank3]:[E1] [Rank 3] {CAUGHT} {WORK} {RAN}\n"
        "[rank3]:[E1] [PG ID 0 PG GUID 0(default_pg) Rank 3] Exception (either an error or timeout) detected "
        "by watchdog at work: 12, last enqueued NCCL work: 14, last completed NCCL work: 11.\n"
        f"[rank3]:[E1] [Rank 3] Work {WORK} timed out in blocking wait.\n"
        f"[rank3]:[E1] [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with "
        f"exception: [Rank 3] {CAUGHT} {WORK} {RAN}\n"
        f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group: [Rank 3] {CAUGHT} {WORK} {RAN}\n"
    )
    assert told(read(text))["waits"] == [
        "3 in 0(default_pg): all_reduce #12 x64 -> 64 limit 5 waited 5.01 enqueued 14 completed 11"
    ]


def test_groups_that_only_share_a_number_stay_apart():
    text = "".join(f"[rank{rank}]:[E1] [PG 1 Rank 0] [Rank 0] {CAUGHT} {WORK} {RAN}\n" for rank in (0, 4))
    evidence = read(text)
    assert {wait.group.name for wait in evidence.waits} == {"1 of rank 0", "1 of rank 4"}
    assert "each process counts its own groups" in evidence.warnings[0]


def test_two_messages_printed_into_one_line():
    text = (
        f"[rank1]:[E1] [Rank 1] {CAUGHT} WorkNCCL(SeqNum=12, Op[rank2]:[E1] [Rank 2] {CAUGHT} {WORK} {RAN}\n"
    )
    assert told(read(text))["waits"] == ["2 in ?: all_reduce #12 x64 -> 64 limit 5 waited 5.01"]


def test_a_number_cut_at_the_end_of_a_file_is_not_believed():
    line = "[rank3]: [PG ID 0 PG GUID 0(default_pg) Rank 3] last enqueued work: 14, last completed work: 1"
    assert "waits" not in told(read(line))
    assert told(read(line + "1\n"))["waits"] == ["3 in 0(default_pg): enqueued 14 completed 11"]


# ---- fingerprints


def printed(rank, sequence, name, shape="[4]", dtype="Float"):
    shown = (
        f", TensorShape={shape}, TensorDtypes={dtype}, TensorDeviceTypes=TensorOptions(dtype=float (default))"
    )
    number = f"SequenceNumber={sequence}, " if sequence is not None else ""
    inside = f"{number}OpType={name}{shown if shape else ''}"
    return f"Rank {rank} is running collective: CollectiveFingerPrint({inside})"


def test_pairs_are_told_once():
    both = printed(1, 5, "ALLREDUCE", "[2, 3]"), printed(0, 5, "BROADCAST", "[]", "Long")
    text = f"[rank1]: {both[0]}, but {both[1]}.\n[rank0]: {both[1]}, but {both[0]}.\n"
    assert told(read(text))["pairs"] == ["0 broadcast #5 [[]] long / 1 all_reduce #5 [[2, 3]] float"]


def test_a_barrier_has_no_shape_and_a_gather_without_one_is_unreadable():
    barrier = f"{printed(0, 7, 'BARRIER', '')}, but {printed(1, 7, 'ALLREDUCE')}."
    assert told(read(barrier + "\n"))["pairs"] == ["0 barrier #7 / 1 all_reduce #7 [[4]] float"]
    for torn in (f"{printed(0, 1649, 'BARRIER', '')}, but {printed(1, 0, 'GATHER', '')}.",
                 f"{printed(0, 9, 'ALLREDUCE')}, but {printed(2, 0, 'GATHER', '')}."):  # fmt: skip
        facts = told(read(torn + "\n"))
        assert set(facts) == {"warnings"}
        assert "gather 0 has no shape and cannot be read" in read(torn + "\n").warnings[0]


def test_ranks_that_a_monitored_barrier_misses():
    text = "[rank0]: RuntimeError: [Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms\n"
    assert told(read(text)) == {
        "notes": ["no rendezvous names [1, 2] | did not reach the monito"],
        "ranks": [0],
    }


# ---- calls of NCCL


@pytest.mark.parametrize(
    "label",
    ["", "1: ", "[1,3]<stdout>:", "n1: ", "2025-01-01T00:00:00Z ", "[default0]:", "[2025-01-01 00:00:00] "],
)
def test_labels_of_launchers(label):
    text = "".join(label + line for line in (init(0), init(1, pid=20), made_call(), made_call(pid=20)))
    facts = told(read(text))
    assert facts["calls"] == [f"{rank} in 0xfeed of 2: all_reduce #10 x8 float" for rank in (0, 1)]
    assert "warnings" not in facts


def test_peers_and_roots_are_those_of_the_job():
    world = [init(rank, size=4, comm="0xa", ident="0x1", pid=rank) for rank in range(4)]
    pair = [init(rank - 2, comm="0xb", ident="0x2", pid=rank) for rank in (2, 3)]
    text = "".join((
        *world, *pair,
        made_call("Send", comm="0xb", root=1, pid=2),
        made_call("Recv", comm="0xb", root=0, pid=3),
        made_call("Broadcast", comm="0xb", root=1, pid=3),
    ))  # fmt: skip
    evidence = read(text)
    assert told(evidence)["calls"] == [
        "2 in 0x2 of 2: send #10 x8 float peer 3",
        "3 in 0x2 of 2: recv #10 x8 float peer 2",
        "3 in 0x2 of 2: broadcast #10 x8 float root 3",
    ]
    assert evidence.calls[0].group.ranks == (2, 3)


def test_communicators_of_several_files_are_joined_by_id_alone():
    evidence = Evidence()
    for rank in range(2):
        text = init(rank, pid=rank, host=f"h{rank}") + made_call(pid=rank, host=f"h{rank}")
        evidence.add(read_text(text, f"log{rank}"))
    join(evidence)
    join(evidence)  # once more changes nothing
    assert [call.rank for call in evidence.calls] == [0, 1]
    assert {call.group.name for call in evidence.calls} == {"0xfeed"}


def test_without_ids_communicators_of_one_size_are_one_only_where_that_leaves_no_doubt():
    four = [made_call(pid=pid, device=pid) for pid in range(4)]  # four processes, communicators of two
    evidence = read("".join(four))
    assert len({call.group.name for call in evidence.calls}) == 4
    assert any("not compared" in warning for warning in evidence.warnings)
    two = read("".join(four[:2]))
    assert {call.group.name for call in two.calls} == {"communicator of 2 ranks"}
    assert [call.rank for call in two.calls] == [0, 1]
    apart = read(four[0] + made_call(host="n2", pid=1, device=0))
    assert [call.rank for call in apart.calls] == [0, 1]  # of two hosts: counted, and that is said
    assert "counted by host and device, which need not be their ranks" in apart.warnings[-1]


def test_wrapped_and_glued_calls():
    line = made_call().strip()
    wrapped = "\n".join(line[start : start + 60] for start in range(0, len(line), 60)) + "\n"
    assert len(read(init(0) + wrapped).calls) == 1
    assert len(read(init(0) + f"step 3 {line}{made_call(number='b')}").calls) == 2


def test_newer_forms_of_a_call():
    text = init(1) + made_call("ReduceScatter", more=" task 3 globalrank 1", dtype=9)
    assert told(read(text))["calls"] == ["1 in 0xfeed of 2: reduce_scatter #10 x8 bfloat16"]


def test_states_of_communicators():
    text = init(0, step="START") + init(0) + init(0, what="Destroy") + init(1, pid=20, step="START")
    assert told(read(text))["communicators"] == [
        "0 n1[0] 0xfeed of 2 began completed destroyed",
        "1 n1[0] 0xfeed of 2 began",
    ]
    old = nccl("comm 0xaa rank 0 nranks 1 - COMPLETE")
    assert told(read(old))["communicators"] == ["0 n1[0] communicator of 1 ranks of 1 began completed"]
    split = init(0, size=4, ident="0x9") + nccl(
        "ncclCommSplit comm 0xbb rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 parent 0xaa splitCount 1 "
        "color 3 key 0- Init START"
    )
    assert "0x9 split 1 color 3" in told(read(split))["communicators"][1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (nccl("anything", level="WARN", place="net.cc:1 "), "NCCL_DEBUG=WARN prints warnings alone"),
        (nccl("Using network IB"), "NCCL_DEBUG=INFO covers start-up alone"),
        ("n1:1:1 [0] INFO NET : Using interface eth0:10.0.0.1<0>\n", "covers start-up alone"),
    ],
)
def test_a_log_that_could_hold_no_calls_says_so(text, words):
    evidence = read(text)
    assert not evidence.calls_recorded
    assert "no calls in this log: wrong filter" in evidence.warnings[0] and words in evidence.warnings[0]


def test_training_text_alone_is_nothing():
    evidence = read("step 1 loss 2.5\nEpoch 3:  10%|#   | 10/100 [00:10<01:30, 1.0it/s]\n")
    assert told(evidence) == {}
    assert [source.kind for source in evidence.sources] == ["nothing"]


# ---- troubles


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (nccl("NET/IB : Got completion from peer 1.2.3.4<5> with error 12, opcode 0, len 0, vendor err 129",
              level="WARN", place="transport/net_ib.cc:9 "), "completion error"),
        (nccl("NET/IB: Got completion from peer 1.2.3.4<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0",
              level="WARN"), "completion error"),
        (nccl("Connect to 10.0.0.1<39507> failed : Connection refused", level="WARN"), "connection"),
        (nccl("Cuda failure 'out of memory'", level="WARN"), "out of memory"),
        (nccl("Bootstrap : no socket interface found", level="WARN"), "no network"),
        (nccl("something nobody knows", level="WARN"), "warning"),
        (nccl("NET/Plugin: Could not find: ofi libnccl-net-ofi.so. Using internal network plugin."),
         "no network"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n", "out of memory"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0\n", "out of memory"),
        ("srun: error: n3: task 3: Killed\n", "exited"),
        ("mpirun noticed that process rank 3 with PID 9 on node n1 exited on signal 9 (Killed).\n", "exited"),
        ("Timed out after 61 seconds waiting for clients. 7/8 clients joined.\n", "no rendezvous"),
        ("[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store "
         "by key '0', but store->get('0') got error: wait timeout after 600000ms\n", "no rendezvous"),
        ("[rank1]: RuntimeError: Gloo connectFullMesh failed with no error\n", "no rendezvous"),
        ("[rank1]: RuntimeError: [x/gloo/pair.cc:5] Connection closed by peer [127.0.0.1]:99\n",
         "connection"),
    ],
)  # fmt: skip
def test_kinds_of_trouble(text, kind):
    (note,) = read(text).notes
    assert note.kind == kind and kind in NOTES


def test_an_exception_counts_where_it_is_no_consequence():
    head = "[rank2]: Traceback (most recent call last):\n"
    own = read(head + "[rank2]: ValueError: bad batch\n")
    assert told(own)["notes"] == ["exception of 2 | ValueError: bad batch"]
    for effect in (
        "torch.distributed.DistBackendError: NCCL error",
        f"RuntimeError: [Rank 2] {CAUGHT} timed out",
        "RuntimeError: [gloo/x.cc:81] Timed out waiting 5000ms for recv operation to complete",
    ):
        assert "notes" not in told(read(f"{head}[rank2]: {effect}\n"))
    assert "notes" not in told(read("[rank2]: UserWarning: ValueError: no traceback above\n"))


def report(rank, code):
    return f"[0]:\n  time      : x\n  rank      : {rank} (local_rank: 1)\n  exitcode  : {code} (pid: 9)\n"


def test_an_abort_after_a_timeout_is_its_end_and_no_cause():
    assert told(read(report(3, -9)))["notes"] == ["exited of 3 | ended by SIGKILL (exit c"]
    assert told(read(report(3, -6)))["notes"] == ["exited of 3 | ended by SIGABRT (exit c"]
    assert "notes" not in told(read(report(3, -15)))
    late = read(f"[rank3]: [Rank 3] {CAUGHT} {WORK} {RAN}\n" + report(3, -6))
    assert told(late)["notes"] == ["exited names [3] | ended by SIGABRT (exit c"]


def test_loading_counts_where_nothing_ordinary_follows():
    bar = " 35%|##   | 7/20 [30:01<1:57:14, 39.1MB/s]\r 40%|##   | 8/20 [31:00<1:50:00, 39.1MB/s]\n"
    timeout = f"[rank3]: [Rank 3] {CAUGHT} {WORK} {RAN}\n"
    (note,) = read(bar + timeout).notes
    assert (note.kind, note.elapsed, note.seconds) == ("loading", 1860, 6600)
    assert not read(bar + "step 1 loss 2.5\n" + timeout).notes
    assert not read(bar.replace("40%", "100%") + timeout).notes
    (note,) = read("[rank0]: Saving checkpoint to /data/step5000\n" + timeout).notes
    assert (note.kind, note.rank) == ("loading", 0)


def test_the_name_of_a_file_may_tell_the_rank():
    text = "Traceback (most recent call last):\nKeyError: 'x'\n"
    (note,) = read(text, "logs/rank_5.err").notes
    assert note.rank == 5
