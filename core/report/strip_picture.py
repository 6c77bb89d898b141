"""The strip as a picture: bars of how well each place fits, and ticks where passages are."""

from collections.abc import Sequence
from dataclasses import dataclass

from longctx.core.report.html import Html, element
from longctx.core.report.strip import Strip

WIDE, HIGH = 1000, 52  # of its own units; a page stretches the width
BARS = 36  # of its height
BORDERS = 100  # sources, beyond which their borders would cover everything


@dataclass(frozen=True)
class Tick:
    """A passage: the strip's byte at which it begins, the link to it, and what it is called."""

    byte: int
    href: str
    told: str


def strip_picture(strip: Strip, ticks: Sequence[Tick], told: str) -> Html:
    """An SVG element.

    Args:
        strip: with bins.
        ticks: the passages.
        told: what it shows, for who cannot see it.
    """
    bars = [_bar(n, score, len(strip.bins)) for n, score in enumerate(strip.bins) if score]
    places = [part.start for part in strip.parts[1:]] if len(strip.parts) <= BORDERS else []
    borders = [
        element("rect", x=_x(place, strip), y=0, width=1, height=BARS, class_="border")
        for place in places
    ]
    marks = [_mark(tick, strip) for tick in ticks]
    ground = element("rect", x=0, y=0, width=WIDE, height=BARS, class_="ground-of-strip")
    return element(
        "svg",
        ground,
        borders,
        bars,
        marks,
        class_="strip",
        viewBox=f"0 0 {WIDE} {HIGH}",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
        role="img",
        aria_label=told,
    )


def _bar(number: int, score: float, bins: int) -> Html:
    """The bar of one bin."""
    width = WIDE / bins
    return element(
        "rect",
        x=round(number * width, 3),
        y=round(BARS * (1 - score), 3),
        width=round(width, 3),
        height=round(BARS * score, 3),
        class_="bin",
    )


def _mark(tick: Tick, strip: Strip) -> Html:
    """The tick of a passage, below the bars."""
    shape = element(
        "rect",
        element("title", tick.told),
        x=_x(tick.byte, strip),
        y=BARS + 3,
        width=4,
        height=HIGH - BARS - 3,
        class_="tick",
    )
    return element("a", shape, href=tick.href)


def _x(byte: int, strip: Strip) -> float:
    """Where a byte of the strip is; a tick at the end stays inside."""
    return round(min(WIDE * byte / strip.total, WIDE - 4), 3)
