"""Reads the data files of evaluations."""

from pathlib import Path

from longctx.core.common import file_limits
from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.common.regular_files import read_text


def read(
    path: Path, remedy: str, convert: str = "Convert it first.", encoding: str = "utf-8"
) -> str:
    """The text of a file; `remedy` and `convert` say what to do if it cannot be read.

    Raises:
        UsageError: the file cannot be read.
        UnreadableInput: it is not UTF-8 text.
    """
    try:
        return read_text(path.expanduser(), file_limits.DATA, encoding)
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"cannot read '{path}'", "it is not UTF-8 text", convert) from error
    except OSError as error:
        raise UsageError(f"cannot read '{path}'", error.strerror or str(error), remedy) from error
