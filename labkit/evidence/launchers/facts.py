"""From the flags of a framework to facts: what each says, where it stood, and what nobody knows."""

import re
from dataclasses import dataclass, field

from labkit.errors import InputRefused
from labkit.evidence.launchers.shell import plain_word, unknown_in
from labkit.presets.launchers import Framework, Setting
from labkit.spec import Plan

_NOT_GIVEN = ("None", "null", "")
_OFF = ("False", "false", "0", "off", "no", "none")
_NUMBER = re.compile(r"-?\d{1,12}")
_RANGE = re.compile(r"\d{1,6}[:-]\d{1,6}")  # of torchrun and Slurm: from as few hosts to as many
REST = ""  # the name of the words that stand alone and that only the run knows
_LONGEST = 80  # characters of a value in a sentence


@dataclass
class Facts:
    """What a file says: ``value`` of each fact, the flag it is ``from_``, and what its user must know."""

    framework: Framework
    value: dict = field(default_factory=dict)
    from_: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    other_shape: list[str] = field(default_factory=list)

    def get(self, name: str, default=None):
        """A fact; ``default`` where nothing says it."""
        return self.value.get(name, default)

    def take(self, *names: str) -> dict:
        """Those of the facts that are there."""
        return {name: self.value[name] for name in names if name in self.value}

    def flag(self, name: str) -> str:
        """How the framework spells what a fact is from, for a sentence."""
        return self.from_.get(name) or spelled(self.framework, _first(self.framework, name))

    def contradiction(self, words: str) -> None:
        """Reports what the framework itself checks before it starts."""
        self.warnings.append(f"{words}: {self.framework.name} refuses to start")

    def need(self, name: str, words: str, taken: str = "") -> None:
        """Reports that a fact is missing and how to give it, unless that is known already."""
        sentence = f"{words}: give {name}=" + (f" ({taken})" if taken else "")
        if not any(f"give {name}=" in one for one in self.missing):
            self.missing.append(sentence)


def spelled(framework: Framework, flag: str) -> str:
    """A flag as its file spells it.

    >>> from labkit.presets.launchers import launcher
    >>> spelled(launcher("megatron-lm"), "bf16"), spelled(launcher("deepspeed"), "train_batch_size")
    ('--bf16', 'train_batch_size')
    """
    return f"--{flag}" if framework.form == "command line" else flag


def _first(framework: Framework, fact: str) -> str:
    """The flag that a fact is usually given by."""
    for setting in framework.settings.values():
        if setting.gives == fact or fact in setting.sets:
            return setting.flag
    return fact


def same_order(plan: Plan, order: str) -> bool:
    """Whether the ranks of a plan stand as in another order: dimensions of one rank have no place.

    >>> same_order(Plan(tp=4, dp=2), "cp-tp-pp-dp"), same_order(Plan(tp=4, dp=2), "dp-tp-cp-pp")
    (True, False)
    """
    used = [[name for name in one.split("-") if plan.degree(name) > 1] for one in (plan.order, order)]
    return used[0] == used[1]


def normal(flag: str) -> str:
    """A flag with hyphens and underscores alike, which launchers do not tell apart."""
    return flag.lstrip("-").replace("_", "-")


def facts_of(framework: Framework, flags: dict) -> Facts:
    """What the flags of a file say; ``flags``: values by name, texts of a command line or Python's own.

    A switch of a command line has the value True. Refused: a number that is none.
    """
    found = Facts(framework)
    settings = {normal(flag): setting for flag, setting in framework.settings.items()}
    own_words = {normal(f): f for f in (*framework.not_modelled, *framework.other_shape)}
    bearing = {normal(flag) for flag in framework.no_bearing}
    for flag, value in flags.items():
        name, shown = normal(flag), spelled(framework, flag)
        if _is(value, _NOT_GIVEN) or value is None:
            continue
        if flag == REST:
            for word in value:
                words = " and ".join(unknown_in(word))
                found.missing.append(f"the value of {words}, which may hold further options: put them in")
            continue
        if name in settings:
            _settle(found, settings[name], shown, value)
        elif name in own_words:
            _leave_out(found, own_words[name], shown, value)
        elif name not in bearing and not framework.without_bearing(flag):
            found.unknown.append(shown if value is True else f"{shown} {_short(value)}")
    return found


