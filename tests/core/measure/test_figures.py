"""Plots: the files are there, and what is missing is said."""

import sys

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.measure import figures


def test_a_heat_map_is_a_png(tmp_path):
    file = tmp_path / "map.png"
    figures.heat_map(file, [[1.0, None], [0.5, 0]], ["16k", "64k"], ["0", "1"], "t", ("x", "y"))
    assert file.read_bytes().startswith(b"\x89PNG")


def test_lines_name_their_series(tmp_path):
    file = tmp_path / "lines.svg"
    figures.lines(file, {"reform": [(1, 0.5), (2, 1)]}, "title", ("tokens", "rate"), True)
    assert "<svg" in file.read_text("utf-8")


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"longctx\[plot\]"):
        figures.lines(tmp_path / "a.png", {}, "", ("", ""))
