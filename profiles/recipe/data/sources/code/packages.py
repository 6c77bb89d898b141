"""What a Python package says of itself: version, licence, authors, requirements, addresses."""

import re
from collections.abc import Iterator
from pathlib import Path

from longctx.profiles.recipe.data.sources.code.source import Fact

FIELDS = {
    "Version": "package_version",
    "Summary": "package_summary",
    "License": "package_licence",
    "License-Expression": "package_licence",
    "Author": "package_author",
    "Maintainer": "package_maintainer",
    "Requires-Python": "package_python",
}
REQUIRED = re.compile(r"([\w.-]+) ?(?:\[[^\]]*\])? ?\(?([<>=!~][^;()]*?)\)? *(?:;.*)?")
SHORTEST, LONGEST = 3, 120  # characters of an answer
SIZE = 12_000


def metadata(package: Path) -> str | None:
    """The text of the file that pip puts beside a package's folder, cut at a line's end."""
    for path in sorted(package.parent.glob(f"{package.name}-*.dist-info/METADATA")):
        text = path.read_text("utf-8")
        return text if len(text) <= SIZE else text[: text.rindex("\n", 0, SIZE) + 1]
    return None


def told(text: str) -> Iterator[Fact]:
    """The fields at the start of the file."""
    head = text.split("\n\n")[0].split("\n")
    named = [line.removeprefix("Name: ") for line in head if line.startswith("Name: ")]
    for number, line in enumerate(head, 1):
        field, _, value = line.partition(": ")
        slots = {"package": named[0] if named else "the package"}
        if field == "Requires-Dist" and (found := REQUIRED.fullmatch(value)):
            other, needed = found.groups()
            slots |= {"other": other}
            yield Fact(("package_needs",), slots, needed.strip(), (number,))
        elif field == "Project-URL":
            label, _, address = value.partition(", ")
            yield Fact(("package_url",), slots | {"label": label.lower()}, address, (number,))
        elif field in FIELDS and SHORTEST <= len(value) <= LONGEST:
            yield Fact((FIELDS[field],), slots, value, (number,))
