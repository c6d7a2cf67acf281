"""The bench's command line: the grammar of sizes, and one sentence for everything that is wrong."""

import importlib.util

import pytest

from labkit.collectives import names
from labkit.errors import InputRefused
from labkit.evidence.bench_options import OPERATIONS, need_torch, parse, size_sent, sizes_of


def test_every_operation_but_the_barrier():
    assert {*OPERATIONS, "barrier"} == set(names.ALGORITHMS)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1KiB:64MiB", [2**k for k in range(10, 27)]),
        ("8:100", [8, 16, 32, 64]),
        ("1kB:4kB", [1000, 2000, 4000]),
        ("2 MiB", [2 * 2**20]),
        ("16B:16b", [16]),
        ("1GiB:2gib", [2**30, 2**31]),
    ],
)
def test_sizes(text, sizes):
    assert list(sizes_of(text)) == sizes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("all_reduce --sizes 64MiB:1KiB", "falls"),
        ("all_reduce --sizes 1KiB:2KiB:4KiB", "cannot be read"),
        ("all_reduce --sizes 1.5KiB", "cannot be read"),
        ("all_reduce --sizes 3TiB", "cannot be read"),
        ("all_reduce --sizes 1", "outside 4 B to 64 GiB"),
        ("all_reduce --sizes 1KiB:65GiB", "outside 4 B to 64 GiB"),
        ("all_reduce --sizes 9999999999999999999999", "cannot be read"),
        ("allreduce", "no operation of the bench"),
        ("barrier", "no operation of the bench"),
        ("all_reduce --backend mpi", "use nccl or gloo"),
        ("all_reduce --timeout never", "--timeout is 'never'"),
        ("all_reduce --timeout 0", "above 0"),
        ("all_reduce --run-timeout nan", "above 0"),
        ("all_reduce --run-timeout 1e9", "at most 1440"),
        ("all_reduce --repeats 0", "--repeats is '0'"),
        ("all_reduce --warm-up -1", "--warm-up"),
        ("all_reduce --repeats 2.5", "--repeats is '2.5'"),
        ("all_reduce --more", "unrecognized arguments: --more"),
        ("", "operation|OPERATION"),
    ],
)
def test_refused(words, says):
    with pytest.raises(InputRefused, match=says) as refused:
        parse(words.split())
    assert "\n" not in str(refused.value)


def test_defaults_are_those_of_the_guide():
    options = parse(["all_reduce", "broadcast", "all_reduce"])
    assert options.operations == ("all_reduce", "broadcast")
    assert (options.sizes[0], options.sizes[-1]) == (2**10, 2**26)
    assert (options.timeout, options.run_timeout, options.interface, options.backend) == (30, 5, None, None)


def test_a_size_is_rounded_down_to_whole_elements_of_every_rank():
    assert size_sent("broadcast", 1003, 3) == 1000
    assert size_sent("all_to_all", 1003, 3) == 996
    with pytest.raises(InputRefused, match=r"8 B is too small for all_gather of 3 ranks; start at 12 B"):
        size_sent("all_gather", 8, 3)


def test_without_torch(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputRefused, match=r"pip install -e '.\[bench\]'"):
        need_torch()
