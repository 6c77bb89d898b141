"""Links to files that a terminal can open (OSC 8): which terminals support them, and addresses."""

from collections.abc import Mapping
from pathlib import Path

_VTE = 5000  # the first version of VTE that supports them
_KONSOLE = 201200
_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "vscode", "ghostty"})


def are_shown(environment: Mapping[str, str], terminal: bool) -> bool:
    """Whether links are written.

    Args:
        environment: of the process. `FORCE_HYPERLINK` decides, 0 for no, as in other programs;
            `NO_COLOR` takes precedence.
        terminal: standard output is one.
    """
    if environment.get("NO_COLOR"):
        return False
    forced = environment.get("FORCE_HYPERLINK")
    if forced is not None:
        return forced != "0"
    hidden = environment.get("TERM") == "dumb" or {"TMUX", "STY"} & environment.keys()
    if not terminal or hidden:
        return False
    return (
        environment.get("TERM_PROGRAM") in _PROGRAMS
        or environment.get("TERM") == "xterm-kitty"
        or bool({"KITTY_WINDOW_ID", "WT_SESSION"} & environment.keys())
        or _at_least(environment.get("VTE_VERSION"), _VTE)
        or _at_least(environment.get("KONSOLE_VERSION"), _KONSOLE)
    )


def link(path: str | None, line: int | None) -> str | None:
    """The address of a file and a line, in harmless characters only; None: there is none.

    Args:
        path: as recorded.
        line: from 1; None: the file alone.
    """
    if path is None or not Path(path).is_absolute():
        return None
    try:
        address = Path(path).as_uri()  # percent-encodes all but letters and digits
    except UnicodeEncodeError:  # no file can have this name
        return None
    return address if line is None else f"{address}#{line}"


def _at_least(version: str | None, least: int) -> bool:
    return version is not None and version.isascii() and version.isdigit() and int(version) >= least
