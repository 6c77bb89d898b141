"""Answers of another server's model, from what was gathered; it gets text and nothing else.

Nothing is sent before `on_sending` was told what.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from longctx.core.ask.answer import INTERRUPTED, Answer, Found
from longctx.core.ask.composing import DOCUMENT
from longctx.core.ask.gathering import Gatherer
from longctx.core.ask.place import Passage
from longctx.core.ask.refusing import PHRASE
from longctx.core.ask.sentence import answering_sentence
from longctx.core.ask.server import client, messages
from longctx.core.ask.server.address import Server
from longctx.core.ask.server.messages import Sent
from longctx.core.common.errors import UsageError
from longctx.core.common.interrupts import check
from longctx.core.passages.matching import Query
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.best_passages import Chosen

_log = logging.getLogger(__name__)

GATHER = 2048  # tokens; a server's model has a window of 4,096 at least, often no more
LONGEST = 1024  # tokens of an answer, as the server counts them
NAME = "server"  # as the decode policy of such an answer
_DECODED: dict[str, Any] = {  # what an `Answer` says of its decoding
    "policy": {"name": NAME},
    "attended_per_step": None,
    "refreshes": None,
    "held": None,
    "reassigned": False,
    "narrowed": False,
    "tokens_per_s": None,
}
UNKNOWN = ("top_k", "min_p", "repetition_penalty")  # not in the protocol


@dataclass(frozen=True)
class Serving:
    """What one answer of a server needs.

    Attributes:
        server: whom to ask.
        sampling: as the user set it; for the rest the server decides, but it takes the likeliest
            token.
        on_text: receives the answer's text as it comes.
        on_sending: is told what is sent, before it is.
        count: tokens of a text, as the model that read the documents counts them.
    """

    server: Server
    sampling: Sampling
    on_text: Callable[[str], None]
    on_sending: Callable[[Sent], None]
    count: Callable[[str], int]


def require_served(sampling: Sampling, decode: str | None) -> None:
    """Refuses what no server can do.

    Raises:
        UsageError: an option for the models that run here.
    """
    given = {name: getattr(sampling, name) for name in UNKNOWN} | {"decode": decode}
    for name, value in given.items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            why = "another server's model answers, which is not told that"
            raise UsageError(f"cannot take {flag} with --answer-with", why, "Leave one out.")


def served(
    serving: Serving,
    way: Gatherer,
    chosen: Chosen,
    found: Found,
    query: Query,
    mark: Callable[[str], None],
) -> Answer:
    """Sends the passages of `found` with its question, and takes the answer.

    Ctrl-C ends the answer; the text so far is returned.

    Args:
        serving: whom, how.
        way: by which they were gathered.
        chosen: the gathered tokens.
        found: their passages; its timings and counts are those before the answer.
        query: the question, with the weights of its words.
        mark: notes the time of a moment; the first time counts.

    Raises:
        NoAnswer: the server gives none.
    """
    passages = in_order(way, found.passages)
    model = client.model_of(serving.server)
    text = messages.message(found.documents, passages, found.question)
    sent = messages.told(serving.server, model, passages, text)
    places = ", ".join(f"{one.source}:{one.place} ({one.characters:,})" for one in sent.passages)
    _log.info("sends %s characters to %s: %s", f"{sent.characters:,}", sent.to, places)
    serving.on_sending(sent)
    told = _received(serving, model, text, mark)
    sentence = answering_sentence(way.documents, chosen, query, told["answer"])
    read = {"tokens": found.tokens["gathered"], "passages": len(passages), "order": DOCUMENT}
    state = {**found.state, "answer_model": model, "read": read}
    counts = {**found.tokens, "answer": told.pop("count")}
    values = {**vars(replace(found, tokens=counts, state=state)), **told}
    return Answer(**values, sentence=sentence, sent=sent)


def unsent(serving: Serving, found: Found) -> Answer:
    """The answer where the passages seem to have none: nothing is sent."""
    serving.on_text(PHRASE)
    state = {**found.state, "answer_model": serving.server.model, "read": None}
    told = {**_DECODED, "answer": PHRASE, "stop": "end"}
    return Answer(**vars(replace(found, state=state)), **told)


def in_order(way: Gatherer, passages: Sequence[Passage]) -> list[Passage]:
    """Passages in the order of their documents and sources."""
    places = {
        (document.manifest.name, source.name): number
        for document in way.documents
        for number, source in enumerate(document.manifest.sources)
    }
    names = [document.manifest.name for document in way.documents]
    return sorted(
        passages,
        key=lambda one: (names.index(one.document), places[one.document, one.source], one.start),
    )


def _received(
    serving: Serving, model: str, text: str, mark: Callable[[str], None]
) -> dict[str, Any]:
    """What the `Answer` says of its text."""
    sampling, pieces, stop, first = serving.sampling, list[str](), "end", None
    try:
        for piece in client.answer(serving.server, model, text, *_fields(sampling)):
            stop = piece.stop or stop
            check()
            shown = piece.text if pieces else piece.text.lstrip()
            if shown:
                mark("first_token_s")
                first = first or time.perf_counter()
                pieces.append(shown)
                serving.on_text(shown)
    except KeyboardInterrupt:
        stop = INTERRUPTED
    answer = "".join(pieces).strip()
    count, rate = serving.count(answer), None
    if first is not None and count > 1 and (took := time.perf_counter() - first) > 0:
        rate = round((count - 1) / took, 4)
    return {
        **_DECODED,
        "answer": answer,
        "count": count,
        "stop": stop,
        "tokens_per_s": rate,
    }


def _fields(sampling: Sampling) -> tuple[dict[str, Any], frozenset[str]]:
    """The request's fields, and those of them that the user set."""
    given = {
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop": list(sampling.stop) if sampling.stop else None,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return {"max_tokens": LONGEST, "temperature": 0.0, **chosen}, frozenset(chosen)
