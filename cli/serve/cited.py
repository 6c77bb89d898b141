"""Where an answer stands: the sentence that answers, then the best passages, as annotations."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from longctx import Answer
    from longctx.core.ask.place import Place

MOST = 5  # passages that are cited


def citations(answer: "Answer", base: str) -> list[dict[str, Any]]:
    """What an answer is based on, best first.

    Args:
        answer: the answer.
        base: the server's address.

    Returns:
        The fields of OpenAI's `url_citation`, whose `url` opens the place in the page, and ours:
        document, source, place and text as `longctx ask` shows them, start and end (bytes of the
        source) of the whole sentence or passage.
    """
    sentence = answer.sentence
    found: list[tuple[Place, str, str]] = []
    if sentence is not None:
        found.append((sentence, sentence.place, sentence.text))
    for passage in answer.passages[:MOST]:
        line = passage.best_text.strip()
        if line and (sentence is None or line not in sentence.text):
            found.append((passage, passage.best_place, line))
    return [
        {
            "title": f"{place.source}:{at}",
            "url": f"{base}/{_fragment(place)}",
            "start_index": 0,
            "end_index": len(answer.answer),
            "document": place.document,
            "source": place.source,
            "place": at,
            "start": place.start,
            "end": place.end,
            "text": text,
        }
        for place, at, text in found
    ]


def _fragment(place: "Place") -> str:
    """The part of the address by which the page opens a place."""
    told = {"document": place.document, "source": place.source}
    told |= {"start": str(place.start), "end": str(place.end)}
    return "#" + urlencode(told, quote_via=quote)
