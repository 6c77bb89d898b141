"""Optional libraries for some formats: the extra `documents`.

Reports a missing one before it is imported.
"""

from importlib.util import find_spec

from longctx.core.common.distribution import install_command
from longctx.core.common.errors import LongctxError, UnreadableInput


def is_missing(library: str) -> bool:
    """Whether a library is not installed; False for an empty name."""
    return bool(library) and find_spec(library) is None


def require(library: str, name: str, error: type[LongctxError] = UnreadableInput) -> None:
    """Refuses a file whose library is not installed.

    Args:
        library: its module; empty if none is needed.
        name: the file's name.
        error: what is raised, with the command that installs the library.
    """
    if is_missing(library):
        raise error(
            f"cannot read '{name}'",
            f"that needs {library}, which is not installed",
            f"Run: {install_command(library)}.",
        )
