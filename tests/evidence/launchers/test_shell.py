"""Shell scripts are read as a shell would read them, and never run."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import InputRefused
from labkit.evidence.launchers.shell import plain_word, read_script, unknown_in
from tests.evidence.launchers.samples import SLURM


def words(text):
    return [word for command in read_script(text).commands for word in command]


def test_a_scheduler_s_script():
    script = read_script(SLURM)
    assert script.variables["WORLD_SIZE"] == ["64"] and script.variables["GLOBAL"] == ["128"]
    assert "--nodes=8" in script.scheduler
    (command,) = [one for one in script.commands if "pretrain_gpt.py" in one]
    assert command[:2] == ["srun", "--label"]
    at = command.index("--data-path")
    assert command[at + 1] == "my corpus"
    assert command[command.index("--sequence-parallel") - 1] == "--overlap-grad-reduce"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nrun $A ${A} \"${A}b\" '$A'", ["run", "1", "1", "1b", "1"]),
        ("run --x \\\n  --y 2", ["run", "--x", "--y", "2"]),
        ("A=(--p 1 # one\n --q 2)\nrun ${A[@]}", ["run", "--p", "1", "--q", "2"]),
        ('A=(--p)\nA+=(--q 3)\nrun "${A[@]}"', ["run", "--p", "--q", "3"]),
        ("A='--p 1'\nA+=' --q'\nrun $A", ["run", "--p", "1", "--q"]),
        ("export A=4; B=$((A*2+1))\nrun $B", ["run", "9"]),
        ("A=4\nB=$(( (A - 1) * 3 / 2 % 3 ))\nrun $B", ["run", "1"]),
        ("run ${A:-5} ${B:=6} ${1:-7}", ["run", "5", "6", "7"]),
        ("run ${A:-${B:-8}}", ["run", "8"]),
        ("if [ 1 ]; then A=2; fi\nrun $A", ["[", "1", "]", "fi", "run", "2"]),
        ("X=1 run --a", ["run", "--a"]),
        ("A=2;run $A|tee log", ["run", "2", "tee", "log"]),
    ],
)
def test_what_a_shell_would_make_of_it(text, expected):
    assert words(text) == expected


def test_what_only_a_run_knows_is_marked():
    (_, first, second, third) = words("run $HOME_OF_JOB x$(hostname -s)y $((A + 1))")
    assert unknown_in(first) == ["$HOME_OF_JOB"] and plain_word(first) == "$HOME_OF_JOB"
    assert unknown_in(second) == ["$(hostname...)"] and plain_word(second) == "x$(hostname...)y"
    assert unknown_in(third) == ["$((A+1))"]


def test_nothing_is_run(tmp_path):
    mark = tmp_path / "mark"
    read_script(f"touch {mark}\nA=$(touch {mark})\nB=`touch {mark}`\nC=$((__import__('os')))\nrun $A $B $C")
    assert not mark.exists()


def test_files_that_a_script_writes_are_left_out_and_said():
    script = read_script('cat <<EOF > ds.json\n{"a": \'1}\nEOF\nrun --x')
    assert script.commands == [["cat"], ["ds.json"], ["run", "--x"]] or script.commands[-1] == ["run", "--x"]
    assert "left out" in script.warnings[0]


def test_a_variable_with_two_values_is_said():
    script = read_script("TP=4\nTP=8\nrun $TP")
    assert script.commands == [["run", "8"]]
    assert script.warnings == ["TP is set more than once (4, then 8): the last counts"]


def test_bounds():
    bomb = "A0=xxxxxxxx\n" + "\n".join(f"A{i + 1}=$A{i}$A{i}" for i in range(64)) + "\nrun $A64"
    with pytest.raises(InputRefused, match="grows beyond"):
        read_script(bomb)
    with pytest.raises(InputRefused, match="characters"):
        read_script("x" * 3_000_000)
    with pytest.raises(InputRefused, match="line 2 of the script never ends"):
        read_script('run\necho "open\n' + "word\n" * 500)
    huge = words("A=$((999999999999 * 999999999999))\nrun $A")[1]
    assert unknown_in(huge)
    assert unknown_in(words("A=$((2 ** 9999999))\nrun $A")[1])
    assert unknown_in(words("A=$((1 / 0))\nrun $A")[1])
    read_script("run " + "$(" * 3000 + "x" + ")" * 3000)
    read_script("run " + "${A:-" * 3000)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    with suppress(InputRefused):
        read_script(text)
