"""Values and keys that earlier versions had: recorded runs show them, and nothing runs with them."""

from __future__ import annotations

import re

import pytest

from hmx.config import codec
from hmx.config.coerce import show, toml
from hmx.config.fields import FIELDS, get, replace
from hmx.config.schema import Config
from hmx.errors import HmxError, Unavailable
from hmx.registry.load import load
from hmx.runs.session import open_session

GONE = [(key, value) for key, field in FIELDS.items() for value in field.gone]
each_value = pytest.mark.parametrize(("key", "value"), GONE)


@each_value
def test_file_of_a_run_keeps_a_removed_value_and_a_new_run_is_refused(tmp_path, key, value):
    section, _, name = key.partition(".")
    file = tmp_path / "run.toml"
    file.write_text(f'schema = {codec.SCHEMA}\n[{section}]\n{name} = "{value}"\n')
    assert get(load(file=file, environ={}, check=False).config, key) == value
    works = f"{key}={FIELDS[key].default}"
    for layers, origin in (({"file": file}, "run.toml:3"), ({"sets": [f"{key}={value}"]}, "--set")):
        with pytest.raises(HmxError) as refusal:
            load(environ={}, **layers)
        text = f"{key} = {value} ({origin}): the value was removed; try {works}"
        assert text in refusal.value.message
    assert load(file=file, environ={}, sets=[works]).config == load(environ={}).config


@each_value
def test_run_with_a_removed_value_does_not_open(key, value):
    with pytest.raises(HmxError, match="the value was removed"):
        open_session(replace(Config(), {key: value}))
    assert value not in FIELDS[key].choices


@pytest.mark.parametrize(("key", "kept"), codec._REMOVED.items())
def test_removed_key_of_a_file_is_ignored_with_a_warning_unless_its_value_changes_nothing(tmp_path, key, kept):
    section, _, name = key.partition(".")
    file = tmp_path / "run.toml"
    file.write_text(f"[{section}]\n{name} = {toml(kept)}\n")
    assert load(file=file, environ={}).config == load(environ={}).config
    file.write_text(f'[{section}]\n{name} = "other"\n')
    why = f"the key was removed; it is always {show(kept)} now"
    text = f"{key} = other (run.toml:2) is ignored: {why}"
    with pytest.warns(Unavailable, match=re.escape(text)):
        assert load(file=file, environ={}).config == load(environ={}).config
    with pytest.raises(HmxError) as refusal:
        load(environ={}, sets=[f"{key}=other"])
    assert f"{key} = other (--set): {why}" in refusal.value.message
    assert key not in FIELDS


def test_removed_key_of_a_file_that_had_it_in_another_section_is_ignored(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('schema = 1\n[env]\nrules = "designed"\n[gumbel]\nsees = "player"\n[algo]\nauto_scale = false\n')
    assert load(file=file, environ={}).config == load(environ={}).config
