"""Prose for haystacks: the package's own, or a user's; paragraphs of one line each.

Knows nothing of tokens and of needles.
"""

import re
from importlib import resources
from pathlib import Path

from longctx.core.common import file_limits
from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import is_regular, read_text

SUFFIXES = (".txt", ".md", ".rst")
LONGEST = 400  # words of a paragraph; longer ones are cut
LEAST = 300  # words in all, each pass through which is shuffled anew


def sample_paragraphs() -> list[str]:
    """The prose that comes with the package: one line a paragraph, without headings and lists."""
    text = (resources.files("longctx.samples") / "harbour-book.md").read_text("utf-8")
    return [line for line in paragraphs(text) if not line.startswith(("#", "- "))]


def own_paragraphs(path: Path) -> list[str]:
    """A user's prose, each paragraph once.

    Args:
        path: a text file in UTF-8, or a folder, of which all .txt, .md and .rst files are read.

    Raises:
        UsageError: no such path, no text there, text of another encoding, or too little of it.
    """
    files = [path]
    if path.is_dir():
        named = (file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        files = sorted(filter(is_regular, named))
    found = list(dict.fromkeys(line for file in files for line in paragraphs(_read(file))))
    words = sum(len(line.split()) for line in found)
    if words < LEAST:
        files_read = f"{len(files)} files (.txt, .md, .rst)" if path.is_dir() else "it"
        raise UsageError(
            f"cannot make haystacks of '{path}'",
            f"{files_read} held {words:,} words, and {LEAST} are needed",
            "Name a file or folder with more prose.",
        )
    return found


def paragraphs(text: str) -> list[str]:
    """What blank lines separate, each on one line, in pieces of at most `LONGEST` words."""
    blocks = [block.split() for block in re.split(r"\n\s*\n", text)]
    pieces = [words[at : at + LONGEST] for words in blocks for at in range(0, len(words), LONGEST)]
    return [" ".join(piece) for piece in pieces]


def _read(file: Path) -> str:
    try:
        return read_text(file, file_limits.DATA, "utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"it is no UTF-8 text: {error.reason} at byte {error.start:,}"
        raise UsageError(f"cannot read '{file}'", why, "Convert it, or leave it out.") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot read '{file}'", why, "Check --haystack.") from error
