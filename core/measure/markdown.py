"""Tables in GitHub's Markdown."""

from collections.abc import Collection, Iterable, Sequence


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> str:
    """A table, without the last line end.

    Args:
        headers: names of the columns.
        rows: their cells.
        right: columns of numbers, which are aligned right.
    """
    rules = ["---:" if header in right else "---" for header in headers]
    lines = [map(escaped, headers), rules, *(map(escaped, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    """A text on one line, with bars escaped so that none ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")
