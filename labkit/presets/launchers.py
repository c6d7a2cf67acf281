"""What the settings of training frameworks mean, from ``data/launchers.toml``."""

from dataclasses import dataclass, field
from functools import cache

from labkit.errors import InputRefused
from labkit.presets.files import check_keys, shipped, sub_table, unknown_id

_WHERE = "launchers.toml"
_MEANINGS = ("gives", "sets", "values")


@dataclass(frozen=True, slots=True)
class Setting:
    """One flag: its value is the fact ``gives``, or switched on it ``sets`` facts, or each value has facts.

    ``default``: the value where the flag is left out. ``least``: its lowest number. ``text``: the value is
    no number. ``read_only``: one more spelling, which is understood but not written.
    """

    flag: str
    gives: str | None = None
    default: int | None = None
    least: int = 1
    sets: dict = field(default_factory=dict)
    values: dict[str, dict] = field(default_factory=dict)
    text: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Framework:
    """A training framework as ``data/launchers.toml`` describes it; see there for the tables."""

    id: str
    name: str
    form: str
    version: str
    source: str
    settings: dict[str, Setting]
    also: tuple[str, ...]
    always: dict[str, dict]
    elsewhere: dict[str, str]
    not_modelled: dict[str, str]
    other_shape: dict[str, str]
    off_at_one: tuple[str, ...]
    no_bearing: frozenset[str]
    models: dict[str, str]

    def without_bearing(self, flag: str) -> bool:
        """Whether a flag is known to change neither the plan nor its cost.

        >>> launcher("deepspeed").without_bearing("optimizer.params.lr")
        True
        """
        sections = (flag[:at] + ".*" for at, letter in enumerate(flag) if letter == ".")
        return flag in self.no_bearing or any(section in self.no_bearing for section in sections)


def launcher_ids() -> list[str]:
    """The frameworks that ``launcher`` knows.

    >>> launcher_ids()
    ['megatron-lm', 'deepspeed', 'torchtitan']
    """
    return list(shipped(_WHERE))


@cache
def launcher(id: str) -> Framework:
    """The settings of a framework. Refused: an id that none has.

    >>> launcher("megatron-lm").settings["tensor-model-parallel-size"].gives
    'tp'
    """
    frameworks = shipped(_WHERE)
    if not isinstance(id, str) or id not in frameworks:
        raise unknown_id(id, "framework", launcher_ids(), "a table of your own in data/launchers.toml")
    table, at = sub_table(frameworks, id, _WHERE, ""), f"[{id}]"
    tables = {"settings", "always", "elsewhere", "not_modelled", "other_shape", "names", "models"}
    required = {"name", "form", "version", "source", "also", "settings", "names"}
    check_keys(table, _WHERE, at, required=required, optional=tables, like=_WHERE)
    inner = {name: sub_table({name: {}} | table, name, _WHERE, f"{id}.") for name in tables}
    return Framework(
        id,
        *(table[name] for name in ("name", "form", "version", "source")),
        settings={flag: _setting(flag, given, at) for flag, given in inner["settings"].items()},
        also=tuple(table["also"]),
        off_at_one=tuple(inner["names"].get("off_at_one", ())),
        no_bearing=frozenset(inner["names"]["no_bearing"]),
        **{name: part for name, part in inner.items() if name not in ("settings", "names")},
    )


def _setting(flag: str, given: dict, at: str) -> Setting:
    """A setting, with one meaning and no key that nobody reads."""
    here = f"{flag} of {at}"
    optional = {*_MEANINGS, "default", "least", "text", "read_only"}
    check_keys(given, _WHERE, here, required=set(), optional=optional, like=_WHERE)
    if sum(name in given for name in _MEANINGS) != 1:
        raise InputRefused(f"{_WHERE}: {here} has not one meaning; write one of {', '.join(_MEANINGS)}")
    return Setting(flag, **given)
