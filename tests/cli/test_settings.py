"""Flag over environment over config file, and config files that are wrong."""

import json
import re

import pytest
from platformdirs import user_config_path, user_data_path

from longctx.cli import settings


@pytest.fixture
def config(tmp_path):
    """Writes the config file."""
    return (tmp_path / "config.toml").write_text


def library_in_use(result) -> str:
    """The folder that a command looked for: every `list` here fails for want of it."""
    assert result.exit_code == 10, result.output
    return re.search(r"no library at '(.*?)'", result.stderr)[1]


def test_flag_over_environment_over_config(longctx, config, monkeypatch):
    config('library = "general"\n')
    assert library_in_use(longctx("list", "--library", "flag")) == "flag"
    monkeypatch.setenv("LONGCTX_LIBRARY", "environment")
    assert library_in_use(longctx("list", "--library", "flag")) == "flag"
    assert library_in_use(longctx("list")) == "environment"
    monkeypatch.delenv("LONGCTX_LIBRARY")
    assert library_in_use(longctx("list")) == "general"
    config('library = "general"\n[list]\nlibrary = "table"\n[show]\nlibrary = "other"\n')
    assert library_in_use(longctx("list")) == "table"


def test_the_config_file_is_in_the_config_folder(monkeypatch):
    monkeypatch.delenv("LONGCTX_CONFIG")
    assert settings.config_path() == user_config_path("longctx") / "config.toml"


def test_default_library_is_in_the_data_folder(longctx, monkeypatch):
    monkeypatch.delenv("LONGCTX_LIBRARY")
    monkeypatch.setattr("longctx.core.store.library.Library.open", lambda path: opened.append(path))
    opened = []
    longctx("list")
    assert set(opened) == {user_data_path("longctx") / "library"}


def test_keys_may_have_dashes_or_underscores(longctx, config):
    for key in ("max-new-tokens", "max_new_tokens"):
        config(f'{key} = "many"\n')
        result = longctx("ask", "who?")
        assert result.exit_code == 2
        assert "--max-new-tokens" in result.stderr


def test_json_by_setting(longctx, config, monkeypatch):
    config("json = true\n")
    assert json.loads(longctx("list").stderr)["error"]["code"] == 10
    monkeypatch.setenv("LONGCTX_JSON", "0")
    assert "error: no library" in longctx("list").stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modell = 'tiny'", ["'modell'", "model", "library", "top-p"]),
        ("yes = true", ["'yes'"]),
        ("[list]\nmodel = 'tiny'", ["'model'", "[list]", "library"]),
        ("[lst]\nlibrary = 'x'", ["'lst'", "list"]),
        ("library = ['x']", ["'library'", "list"]),
        ("library = ", ["config.toml"]),
    ],
)
def test_what_the_config_file_must_not_hold(longctx, config, text, said):
    config(text)
    result = longctx("list")
    assert result.exit_code == 2
    assert all(word in result.stderr for word in said), result.stderr


def test_a_config_file_that_is_named_must_exist(longctx, monkeypatch, tmp_path):
    monkeypatch.setenv("LONGCTX_CONFIG", str(tmp_path / "none.toml"))
    result = longctx("list")
    assert result.exit_code == 2
    assert "none.toml" in result.stderr


def test_help_and_version_do_not_read_the_config_file(longctx, config):
    config("wrong")
    assert longctx("--help").exit_code == 0
    assert longctx("--version").exit_code == 0


def test_how_keys_and_values_are_kept_is_no_setting(longctx, config):
    """It would make every command fail whose method keeps none."""
    config('kv-dtype = "int8"\n')
    result = longctx("ingest", "book.txt")
    assert "unknown key 'kv-dtype'" in result.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [("threads = 2\n\nlimit = 'x'\n", 3), ("limit = 3\n[find]\n\nlimit = 'x'\n", 4)],
)
def test_a_wrong_value_names_the_file_and_the_line(longctx, tmp_path, text, line):
    (tmp_path / "config.toml").write_text(text)
    result = longctx("find", "rain")
    assert result.exit_code == 2
    assert f"config.toml', line {line}." in result.stderr
