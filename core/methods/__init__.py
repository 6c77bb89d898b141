"""The reading methods, one file each; the folder is the registry.

`method: reform` loads `reform.py`, which defines `Options` and `Method`
(see `core/contracts/memory.py`).
"""

import importlib
import pkgutil
from types import ModuleType

from longctx.core.common.errors import UsageError


def names() -> list[str]:
    """The methods there are, by file name."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """The module of a method.

    Raises:
        UsageError: no such method, naming those there are.
    """
    if name not in names():
        raise UsageError(f"unknown method {name!r}", "", f"Known: {', '.join(names())}.")
    return importlib.import_module(f"{__name__}.{name}")