def _settle(found: Facts, setting: Setting, shown: str, value) -> None:
    """Puts down what one known flag says."""
    names = (
        [setting.gives]
        if setting.gives
        else sorted({*setting.sets, *(n for v in setting.values.values() for n in v)})
    )
    value = value[0] if isinstance(value, list) and value and not setting.text else value
    open_ends = unknown_in(value) if isinstance(value, str) else []
    if open_ends and setting.sets:  # a switch, and behind it words of their own
        found.missing.append(
            f"the value of {' and '.join(open_ends)}, which may hold further options: put them in"
        )
    elif open_ends:
        for name in names:
            found.need(name, f"the value of {' and '.join(open_ends)} ({shown}), which only the run knows")
        return
    known = _value_of(setting, value)
    if known is None and _at_the_start(setting, value):
        for name in names:
            found.need(name, f"{shown} is {_short(value)!r}, which is filled in at the start of the run")
        return
    if setting.gives:
        said = {setting.gives: value if setting.text else _whole(shown, value, setting.least)}
    elif setting.values:
        if known is None:
            found.unknown.append(f"{shown} {_short(value)}")
            found.warnings.append(
                f"{shown} {_short(value)} is a value that is not known here; known are "
                f"{', '.join(setting.values)}"
            )
            return
        said = known
    else:
        said = {} if value is False or _is(value, _OFF) else setting.sets
    for name, one in said.items():
        before = found.value.get(name)
        if before is not None and before != one:
            found.warnings.append(
                f"{found.from_[name]} and {shown} contradict each other ({name} {before} and {one}): the "
                "last counts"
            )
        found.value[name], found.from_[name] = one, shown


def _leave_out(found: Facts, name: str, shown: str, value) -> None:
    """A known flag that the planner does not follow: said, unless it is switched off."""
    framework = found.framework
    off = ("1", *_OFF) if name in framework.off_at_one else _OFF
    if value is not True and (value in (False, []) or str(value).strip() in (*off, "-1", "[]")):
        return
    words = framework.not_modelled.get(name) or framework.other_shape[name]
    if name in framework.other_shape:
        found.other_shape.append(f"{shown}: {words}")
    else:
        found.warnings.append(f"{shown} is not modelled: {words}")


def _is(value, texts: tuple[str, ...]) -> bool:
    return isinstance(value, str) and value.strip() in texts


def _value_of(setting: Setting, value) -> dict | None:
    """What one of the known values says; an enumeration prints its class before it, and case is free."""
    text = str(value)
    for name in (text, text.rpartition(".")[2]):
        for known, said in setting.values.items():
            if name.lower() == known.lower():
                return said
    return None


def _at_the_start(setting: Setting, value) -> bool:
    """Whether a value is one that only the start of the run makes a number: "auto", the cards of a host, a
    range of hosts.
    """
    if setting.gives in ("nodes", "gpus_per_node") and isinstance(value, str):
        return value.strip() in ("auto", "gpu", "cpu", "-1") or bool(_RANGE.fullmatch(value.strip()))
    return _is(value, ("auto",))


def _whole(shown: str, value, least: int) -> int:
    """A whole number from a flag, ``least`` or more."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e12:
        value = int(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        more = f" from {least} up" if least >= 0 else f" from 1 up, or {least}"
        raise InputRefused(f"{shown} is {_short(value)!r}; give a whole number{more}")
    return value


def _short(value) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) and value else str(value)
    text = plain_word(text)
    return text if len(text) <= _LONGEST and text.isprintable() else ascii(text[:_LONGEST])[1:-1] + "..."
