"""The names of the files that a large model in GGUF format may be split into.

Opens nothing, and imports no model library.
"""

import re
from pathlib import Path

MOST_FILES = 1000
NAME = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")


def parts(path: Path) -> list[Path]:
    """All files of the model that one belongs to by its name, in order; else that one alone."""
    named = NAME.fullmatch(path.name)
    count = int(named["count"]) if named else 1
    if named is None or not 2 <= count <= MOST_FILES:
        return [path]
    names = (f"{named['stem']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1))
    return [path.with_name(name) for name in names]
