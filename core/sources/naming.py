"""Names of files: which are hidden, and how a document shows where a file begins."""

ALWAYS_LEFT_OUT = frozenset({".git", ".hg", ".svn"})


def is_hidden(path: str, shown: bool = False) -> bool:
    """Whether any part of a path begins with a dot.

    Args:
        path: relative to where a search began, with slashes.
        shown: such files are read, all but those of version control.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    if shown:
        return not ALWAYS_LEFT_OUT.isdisjoint(parts)
    return any(part.startswith(".") for part in parts)


def heading(name: str) -> str:
    """What a file in a folder or archive begins with for the model: its name, as `head` has it."""
    shown = name.encode("utf-8", "replace").decode("utf-8")
    return f"\n==> {' '.join(shown.split())} <==\n"
