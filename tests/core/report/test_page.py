"""A page: what it may hold, that no text becomes markup, and what it may replace."""

import base64
import hashlib
import os
import re

import pytest
from page_elements import Elements

from longctx.core.common.errors import UsageError
from longctx.core.report import page as pages
from longctx.core.report.html import Html, element, joined
from longctx.core.report.style import rate_class
from longctx.core.report.svg import Drawing
from longctx.core.report.tables import Cell, facts, grid, table

HOSTILE = (
    "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>\" ' & \x00\x1b[31m\u202e"
)


def test_text_is_never_markup():
    text = pages.page(HOSTILE, element("p", HOSTILE, title=HOSTILE), [HOSTILE])
    read = Elements(text)
    tags = {tag for tag, _ in read.found}
    assert tags == {"html", "head", "meta", "title", "style", "body", "main", "p"}
    shown = HOSTILE.replace("\x00", "").replace("\x1b", "").replace("\u202e", "")
    assert [text.strip("\n") for text in read.texts].count(shown) == 3
    assert read.found[-1][1]["title"] == shown


@pytest.mark.parametrize(
    "make",
    [
        lambda: element("script", "alert(1)"),
        lambda: element("style", "p {}"),
        lambda: element("p onclick"),
        lambda: element("p", onclick="alert(1)"),
        lambda: element("p", style="color: red"),
        lambda: element("img", src="http://example.org"),
        lambda: element("a", href="javascript:alert(1)"),
        lambda: element("a", href="http://example.org"),
        lambda: pages.picture("<svg onload=alert(1)></svg>"),
    ],
)
def test_what_could_run_or_load_cannot_be_made(make):
    with pytest.raises(ValueError, match=r"no (element|attribute)|a link|no picture"):
        make()


def test_texts_are_escaped_once_and_elements_are_kept():
    inner = element("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert joined(["a<", inner, None, [inner]]) == f"a&lt;{inner}{inner}"
    assert isinstance(joined("a"), Html)
    assert element("td", None, class_="x", hidden=True, title=None) == '<td class="x" hidden></td>'
    assert joined("a\r\nb\rc\ud800\u2028\x85") == "a\nb\nc\ufffd\n"


def test_a_page_allows_its_own_styles_and_nothing_else():
    drawing = Drawing()
    drawing.text(0, 0, HOSTILE)
    text = pages.page("t", pages.picture(drawing.svg(10, 10, HOSTILE)))
    read = Elements(text)
    assert "script" not in {tag for tag, _ in read.found}
    policy = next(a["content"] for tag, a in read.found if "http-equiv" in a)
    styles = re.findall(r"<style>(.*?)</style>", text, re.S)
    assert len(styles) == 2
    for style in styles:
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"""(src|href)=["'](?!#)|url\(|@import""", text)


def test_a_grid_has_its_figures_in_cells_with_colours():
    cells = [[Cell(1.0, "2 of 2"), Cell(None)], [Cell(0.5), Cell(0.0)]]
    made = grid("depth", ["1k", "2k"], ["0%", "100%"], cells)
    assert '<td class="r10">100%<small>2 of 2</small></td><td></td>' in made
    assert '<td class="r5">50%</td><td class="r0">0%</td>' in made
    assert [rate_class(rate) for rate in (-1, 0.04, 0.06, 2)] == ["r0", "r0", "r1", "r10"]


def test_tables_align_numbers_and_escape_cells():
    made = table(("a", "b"), [("<", "1")], right=("b",))
    assert '<td>&lt;</td><td class="number">1</td>' in made
    assert '<th scope="row">a&lt;</th><td>b</td>' in facts([("a<", "b")])


def test_a_page_replaces_one_of_ours_and_no_other_file(tmp_path):
    file = tmp_path / "page.html"
    pages.write(file, pages.page("one"))
    if os.name == "posix":
        assert file.stat().st_mode & 0o777 == 0o600
    pages.write(file, pages.page("two"))
    assert "<title>two</title>" in file.read_text("utf-8")
    (tmp_path / "empty.html").touch()
    pages.write(tmp_path / "empty.html", pages.page("three"))
    other = tmp_path / "book.html"
    other.write_text('<!doctype html>\n<html lang="en">\n<p>a book')
    for path, why in (
        (other, "no page that longctx wrote"),
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "page.html", "there is no folder"),
        (pages.Path("-"), "standard output"),
    ):
        with pytest.raises(UsageError, match=why):
            pages.write(path, pages.page("four"))
    assert other.read_text().endswith("a book")
