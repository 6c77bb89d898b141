"""Names of files: hidden ones, what they say about the file, and how a document shows them."""

from pathlib import PurePath

ARCHIVES = {".zip": "zip", ".tar": "tar"}
PACKED = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}
SHORT = {".tgz": (".tar", "gz"), ".tbz2": (".tar", "bz2"), ".txz": (".tar", "xz")}
SHORT |= {".tzst": (".tar", "zst"), ".tbz": (".tar", "bz2")}
ALWAYS_LEFT_OUT = frozenset({".git", ".hg", ".svn"})


def is_hidden(path: str, shown: bool = False) -> bool:
    """Whether any part of a path begins with a dot.

    Args:
        path: relative to where the search began, with slashes.
        shown: hidden files are read, except those of version control.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    if shown:
        return not ALWAYS_LEFT_OUT.isdisjoint(parts)
    return any(part.startswith(".") for part in parts)


def heading(name: str) -> str:
    """The header that the model sees before a found file: its name, in the style of `head`."""
    shown = name.encode("utf-8", "replace").decode("utf-8")
    return f"\n==> {' '.join(shown.split())} <==\n"


def packing(name: str) -> tuple[str, str]:
    """A name without its compression ending, and that ending: gz, bz2, xz, zst or nothing."""
    ending = PurePath(name).suffix.lower()
    if ending in SHORT:
        inner, how = SHORT[ending]
        return name[: -len(ending)] + inner, how
    how = PACKED.get(ending, "")
    return (name[: -len(ending)], how) if how else (name, "")


def needs(how: str) -> str:
    """The library that a compression needs beyond Python's own; empty if none."""
    return "zstandard" if how == "zst" else ""


def layers(name: str) -> tuple[str, list[str]]:
    """A name without its compression endings, and these endings, outermost first."""
    found = []
    name, how = packing(name)
    while how:
        found.append(how)
        name, how = packing(name)
    return name, found


def kind_of(name: str) -> str:
    """The kind of archive by a name without compression endings: zip, tar or nothing."""
    return ARCHIVES.get(name[-4:].lower(), "")
