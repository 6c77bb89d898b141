"""Checks a model's folder before anything opens a file there.

The libraries that read a model open whatever they find, block on a pipe, and load any JSON file as
a whole, at a multiple of its size. Knows nothing of the files' contents.
"""

from fnmatch import fnmatch
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from longctx.core.common import file_limits
from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import NO_FILE

OTHERS = (
    *("tokenizer*", "vocab.*", "merges.txt", "*.model", "added_tokens.json"),
    *("special_tokens_map.json", "chat_template*", "*.jinja"),
    *("adapter_config.json", "*processor_config.json"),
)
# Bytes that a file may have, by the first pattern that matches its name; others are not read.
LIMITS: dict[str, int | None] = {
    "*.safetensors": None,  # read tensor by tensor
    "*.safetensors.index.json": file_limits.INDEX,
    "config.json": file_limits.CONFIG,
    "generation_config.json": file_limits.CONFIG,
    **dict.fromkeys(OTHERS, file_limits.TOKENIZER),
}
TEMPLATES = "additional_chat_templates"


def require_files(folder: Path, name: str) -> None:
    """Refuses a model with a file that is not regular, or too large to be read as a whole.

    Args:
        folder: where its files are; links to files are followed.
        name: the model's name, for the message.

    Raises:
        UsageError: states which file, and why.
        OSError: the folder cannot be listed.
    """
    inner = folder / TEMPLATES
    files = [*folder.iterdir(), *(inner.iterdir() if inner.is_dir() else ())]
    for file in sorted(files):
        most = most_of(file)
        if most != 0 and (why := _wrong(file, most)):
            remedy = "Get the model's files anew."
            raise UsageError(f"cannot read model {name!r}", f"{file.name}: {why}", remedy)


def most_of(file: Path) -> int | None:
    """Bytes that a file may have; 0 if it is not read; None for no limit."""
    return next((most for pattern, most in LIMITS.items() if fnmatch(file.name, pattern)), 0)


def require_header(file: Path, length: int) -> None:
    """Refuses a safetensors file whose header is too large to be read as a whole.

    Args:
        file: the file.
        length: bytes of its header, as the file states.

    Raises:
        UsageError: the header is too large.
    """
    if length > file_limits.HEADER:
        why = f"its header has {length:,} bytes, and {file_limits.HEADER:,} are the most"
        raise UsageError(f"cannot read {str(file)!r}", why, "Get the model's files anew.")


def _wrong(file: Path, most: int | None) -> str:
    try:
        status = file.stat()
    except OSError:
        return ""  # a dangling link counts as missing
    if not S_ISREG(status.st_mode):
        return "" if S_ISDIR(status.st_mode) else NO_FILE
    if most is None or status.st_size <= most:
        return ""
    return f"it has {status.st_size:,} bytes, and {most:,} are the most"
