"""Pictures of results as SVG: boxes, lines and text, put at their places in pixels.

A picture brings its own ground and its own colours for dark and light, and loads nothing.
"""

import re
from collections.abc import Sequence
from unicodedata import east_asian_width
from xml.sax.saxutils import escape, quoteattr

STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 }
.small { font-size: 10px }
.in { fill: #1f2328 }
.ground { fill: #ffffff }
.empty { fill: #d8dee4 }
.rule { stroke: #8c959f; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .in { fill: #1f2328 }
  .ground { fill: #15191e }
  .empty { fill: #3d444d }
}"""
RATES = ("#f4a79d", "#f8e5a0", "#9fd6a3")  # of 0, a half and all; a number may stand on it
LETTER = 7.0  # pixels of a letter, at most on average
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Drawing:
    """One picture. x goes right, y down."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, look: str, told: str = ""
    ) -> None:
        """A filled rectangle.

        Args:
            x, y, width, height: its place.
            look: a class of STYLE, or a colour (`#rrggbb`).
            told: shown where a pointer rests on it.
        """
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        inside = f"><title>{_text(told)}</title></rect>" if told else "/>"
        self._parts.append(f"<rect {place} {_filled(look)}{inside}")

    def line(self, points: Sequence[tuple[float, float]], colour: str = "") -> None:
        """A line through points (x, y); without a colour, a rule."""
        places = " ".join(f"{x:g},{y:g}" for x, y in points)
        look = f'stroke="{colour}" fill="none" stroke-width="2"' if colour else 'class="rule"'
        self._parts.append(f'<polyline points="{places}" {look}/>')

    def dot(self, x: float, y: float, colour: str, told: str = "") -> None:
        """A point of a line; `told` is shown where a pointer rests on it."""
        inside = f"<title>{_text(told)}</title>" if told else ""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="3" fill="{colour}">{inside}</circle>')

    def text(
        self, x: float, y: float, text: str, at: str = "start", look: str = "", up: bool = False
    ) -> None:
        """A line of text.

        Args:
            x, y: the place on its base line.
            text: what it says.
            at: which part of it is there: "start", "middle" or "end".
            look: a class of STYLE.
            up: it runs upwards.
        """
        turned = f' transform="rotate(-90 {x:g} {y:g})"' if up else ""
        named = f' class="{look}"' if look else ""
        place = f'x="{x:g}" y="{y:g}" text-anchor="{at}"'
        self._parts.append(f"<text {place}{named}{turned}>{_text(text)}</text>")

    def svg(self, width: float, height: float, title: str) -> str:
        """The file's text.

        Args:
            width, height: of the picture.
            title: what it shows, for who cannot see it.
        """
        size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
        named = quoteattr(_legal(title))
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={named}>'
        ground = '<rect class="ground" width="100%" height="100%"/>'
        return "\n".join([head, f"<style>{STYLE}</style>", ground, *self._parts, "</svg>", ""])


def width_of(text: str) -> float:
    """Pixels that a line of text takes at most, about."""
    return LETTER * sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def between(share: float, colours: Sequence[str]) -> str:
    """The colour (`#rrggbb`) at a share, 0 to 1, of the way through colours."""
    place = min(max(share, 0.0), 1.0) * (len(colours) - 1)
    first = min(int(place), len(colours) - 2)
    parts = [_parts(colours[first]), _parts(colours[first + 1])]
    mixed = [round(a + (b - a) * (place - first)) for a, b in zip(*parts, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _parts(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def _filled(look: str) -> str:
    return f'fill="{look}"' if look.startswith("#") else f'class="{look}"'


def _legal(text: str) -> str:
    """Text without the characters that no XML file may have."""
    return _NOT_XML.sub("\ufffd", text)


def _text(text: str) -> str:
    return escape(_legal(text))
