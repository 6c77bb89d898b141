"""docs/python.md: its examples, run one after another as somebody would who reads it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import longctx

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)
BOOK = """\
The code of the oil-store padlock is 58204.
Aldous Crane kept the lighthouse.
A boat brought salt and news of rain at dawn.
"""


def test_the_examples_print_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGCTX_LIBRARY", str(tmp_path / "usual"))
    (tmp_path / "book.txt").write_text(BOOK, "utf-8")
    examples = EXAMPLE.findall(PAGE.read_text("utf-8"))
    assert len(examples) > 8
    names: dict[str, object] = {}
    for code, expected in examples:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "docs/python.md", "exec"), names)
        if expected:
            assert printed.getvalue() == expected, code
    names["library"].close()


def test_the_shortest_example_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGCTX_LIBRARY", str(tmp_path / "usual"))
    (tmp_path / "book.txt").write_text(BOOK, "utf-8")
    code = re.search(r"\n((?:    .*\n|\n)+)", PAGE.read_text("utf-8"))[1].replace("\n    ", "\n")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code.strip(), "docs/python.md", "exec"), {})
    assert printed.getvalue() == "58204\n"


@pytest.mark.parametrize("name", longctx.__all__)
def test_every_public_name_is_on_the_page(name):
    assert re.search(rf"\b{name}\b", PAGE.read_text("utf-8")), name
