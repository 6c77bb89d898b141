"""The user's config file: defaults for options, under flags and LONGCTX_* variables.

TOML, with option names as keys, at the top level for every command that has the option, or in a
table named after a command for that command only. Unknown keys are errors.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longctx.core.common.errors import UsageError

Commands = Mapping[str, Any]  # name -> a Typer command


def config_path() -> Path:
    """The path of the config file, whether or not it exists."""
    named = os.environ.get("LONGCTX_CONFIG")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_config_path

    return user_config_path("longctx") / "config.toml"


def library_path(given: Path | None) -> Path:
    """The library's folder: the one given, or the one in the user's data folder."""
    if given is not None:
        return given.expanduser()
    from platformdirs import user_data_path

    return user_data_path("longctx") / "library"


def state_path(name: str) -> Path:
    """A file of the user's state folder, which is made, for its owner alone."""
    from platformdirs import user_state_path

    from longctx.core.common.outputs import make_folder

    folder = user_state_path("longctx")
    make_folder(folder)
    return folder / name


def defaults(commands: Commands) -> dict[str, dict[str, Any]]:
    """The config file's values by command and parameter, as click's `default_map`.

    Args:
        commands: the program's commands, whose options are the known keys.

    Raises:
        UsageError: the file is not TOML or has an unknown key, or LONGCTX_CONFIG names no file.
    """
    path = config_path()
    if not path.is_file():
        if os.environ.get("LONGCTX_CONFIG"):
            raise UsageError(f"no config file '{path}'", "", "Check LONGCTX_CONFIG.")
        return {}
    values = _read(path)
    known = {name: _settings(command) for name, command in commands.items()}
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    general = {key: value for key, value in values.items() if key not in tables}
    _check(general, {key for names in known.values() for key in names}, f"'{path}'")
    for command, table in tables.items():
        _check({command: None}, set(known), f"the tables of '{path}'")
        _check(table, set(known[command]), f"[{command}] of '{path}'")
    chosen = {
        command: _chosen(names, general) | _chosen(names, tables.get(command, {}))
        for command, names in known.items()
    }
    return {
        name: {inner: chosen[name] for inner in _inner(command)} or chosen[name]
        for name, command in commands.items()
    }


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    from longctx.core.common import file_limits
    from longctx.core.common.regular_files import read_text

    try:
        return _plain(tomllib.loads(read_text(path, file_limits.CONFIG)))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read config file '{path}'", why, "Correct it.") from error


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """The same values with `-` for `_` in every key."""
    return {
        key.replace("_", "-"): _plain(value) if isinstance(value, dict) else value
        for key, value in values.items()
    }


def _settings(command: Any) -> dict[str, Any]:
    """A command's settings: flag without dashes -> option.

    For a command with subcommands, those of its subcommands.
    """
    found = {
        option.opts[0].removeprefix("--"): option for option in command.params if option.envvar
    }
    for inner in _inner(command).values():
        found |= _settings(inner)
    return found


def where_from(key: str, command: str) -> str:
    """Where the config file has a value, as `'config.toml', line 3`.

    Args:
        key: the flag, without dashes.
        command: the command that took it; its own table takes precedence.
    """
    from longctx.core.common import file_limits
    from longctx.core.common.regular_files import read_text

    path, table, found = config_path(), "", {}
    for number, line in enumerate(read_text(path, file_limits.CONFIG).splitlines(), 1):
        if header := re.match(r"\s*\[\s*\"?([\w-]+)\"?\s*\]", line):
            table = header[1]
        named = re.match(r"\s*\"?([\w-]+)\"?\s*=", line)
        if named and named[1].replace("_", "-") == key:
            found[table] = number
    line = found.get(command) or found.get("")
    return f"'{path}', line {line}" if line else f"'{path}'"


def _inner(command: Any) -> Commands:
    """The subcommands of a command."""
    return getattr(command, "commands", {})


def _check(values: dict[str, Any], known: set[str], where: str) -> None:
    for key, value in values.items():
        if key not in known:
            names = ", ".join(sorted(known))
            raise UsageError(f"unknown key {key!r} in {where}", "", f"Known are: {names}.")
        if not isinstance(value, str | int | float | bool | None):
            raise UsageError(
                f"cannot use {key!r} in {where}",
                f"it is a {type(value).__name__}",
                "Give a string, a number, true or false.",
            )


def _chosen(known: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A command's values by parameter; several in one text, as in a variable, become a list."""
    return {
        known[key].name: str(value).split() if known[key].multiple else value
        for key, value in values.items()
        if key in known
    }
