"""Folders that are registries: each file defines one thing of a kind, and no list names them."""

import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from longctx.core.common.errors import UsageError


@dataclass(frozen=True)
class Registry:
    """What the files of a folder define; `a+b` is defined by `a_b.py`.

    Args:
        package: the folder's dotted name; only `load` imports it.
        kind: what they define, for errors.
    """

    package: str
    kind: str

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
        return importlib.import_module(f"{self.package}.{name.replace('+', '_')}")

    def docstrings(self) -> dict[str, str]:
        """The docstring of each file, by name; no file is imported."""
        texts = {name: file.read_text("utf-8") for name, file in sorted(self._files().items())}
        return {name: text.split('"""', 2)[1] for name, text in texts.items()}

    def summaries(self) -> dict[str, str]:
        """The text after `Title: ` in the first line of each docstring, without the full stop."""
        lines = {name: text.partition("\n")[0] for name, text in self.docstrings().items()}
        return {name: line.partition(": ")[2].removesuffix(".") for name, line in lines.items()}

    def _files(self) -> dict[str, Path]:
        spec = find_spec(self.package)
        folders = (spec and spec.submodule_search_locations) or []
        files = [file for folder in folders for file in Path(folder).glob("[!_]*.py")]
        return {file.stem.replace("_", "+"): file for file in files}
