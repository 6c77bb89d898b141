"""Plots: valid SVG with every figure and name in it, for dark and light."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from longctx.core.measure import figures
from longctx.core.report import svg

SPACE = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>&amp; "x" \'\0\x1b[31m\ud800 \u65e5\u672c'


def parsed(file: Path) -> ElementTree.Element:
    root = ElementTree.fromstring(file.read_bytes())
    kinds = {"svg", "style", "rect", "title", "text", "polyline", "circle"}
    assert {element.tag for element in root.iter()} <= {SPACE + kind for kind in kinds}
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SPACE}text")]


def box(element: ElementTree.Element) -> tuple[float, ...]:
    return tuple(float(element.get(key, "nan")) for key in ("x", "y", "width", "height"))


def test_a_grid_has_the_figure_of_each_cell_in_its_place(tmp_path):
    values = [[1.0, None], [0.5, 0.0]]
    given = (["16k", "64k"], ["0%", "99%"], "title\nbelow", ("tokens", "depth"))
    figures.heat_map(tmp_path / "map.svg", values, *given)
    root = parsed(tmp_path / "map.svg")
    assert sorted(texts(root)) == sorted(
        ["title", "below", "tokens", "depth", "16k", "64k", "0%", "99%", "100%", "50%", "0%"]
    )
    cells = {element[0].text: element for element in root.iter(f"{SPACE}rect") if len(element)}
    assert {*cells} == {f"{length}, {depth}" for length in given[0] for depth in given[1]}
    assert cells["64k, 0%"].get("class") == "empty"
    assert len({cells[name].get("fill") for name in ("16k, 0%", "16k, 99%", "64k, 99%")}) == 3
    x, y, wide, high = box(cells["16k, 99%"])
    (half,) = [element for element in root.iter(f"{SPACE}text") if element.text == "50%"]
    assert x < float(half.get("x", "nan")) < x + wide
    assert y < float(half.get("y", "nan")) < y + high
    width, height = (float(root.get(key, "nan")) for key in ("width", "height"))
    for cell in cells.values():
        x, y, wide, high = box(cell)
        assert 0 < x < x + wide < width
        assert 0 < y < y + high < height


def test_lines_name_their_series_and_stay_inside(tmp_path):
    series = {"reform": [(4000, 0.5), (16000, 1.0)], HOSTILE: [(900, 0.0), (16000, 0.0)]}
    figures.lines(tmp_path / "lines.svg", series, "title", ("tokens", "quality"))
    root = parsed(tmp_path / "lines.svg")
    assert {"reform", "title", "tokens", "quality", "900", "4,000", "16,000"} <= {*texts(root)}
    width, height = (float(root.get(key, "nan")) for key in ("width", "height"))
    dots = [
        (float(dot.get("cx", "nan")), float(dot.get("cy", "nan")))
        for dot in root.iter(f"{SPACE}circle")
    ]
    assert len(dots) == 4
    assert all(0 < x < width and 0 < y < height for x, y in dots)
    assert dots[0][0] < dots[1][0]  # further right: longer
    assert dots[0][1] > dots[1][1]  # higher: better


def test_one_length_is_drawn_too(tmp_path):
    figures.lines(tmp_path / "one.svg", {"a": [(900, 0.5)]}, "title", ("x", "y"))
    assert len([*parsed(tmp_path / "one.svg").iter(f"{SPACE}circle")]) == 1


def test_whatever_a_name_has_is_text(tmp_path):
    figures.heat_map(tmp_path / "map.svg", [[0.5]], [HOSTILE], [HOSTILE], HOSTILE, (HOSTILE, "y"))
    root = parsed(tmp_path / "map.svg")
    assert texts(root).count(svg._legal(HOSTILE)) == 4
    assert not re.search("[\0\x1b]", (tmp_path / "map.svg").read_text("utf-8"))


def contrast(first: str, second: str) -> float:
    """WCAG's ratio of two colours, 1 to 21."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((light(first), light(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_on_its_ground(dark):
    usual, _, other = svg.STYLE.partition("@media (prefers-color-scheme: dark)")
    style = other if dark else usual
    looks = dict(re.findall(r"^\s*([.\w]+) {[^}]*fill: (#\w{6})", style, re.M))
    assert contrast(looks["text"], looks[".ground"]) > 7
    for share in range(11):
        assert contrast(looks[".in"], svg.between(share / 10, svg.RATES)) > 7
    for colour in figures.SERIES:
        assert contrast(colour, looks[".ground"]) > 2.5
