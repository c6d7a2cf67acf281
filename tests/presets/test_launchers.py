"""The table of launcher settings: whole, and about plans and models as they are."""

from dataclasses import fields

import pytest

from labkit.errors import InputRefused
from labkit.presets.launchers import launcher, launcher_ids
from labkit.spec import Plan

PLAN = {field.name for field in fields(Plan)}
each = pytest.mark.parametrize("id", launcher_ids())


@each
def test_every_setting_of_a_plan_has_its_place(id):
    """A field of a plan is a setting, or what the framework always does, or stands in the user's code."""
    framework = launcher(id)
    said = set(framework.always) | set(framework.elsewhere)
    for setting in framework.settings.values():
        said |= {setting.gives, *setting.sets, *(name for facts in setting.values.values() for name in facts)}
    worked_out = {
        "megatron-lm": {"dp", "accumulation", "zero", "shard_ranks", "stage_layers", "recompute_every"},
        "deepspeed": {"dp", "balanced"},  # which is of a ring alone
        "torchtitan": {
            "dp",
            "v",
            "micro_batch",
            "accumulation",
            "zero",
            "shard_ranks",
            "stage_layers",
            "sequence_parallel",
        },
    }
    assert PLAN - said == worked_out[id] - said


@each
def test_what_a_framework_always_does_can_stand_in_a_plan(id):
    for name, rule in launcher(id).always.items():
        assert name in PLAN and rule["why"]
        assert getattr(Plan(**{name: rule["is"]}), name) == rule["is"] if "is" in rule else Plan.__slots__


@each
def test_no_flag_stands_in_two_tables(id):
    framework = launcher(id)
    tables = [framework.settings, framework.not_modelled, framework.other_shape, framework.no_bearing]
    names = [flag for table in tables for flag in table]
    assert len(names) == len(set(names))
    assert framework.source and framework.version and framework.form in ("command line", "JSON", "TOML")


def test_models_of_a_framework_are_presets():
    from labkit.presets import model_ids

    for id in launcher_ids():
        assert set(launcher(id).models.values()) <= set(model_ids())


def test_an_unknown_framework_is_refused_with_the_nearest():
    for wrong in ("megatron", "deep", None, 3):
        with pytest.raises(InputRefused, match="known are megatron-lm, deepspeed, torchtitan"):
            launcher(wrong)
