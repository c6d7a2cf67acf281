"""Dumps for the tests, made as the recorder makes them; facts of the format, no copies."""

import json
import pickle


def entry(sequence=1, operation="nccl:all_reduce", **more):
    """One entry as version 2.4 and later have it."""
    return {
        "record_id": sequence - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": operation,
        "time_created_ns": 1_700_000_000_000_000_000 + sequence,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    } | more


def dump(entries=(), version="2.10", ranks="[0, 1]", **more):
    """A whole dump of one group."""
    return {
        "version": version,
        "comm_lib_version": "2.27.3",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": len(entries),
                "last_started_collective": len(entries),
                "last_completed_collective": len(entries),
            }
        },
        "entries": list(entries),
    } | more


def as_pickle(value, protocol=2):
    """The bytes that PyTorch would write."""
    return pickle.dumps(value, protocol=protocol)


def as_json(value):
    """The same as JSON: counters are texts, and an empty list of entries is left out."""
    value = dict(value)
    value["pg_status"] = {
        name: {key: str(number) for key, number in counters.items()}
        for name, counters in value["pg_status"].items()
    }
    if not value["entries"]:
        del value["entries"]
    return json.dumps(value).encode()
