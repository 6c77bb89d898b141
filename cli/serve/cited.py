"""Where an answer stands: the sentence that answers, then the best passages, as annotations."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from longctx import Answer

MOST = 5  # passages that are cited


def citations(answer: "Answer", base: str) -> list[dict[str, Any]]:
    """What an answer is based on, best first.

    Args:
        answer: the answer.
        base: the server's address.

    Returns:
        The fields of OpenAI's `url_citation`, whose `url` opens the place in the page, and ours:
        document, source, place, start and end (bytes of the source), text.
    """
    sentence = answer.sentence
    places: list[Any] = [] if sentence is None else [sentence]
    places += [passage for passage in answer.passages[:MOST] if passage.text.strip()]
    return [
        {
            "title": f"{place.source}:{place.place}",
            "url": f"{base}/{_fragment(place)}",
            "start_index": 0,
            "end_index": len(answer.answer),
            "document": place.document,
            "source": place.source,
            "place": place.place,
            "start": place.start,
            "end": place.end,
            "text": place.text,
        }
        for place in places
    ]


def _fragment(place: Any) -> str:
    """The part of the address by which the page opens a place."""
    told = {"document": place.document, "source": place.source}
    told |= {"start": place.start, "end": place.end}
    return "#" + urlencode(told, quote_via=quote)
