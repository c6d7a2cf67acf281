"""Section 5.3's claims on calls under a rank condition and of unequal shapes: real jobs, as they ended."""

from labkit.course.chapter6_stray import RANKS, listed
from labkit.course.claims import claim
from labkit.evidence.hang.read import read_hang
from labkit.evidence.hang_jobs import abort_said, recorded_hang, silences, sums, weights_received


@claim(
    "5.3-b",
    "Never call a collective under a rank condition 条件分支: the job hangs",
    guide="all other processes wait for ever",
    why="run: the job stands still until the limit, then every rank has an error, and the dumps of the "
    "flight recorder name the call and the rank",
)
def a_call_in_a_branch():
    folder = recorded_hang("branch")
    hang, waited = read_hang(folder), silences(folder)
    calls = "; ".join(f"rank {rank} {words}" for rank, words in hang.first.calls.items() if rank < 2)
    return (
        f"{len(waited)} ranks, silent for {max(waited.values()):g} s (the limit), then an error on each; "
        f"read: {hang.verdict} at call {hang.first.sequence}: {calls}; suspect: rank {hang.suspects[0]}"
    )


@claim(
    "5.3-c",
    "Do not call collectives under a condition, or pass tensors of different shapes 形状 instead",
    guide="different shapes are a way out",
    verdict="corrected",
    why="shapes must match on every rank, as 6.1 says itself: a job with one odd shape stops, or goes on "
    "with wrong numbers; ranks with less to give pad with zeros and a mask, or form a group of their own",
)
def shapes_must_match():
    hang = read_hang(recorded_hang("shape"))
    received = weights_received(recorded_hang("half_filled"))
    sent, got = received[0], received[1]
    old = sum(one != sent[0] for one in got)
    return (
        f"run with checks: {hang.verdict} at call {hang.first.sequence}, suspect rank {hang.suspects[0]}; a "
        f"broadcast of {len(sent)} into {len(got)} elements passes without a word and leaves {old} of them "
        "old"
    )


@claim(
    "5.3-e",
    "All processes but rank 0 wait for a message that never comes 永远不会到来的消息, without any error",
    guide="the others wait; no error",
    verdict="corrected",
    why="the reverse: rank 0 waits and the others walk on; its stray call pairs with their next one, which "
    "gives wrong numbers where sizes agree and ends a process where they do not; the hang comes at the end",
)
def who_waits_for_a_stray_call():
    waiting = silences(recorded_hang("walk_on"))
    silent = recorded_hang("silent")
    wrong = sums(silent)[1]
    right = [RANKS * (step + 1) for step in range(len(wrong))]
    died, received, expected = abort_said(recorded_hang("abort"))
    return (
        f"three jobs of {RANKS} ranks: rank {', '.join(map(str, waiting))} alone waits, {waiting[0]:g} s, "
        f"the others are done; same size: sums {listed(wrong)} instead of {listed(right)}, then rank "
        f"{', '.join(map(str, silences(silent)))} hangs; another size: rank {died} ends by a signal, "
        f"{received:,} bytes where {expected} fit"
    )
