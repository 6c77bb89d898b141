"""Optional libraries for some formats, installed with `longctx[documents]`.

Reports a missing one before it is imported.
"""

from importlib.util import find_spec

from longctx.core.common.errors import UnreadableInput


def is_missing(library: str) -> bool:
    """Whether a library is not installed; False for an empty name."""
    return bool(library) and find_spec(library) is None


def require(library: str, name: str) -> None:
    """Refuses a file whose library is not installed.

    Args:
        library: its module; empty if none is needed.
        name: the file's name.

    Raises:
        UnreadableInput: it is missing; the error has the command that installs it.
    """
    if is_missing(library):
        raise UnreadableInput(
            f"cannot read '{name}'",
            f"that needs {library}, which is not installed",
            "Run: pip install 'longctx[documents]'.",
        )
