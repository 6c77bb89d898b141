"""Reads the lists of sentences beside this file: one per line, `#` before a remark."""

from functools import cache
from pathlib import Path


@cache
def texts(name: str) -> list[str]:
    """The lines of a file."""
    lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
