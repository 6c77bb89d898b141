"""Values that are taken as they are are those that Typer's own check would give."""

from pathlib import Path

import pytest
import typer

from longctx.cli.main import app
from longctx.cli.plain_values import _OTHER, plain
from longctx.cli.program import _leaves

WHOLE = typer.main.get_command(app)  # which takes 30 ms to make
COMMANDS = _leaves(WHOLE)
VALUES = [
    *(None, "", "a", "1", " a ", "\u6f22", "\udcff", "a\0b", 0, 1, 16, -1, 2.5, True, False),
    *((), [], ["a", "b"], ("a",), [1], ["\udcff"], "auto", ".", "/", "/none/such", Path("x")),
]


def checked(option, value):
    """What Typer's check gives; the type of its error where it refuses."""
    context = typer.Context(WHOLE)
    try:
        return option.get_runtime_param().whole().coerce(value, param=option, ctx=context)
    except (typer.TyperException, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_nothing_else_is_given_than_by_typer(command):
    for option in command.params:
        if "whole" not in dir(option.get_runtime_param()):
            continue  # of every command: checked only where it is given
        for value in [*VALUES, option.default]:
            taken = plain(value, option)
            if taken is not _OTHER:
                wanted = checked(option, value)
                assert (taken, type(taken)) == (wanted, type(wanted)), (option.name, value)


def test_usual_values_are_taken():
    [find] = [command for command in COMMANDS if command.name == "find"]
    options = {option.name: option for option in find.params}
    taken = {
        "query": ("a boat", "a boat"),
        "docs": (["a", "b"], ["a", "b"]),
        "limit": (10, 10),
        "library": ("/none/such", Path("/none/such")),
        "gather_by": (None, None),
    }
    for name, (value, given) in taken.items():
        assert plain(value, options[name]) == given
    for name, value in {"limit": "0", "query": "\udcff", "docs": "a", "max_docs": 0}.items():
        assert plain(value, options[name]) is _OTHER
