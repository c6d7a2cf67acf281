"""Section 6.1's claims: hangs, what is compared, and what logs, stacks and messages tell."""

from labkit.course import chapter6_hangs as hangs
from labkit.course import chapter6_logs as logs
from labkit.course.claims import claim
from labkit.evidence.hang_jobs import recorded_hang, silences
from labkit.evidence.hang_jobs.overhead import log_overhead
from labkit.evidence.triage.hangs import QUESTIONS
from labkit.spec.rule import counted, listed
from labkit.units import digits, format_share, format_time, words


@claim(
    "6.1-a",
    "(table lost) hang triage: count, order, shape do not match 次数、顺序、张量形状不一致",
    guide="three kinds; the log says who does not keep up",
)
def kinds():
    said = []
    for kind in ("count 次数", "order 顺序", "shape 形状"):
        found = hangs.hang(hangs.KINDS[kind])
        differs = f" ({listed(list(found.findings[0].differs), 'and')})" if found.findings[0].differs else ""
        said.append(
            f"{kind.split()[0]}: {words(found.verdict)}{differs} at call {found.first.sequence}, likely "
            f"{hangs.named(found)}"
        )
    return f"recorded jobs of 4 ranks, from their files: {'; '.join(said)}"


@claim(
    "6.1-b",
    "Debug logging slows the run: turn it off 定位完立刻关掉",
    guide="slows noticeably; never in production",
    verdict="approximately",
    why="what a level costs is measured in 6.1-g; a bounded recorder of calls can stay on, and a hang that "
    "nobody awaits needs one",
)
def logging():
    cost = {one.setting: one for one in log_overhead()}
    checked, kept = (digits(cost[name].ratio) for name in ("DETAIL", "flight recorder"))
    noise = "" if cost["flight recorder"].told else ", not told from the noise"
    return f"a step with DETAIL {checked} times as long, with the recorder on {kept} times{noise}"


@claim(
    "6.1-c",
    "Nine of ten hangs are mismatched collectives 九成是集合通信不匹配",
    guide="90 %, 根因几乎都是",
    verdict="corrected",
    why="nobody has counted, and from outside a rank that died or that still loads looks the same: first ask "
    "which ranks are alive, and whether any is outside of a collective",
)
def nine_of_ten():
    alike = ("branch", "missing", "loading", "circular")
    said = [f"{name}: {words(hangs.hang(name).verdict)}" for name in alike]
    quiet = {seconds for name in alike for seconds in (silences(recorded_hang(name))[0],)}
    return (
        f"{len(alike)} recorded jobs whose rank 0 says the same, nothing for "
        f"{listed([format_time(one) for one in sorted(quiet)], 'to')} and then that it timed out: "
        f"{'; '.join(said)}"
    )


@claim(
    "6.1-d",
    "INFO or WARN prints every call, its size, its ranks 把每次集合通信的操作类型、数据量、参与方都打出来",
    guide="at INFO or WARN",
    verdict="corrected",
    why="WARN prints no calls, and INFO by default covers the start alone: NCCL_DEBUG_SUBSYS must name COLL",
)
def levels():
    return logs.levels_said()


@claim(
    "6.1-e",
    "Look at which operation the last line stops 看最后一条日志停在哪个操作上",
    guide="the last line is the stuck call",
    verdict="approximately",
    why="a line is written when a call is queued, and the host runs ahead: the last line is the last issued; "
    "compare the counters of all ranks, group by group",
)
def last_line():
    rows = {row[0]: row[1:] for row in hangs.counters_table().rows}
    line, made, waits = rows["rank 0"]
    stuck, issued = hangs.made_counters()
    return (
        f"recorded: rank 0's log ends with '{line}', its call {made}; it waits in {waits.split(',')[0]}; "
        f"rank 3 has made {rows['rank 3'][1]}; made up, 3 calls queued ahead: last line call {issued}, "
        f"stuck call {stuck}"
    )


@claim(
    "6.1-f",
    "The Python stack does not show the hang 挂起发生在 C++ 层面的等待上，Python 栈是看不到的",
    guide="logs are far more useful than the stack",
    verdict="approximately",
    why="it shows no transfer, but the line that called, and a rank in its loader, in a save or in an "
    "evaluation apart from one that waits: both sources are used",
)
def stacks():
    rows = hangs.stack_table().rows
    sites = [f"{row[0]} {row[3]} from {row[1]}, line {row[2]}" for row in rows[:2]]
    return f"recorded: {'; '.join(sites)}; so {hangs.triage('branch').cause.evidence}"


@claim(
    "6.1-g",
    "Debug logs slow the run markedly 调试日志会显著拖慢性能",
    guide="significantly",
    verdict="approximately",
    why="it depends on the level: measured on a real data-parallel job with gloo; NCCL's own levels cost "
    "time on GPUs, and were not measured here",
)
def overhead():
    base, *others = log_overhead()
    more = [f"{one.setting} {digits(one.ratio)} times" for one in others]
    told = [one.setting for one in others if one.told]
    apart = max(base.rounds) / min(base.rounds) - 1
    return (
        f"a step of {format_time(base.step)} without; {', '.join(more)}; rounds without differ by up to "
        f"{format_share(apart)}, and only {listed(told, 'and')} is slower in every round"
    )


@claim(
    "6.1-h",
    "Counts, order or shapes 要么次数不一致，要么顺序不一致，要么张量形状不一致",
    guide="three kinds",
    verdict="approximately",
    why="also data type, group, root and a rank that is missing; and a size that differs may pass with wrong "
    "data, so that no hang proves nothing",
)
def more_kinds():
    found = [f"{kind}: {words(hangs.hang(name).verdict)}" for kind, name in hangs.KINDS.items()]
    passed = hangs.hang("half_filled")
    received = next(line for line in hangs.says("half_filled", 1) if line.startswith("weights"))
    return (
        f"{'; '.join(found)}; 4 elements sent where 8 are expected: no hang, rank 1 has {received}, and the "
        f"dumps say {passed.verdict} at call {passed.first.sequence}"
    )


@claim(
    "6.1-i",
    "No error at all, it just stands still 没有任何报错，就是不动了",
    guide="no error",
    verdict="approximately",
    why="true until the limit of 5.3 passes; then there is an error, which names the operation and its "
    "number where the back end knows them (NCCL's watchdog does, gloo's message does not)",
)
def two_moments():
    rows = hangs.moments_table().rows
    found = hangs.hang("branch")
    return (
        f"recorded, limit 4 s: {counted(len(rows), 'rank')} silent for {rows[0][1]}, then e.g. "
        f"'{rows[1][2]}'; from the dumps {found.first}"
    )


@claim(
    "6.1-j",
    "(table lost) the order of the questions 排查顺序我一般是这样的",
    guide="announced, not there",
)
def questions():
    names = ("order", "shape", "branch", "extra_batch", "loading")
    stops = [f"{words(name)} at {hangs.stop(hangs.triage(name).cause)}" for name in names]
    return f"{len(QUESTIONS)} questions: {'; '.join(QUESTIONS)}. Recorded jobs stop: {'; '.join(stops)}"
