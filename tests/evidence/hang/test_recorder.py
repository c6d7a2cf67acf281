"""Flight-recorder dumps as evidence: versions, both forms, and what each field hides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.evidence.hang.dump_names import rank_in_name
from labkit.evidence.hang.recorder import read_dump, version_of
from tests.evidence.hang.dump_cases import dump, entry


def read(value, path="trace_rank_0"):
    return read_dump(value, path)


def only(value, path="trace_rank_0"):
    (call,) = read(value, path).calls
    return call


@pytest.mark.parametrize("version", ["2.3", "2.4", "2.7", "2.10"])
def test_every_version_reads_alike(version):
    evidence = read(dump([entry()], version))
    assert evidence.warnings == []
    (call,) = evidence.calls
    assert (call.rank, call.sequence, call.operation, call.sizes_in) == (0, 1, "all_reduce", ((4,),))
    assert (call.dtype, call.state, call.order, call.limit) == ("float", "completed", 0, 600.0)
    assert call.group.ranks == (0, 1) and call.group.description == "default_pg"
    assert evidence.calls_recorded and evidence.states_recorded


def test_versions_are_two_whole_numbers():
    assert version_of({"version": "2.10"}) > version_of({"version": "2.4"}) > version_of({"version": "2.3"})
    for odd in ("2", None, 2.1e9, "two", "3.0", ["2", "4"]):
        (warning, *_) = read(dump([entry()], odd)).warnings
        assert "version" in warning


def test_what_is_optional_may_be_absent():
    slim = entry()
    for key in ("is_p2p", "retired", "time_created_ns", "timeout_ms", "op_id", "input_dtypes"):
        slim.pop(key)
    evidence = read(dump([slim], version="2.3"))
    assert evidence.calls[0].limit is None and evidence.calls[0].dtype == ""
    assert evidence.warnings == ["trace_rank_0: an entry has no input_dtypes that can be read"]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("nccl:all_to_all", "all_to_all"),
        ("nccl:_broadcast_oop", "broadcast"),
        ("xccl:all_reduce", "all_reduce"),
        ("hccl:allreduce", "all_reduce"),
        ("nccl:coalesced", "coalesced"),
        ("gloo:barrier", "barrier"),
        ("nccl:reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("nccl:newest_operation", "newest_operation"),
    ],
)
def test_operations_have_the_names_of_this_package(name, operation):
    assert only(dump([entry(operation=name)])).operation == operation


def test_shapes_are_kept_for_each_tensor():
    call = only(dump([entry(input_sizes=[[2, 3], []], output_sizes=[])]))
    assert (call.sizes_in, call.sizes_out) == (((2, 3), ()), ())
    old, new = (
        only(dump([entry(operation="nccl:all_to_all")], version)).sizes_in for version in ("2.3", "2.4")
    )
    assert old is None and new == ((4,),)


def test_the_list_of_ranks_is_a_text_and_keeps_its_order():
    assert only(dump([entry()], ranks="[6, 0, 3]")).group.ranks == (6, 0, 3)
    for cut in ("[0, 1, 2", "[0, 1, ...]", "0, 1", "[0, 0]", "[-1]", 7):
        evidence = read(dump([entry()], ranks=cut))
        assert evidence.calls[0].group.ranks is None
        assert any("cut off or damaged" in warning for warning in evidence.warnings)


def test_peers_are_positions_in_the_unsorted_list():
    """Section 5, points 5 and 6: rank 0 counts as a peer, and [6, 0, 3] stays in that order."""
    send = entry(operation="nccl:send 0->2", p2p_seq_id=5, is_p2p=True)
    receive = entry(operation="nccl:recv 0<-1", p2p_seq_id=6, is_p2p=True)
    evidence = read(dump([send, receive], ranks="[6, 0, 3]"), "dump")
    assert [(call.operation, call.peer, call.sequence) for call in evidence.calls] == [
        ("send", 3, 5),
        ("recv", 0, 6),
    ]
    assert {call.rank for call in evidence.calls} == {6}  # its own position is 0: whose dump it is


def test_a_peer_that_cannot_be_known_is_open():
    for name, ranks in (("nccl:send 0->7", "[0, 1]"), ("nccl:send 0->1", "[0, 1"), ("nccl:send", "[0, 1]")):
        evidence = read(dump([entry(operation=name)], ranks=ranks))
        assert evidence.calls[0].peer is None and "peer" in evidence.warnings[-1]


def test_group_numbers_are_used_inside_one_dump_only():
    """Two processes number the same groups differently."""
    one, other = entry(pg_id=0), entry(pg_id=1, process_group=("7", "tensor"), record_id=1)
    status = {"0": {"last_enqueued_collective": 4}, "1": {"last_enqueued_collective": 9}}
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"},
        "7": {"name": "7", "desc": "tensor", "ranks": "[0, 1]"},
    }
    swapped = [dict(one, pg_id=1), dict(other, pg_id=0)]
    turned = {"0": status["1"], "1": status["0"]}
    for entries, counters in (([one, other], status), (swapped, turned)):
        waits = read(dump(entries, pg_config=config, pg_status=counters)).waits
        assert {wait.group.name: wait.enqueued for wait in waits} == {"0": 4, "7": 9}


def test_status_of_a_group_without_entries():
    """A rank that has called nothing has no entries: the default group is number 0 all the same."""
    none = {key: -1 for key in ("last_enqueued_collective", "last_started_collective")}
    (wait,) = read(dump([], pg_status={"0": none})).waits
    assert (wait.group.name, wait.enqueued, wait.started, wait.completed) == ("0", 0, 0, None)
    evidence = read(dump([], pg_status={"0": none, "5": none}))
    assert len(evidence.waits) == 1 and "left out" in evidence.warnings[0]


def test_gloo_leaves_states_and_counters_open():
    """Every entry is scheduled and retired, completed counts what timed out, no group lists its ranks."""
    gloo = [entry(at, "gloo:all_reduce", state="scheduled", op_id=at + 1) for at in (1, 2)]
    status = {"last_enqueued_collective": 3, "last_started_collective": -1, "last_completed_collective": 3}
    config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    evidence = read(dump(gloo, pg_config=config, pg_status={"0": status}))
    assert {call.state for call in evidence.calls} == {""} and not evidence.states_recorded
    (wait,) = evidence.waits
    assert (wait.enqueued, wait.started, wait.completed, wait.call) == (2, None, None, None)
    assert [group.name for group in evidence.groups] == ["0"] and evidence.warnings == []


def test_retired_and_unfinished_is_a_call_given_up():
    entries = [entry(1), entry(2, state="started"), entry(3, state="scheduled", retired=False)]
    given_up, status = read(dump(entries)).waits
    assert (given_up.call.sequence, given_up.limit, given_up.waited) == (2, 600.0, None)
    assert status.enqueued == 3


def test_frames_where_there_are_any():
    frames = [{"name": "step", "filename": "train.py", "line": 8}] * 2
    call = only(dump([entry(frames=frames)]))
    assert [(frame.function, frame.file, frame.line) for frame in call.frames] == [
        ("step", "train.py", 8)
    ] * 2
    assert only(dump([entry()])).frames == ()
    evidence = read(dump([entry(frames=[{"name": 3}])]))
    assert evidence.calls[0].frames == () and "frames" in evidence.warnings[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"collective_seq_id": "many"}, "no sequence number"),
        ({"profiling_name": None}, "does not name its operation"),
        ({"process_group": None, "pg_id": 9}, "does not name its group"),
        ({"input_sizes": 7}, "input_sizes"),
        ({"input_sizes": [[-1]]}, "input_sizes"),
        ({"output_sizes": ["ab"]}, "output_sizes"),
        ({"input_dtypes": "Float", "state": 3}, "state"),
        ({"state": "sleeping"}, "state"),
    ],
)
def test_a_field_of_another_form_is_said_and_the_rest_kept(wrong, said):
    evidence = read(dump([entry(1), entry(2, **wrong)]))
    assert any(said in warning for warning in evidence.warnings), evidence.warnings
    assert evidence.calls[0].sequence == 1


def test_entries_that_are_none():
    evidence = read(dump([None, 3, entry(3)]))
    assert len(evidence.calls) == 1 and evidence.warnings == [
        "trace_rank_0: an entry is no record and is left out (2 times)"
    ]
    for entries in (None, {}, "text"):
        assert "no list" in read(dump(entries=[], version="2.4") | {"entries": entries}).warnings[0]


def test_entries_may_be_missing_altogether():
    """JSON leaves the key out where a rank has called nothing; its counters say so too."""
    bare = dump([])
    del bare["entries"]
    evidence = read(bare)
    assert evidence.calls == [] and evidence.warnings == [] and evidence.calls_recorded
    assert "no pg_config" in read({"version": "2.4", "entries": []}).warnings[0]


@pytest.mark.parametrize("entries", [{}, {"entries": []}, {"entries": None}])
def test_no_entries_are_no_calls_only_where_the_counters_agree(entries):
    full = dump([entry(1), entry(2)])
    del full["entries"]
    evidence = read(full | entries)
    assert not evidence.calls_recorded and evidence.waits[0].enqueued == 2
    assert "pg_status counts 2 calls, so what this rank called is not known" in evidence.warnings[-1]
    uncounted = read(full | entries | {"pg_status": {}})
    assert not uncounted.calls_recorded and "nothing counts calls" in uncounted.warnings[-1]


@pytest.mark.parametrize("key", ["collective_seq_id", "process_group", "profiling_name"])
def test_a_dump_of_which_no_entry_can_be_compared_says_so(key):
    entries = [entry(1), entry(2)]
    for one in entries:
        del one[key], one["pg_id"]
    evidence = read(dump(entries, pg_status={}))
    assert not evidence.calls_recorded
    assert any(key in one and "(2 times)" in one for one in evidence.warnings)
    assert "none of its 2 entries can be held against another rank's" in evidence.warnings[-1]
    assert read(dump([entry(1), entries[1]])).calls_recorded


def test_texts_of_a_dump_are_printable_and_bounded():
    """A name may steer a terminal: everything that the reader hands on is on one line without escapes."""
    odd = "g\x1b[2J\n\u202e" + "x" * 500
    frames = [{"name": odd, "filename": odd, "line": 1}]
    made = entry(
        1, f"nccl:{odd}", process_group=(odd, odd), state=odd, input_dtypes=[odd, odd], frames=frames
    )
    evidence = read(dump([made], version=odd, pg_config={odd: {"name": odd, "desc": odd, "ranks": "[0, 1]"}}))
    (call,) = evidence.calls
    frame = call.frames[0]
    texts = [call.operation, call.dtype, call.state, call.group.name, call.group.description]
    texts += [frame.function, frame.file, *evidence.warnings]
    assert all(one.isprintable() and len(one) <= 400 for one in texts)
    assert call.group.ranks == (0, 1) and call.group.name.startswith("g?[2J??x")


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_5", 5),
        ("nccl_trace_rank_node02_5", 5),
        ("nccl_trace_rank_12.json.gz", 12),
        ("rank3_dump.pkl", 3),
        ("node02/rank_7/dump", 7),
        ("trace12", 12),
        ("dump", None),
    ],
)
def test_the_rank_of_a_file_name(name, rank):
    assert next(iter(rank_in_name(name)), None) == rank


def test_a_host_number_before_the_rank_is_told_apart_by_the_group():
    evidence = read(dump([entry()], ranks="[0, 1, 2, 3, 4, 5, 6, 7]"), "trace_node025")
    assert evidence.sources[0].rank == 5 and "read as rank 5" in evidence.warnings[0]


def test_a_name_that_cannot_be_right_leaves_the_rank_open():
    for path, said in (("trace_rank_9", "not in its groups"), ("dump.json", "tells its rank")):
        evidence = read(dump([entry()]), path)
        assert evidence.sources[0].rank is None and evidence.calls[0].rank is None
        assert said in evidence.warnings[0]


def test_content_overrules_a_name():
    send = entry(operation="nccl:send 1->0", p2p_seq_id=1)
    evidence = read(dump([send]), "trace_rank_0")
    assert evidence.sources[0].rank == 1 and "name says 0" in evidence.warnings[0]
    state = {"nccl_comm_state": {"0xab": {"rank": "1", "nRanks": "2"}}}
    assert read(dump([entry()], **state), "dump").sources[0].rank == 1


def test_a_dump_of_too_many_entries_keeps_the_last(monkeypatch):
    from labkit.evidence.hang import recorder

    monkeypatch.setattr(recorder, "MOST_ENTRIES", 2)
    evidence = read(dump([entry(at) for at in (1, 2, 3)]))
    assert [call.sequence for call in evidence.calls] == [2, 3] and "last 2" in evidence.warnings[0]


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["0", "[0]"]),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(entry())), ANYTHING)
def test_any_value_in_any_field_of_an_entry_is_no_traceback(key, value):
    evidence = read(dump([entry(1), entry(2, **{key: value})]))
    assert evidence.calls[0].sequence == 1


@given(st.sampled_from(sorted(dump())), ANYTHING)
def test_any_value_at_the_top_is_no_traceback(key, value):
    read(dump([entry()]) | {key: value})


@given(ANYTHING, ANYTHING)
def test_any_value_in_a_group_and_in_a_counter_is_no_traceback(ranks, counters):
    read(dump([entry()], pg_config={"0": {"ranks": ranks}}, pg_status={"0": counters, "x": {"a": ranks}}))
    read(dump([entry(frames=ranks)], pg_config={"0": counters, "": ranks}, nccl_comm_state={"a": counters}))


@pytest.mark.parametrize("key", sorted(entry()))
@pytest.mark.parametrize("config", [{}, {"0": {"name": "0", "desc": "", "ranks": "[0, 1]"}}])
def test_any_field_may_be_missing(key, config):
    less = entry(2)
    del less[key]
    evidence = read(dump([entry(1), less], pg_config=config))
    assert evidence.calls[0].sequence == 1 and len(evidence.calls) >= 1 + (key != "profiling_name")
