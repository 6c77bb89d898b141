"""Folders that are registries: each file defines one thing of a kind, and no list names them."""

import ast
import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from longctx.core.common.errors import UsageError

QUOTES = '"""'  # around a docstring


@dataclass(frozen=True)
class Registry:
    """What the files of a folder define.

    Args:
        package: the folder's dotted name; only `load` imports it.
        kind: what they define, for errors.
        joint: what stands in names for the `_` of files: `+` if `a_b.py` defines `a+b`.
    """

    package: str
    kind: str
    joint: str = "_"

    def names(self) -> list[str]:
        """All names, in order."""
        return sorted(self._files())

    def load(self, name: str) -> ModuleType:
        """The module that defines a name.

        Raises:
            UsageError: there is none; the message lists those that exist.
        """
        known = self.names()
        if name not in known:
            raise UsageError(f"unknown {self.kind} {name!r}", "", f"Known: {', '.join(known)}.")
        return importlib.import_module(f"{self.package}.{name.replace(self.joint, '_')}")

    def docstrings(self) -> dict[str, str]:
        """The docstring of each file, by name; no file is imported.

        Raises:
            ValueError: a file has none.
        """
        return {name: _docstring(file) for name, file in sorted(self._files().items())}

    def summaries(self) -> dict[str, str]:
        """The text after `Title: ` in the first line of each docstring, without the full stop."""
        lines = {name: text.partition("\n")[0] for name, text in self.docstrings().items()}
        return {name: line.partition(": ")[2].removesuffix(".") for name, line in lines.items()}

    def _files(self) -> dict[str, Path]:
        spec = find_spec(self.package)
        folders = (spec and spec.submodule_search_locations) or []
        files = [file for folder in folders for file in Path(folder).glob("[!_]*.py")]
        return {file.stem.replace("_", self.joint): file for file in files}


def _docstring(file: Path) -> str:
    """The string that a file begins with; parsing all of it would slow every start."""
    begun, _, rest = file.read_text("utf-8").partition(QUOTES)
    text, end, _ = rest.partition(QUOTES)
    if begun or not end:
        raise ValueError(f"{file} has no docstring")
    return ast.literal_eval(f"{QUOTES}{text}{QUOTES}")
