"""Places in an original as numbers, which marks hold, and the names of its parts.

Most formats count one thing, such as pages. A sheet or an attachment has a name too: its count is
in the upper bits of the number, and its text begins with a line `[sheet: NAME]`, where the name is
found again. So a state holds nothing but numbers and text.
"""

PART = 1 << 40  # numbers above are of a named part
COLUMNS = 1 << 15  # in a sheet, at most
INSIDE = 1 << 24  # pages, lines, ... of an attachment, at most
NAME_BYTES = 1024  # of a text, in which the name of a part is found
LETTERS = 200  # of a name, at most


def of_cell(sheet: int, row: int = 0, column: int = 0) -> int:
    """The number of a cell, all counted from 1; of a sheet's heading where row and column are 0."""
    return sheet * PART + min(row * COLUMNS + min(column, COLUMNS - 1), PART - 1)


def of_attachment(count: int, message: int, inside: int = 0) -> int:
    """The number of a place in an attachment, all counted from 1; 0 `inside` is its heading."""
    inside = inside if inside < INSIDE else 0
    return count * PART + min(message, PART // INSIDE - 1) * INSIDE + inside


def in_attachment(number: int) -> tuple[int, int]:
    """The message of an attachment, and the place inside it; 0 if none is known."""
    return divmod(number % PART, INSIDE)


def heading(kind: str, name: str) -> str:
    """The line with which the text of a part begins."""
    return f"[{kind}: {' '.join(name.split())[:LETTERS]}]\n"


def name_in(text: str) -> str:
    """The name of a part, from the beginning of its text."""
    line = text.lstrip("\n").partition("\n")[0]
    return line.partition(": ")[2].removesuffix("]") or line[:LETTERS]


def cell(number: int, sheet: str) -> str:
    """A cell as spreadsheets write it: "Sheet1!B7"; the sheet alone for its heading."""
    row, column = divmod(number % PART, COLUMNS)
    name = sheet if sheet.isidentifier() else "'" + sheet.replace("'", "''") + "'"
    return f"{name}!{_letters(column)}{row}" if row else name


def _letters(column: int) -> str:
    """The name of a column: A, B, ..., Z, AA, ..."""
    found = ""
    while column:
        column, letter = divmod(column - 1, 26)
        found = chr(ord("A") + letter) + found
    return found
