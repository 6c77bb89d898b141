"""Installed packages by their names on the Python index, and the command that installs more."""

import os
import re
import sys

from longctx.core.common import pasting

NAME = "longctx-reader"  # of this distribution: `longctx` on the Python index is another project
PACKAGES = {"oxmsg": "python-oxmsg"}  # of a module, where the two names differ


def version(package: str = NAME) -> str | None:
    """The version of an installed package; None: it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def extras() -> dict[str, list[str]]:
    """The packages of each extra of this distribution; empty if it is not installed."""
    from importlib import metadata

    found: dict[str, list[str]] = {}
    try:
        needs = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        return found
    for need in needs:
        if named := re.match(r"([\w.-]+).*; *extra == [\"'](\w+)[\"']", need):
            found.setdefault(named[2], []).append(named[1])
    return found


def install_command(*modules: str) -> str:
    """The command that adds the packages of modules to the environment of this process."""
    packages = " ".join(PACKAGES.get(module, module) for module in modules)
    # pipx and `uv tool` leave a file in the environments that they make, which have no pip.
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject {os.path.basename(sys.prefix)} {packages}"
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return f"uv pip install --python {pasting.file(sys.prefix)} {packages}"
    return f"pip install {packages}"
