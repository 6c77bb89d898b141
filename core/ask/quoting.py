"""An answer that is an exact stretch of a passage. Imports no model library."""

from dataclasses import dataclass

from longctx.core.ask.place import Place


@dataclass(frozen=True)
class Quote(Place):
    """An answer that is a stretch of a passage.

    Attributes:
        text: the stretch as it stands there, decoded.
        also: other places in the passages with the same text, at most 16.
    """

    text: str
    also: tuple[Place, ...]
