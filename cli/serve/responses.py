"""`POST /v1/responses`: OpenAI's newer interface. Nothing is stored, so none is continued by id."""

import time
import uuid
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from longctx.cli.serve import errors, sse
from longctx.cli.serve.answering import base_of, begun, counted, more, whole
from longctx.cli.serve.asked import asked
from longctx.cli.serve.cited import citations
from longctx.cli.serve.fields import Fields, read

if TYPE_CHECKING:
    from longctx import Answer

PART = {"output_index": 0, "content_index": 0}


async def respond(request: Request) -> Response:
    """Answers the last message of the input, whole or as it is made."""
    body = await read(request)
    longest = body.whole("max_output_tokens")
    question = asked(body, _messages(body), longest, request.app.state.options)
    streams = bool(body.flag("stream"))
    answer = _Response(body, base_of(request))
    pieces = await begun(request, question)
    if not streams:
        return JSONResponse(answer.whole(await whole(pieces)))
    return await sse.streamed(pieces, answer.begin, answer.delta, answer.end, answer.fail)


def _messages(body: Fields) -> list[Any]:
    """The input as messages: it may be one text."""
    given = body.raw("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    items = body.items("input")
    for item in items:
        if isinstance(item, dict) and item.get("type", "message") != "message":
            body.refuse("input", "may have only messages: nothing is called, and none is stored")
    return items


class _Response:
    """The objects and events that tell of one answer."""

    def __init__(self, body: Fields, base: str):
        self._base, self._number = base, -1
        self._item = f"msg_{uuid.uuid4().hex}"
        self._text = ""
        self._fixed = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": body.required("model"),
            "instructions": body.raw("instructions"),
            "max_output_tokens": body.whole("max_output_tokens"),
            "metadata": body.raw("metadata") or {},
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": body.number("temperature"),
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": body.number("top_p"),
            "truncation": "disabled",
        }

    def whole(self, answer: "Answer") -> dict[str, Any]:
        """The answer at once."""
        short = answer.stop == "length"
        part = self._part(answer.answer, self._annotations(answer))
        status = "incomplete" if short else "completed"
        item = self._message(status, [part])
        why = {"reason": "max_output_tokens"} if short else None
        told = self._told(status, [item], usage(answer), incomplete_details=why)
        return told | {"longctx": more(answer)}

    def begin(self) -> str:
        """The events before the first piece."""
        told = self._told("in_progress", [], None)
        item, part = self._message("in_progress", []), self._part("", [])
        return (
            self._event("response.created", response=told)
            + self._event("response.in_progress", response=told)
            + self._event("response.output_item.added", output_index=0, item=item)
            + self._event("response.content_part.added", **self._at, part=part)
        )

    def delta(self, piece: str) -> str:
        """The event of a piece."""
        self._text += piece
        return self._event("response.output_text.delta", **self._at, delta=piece, logprobs=[])

    def end(self, answer: "Answer") -> str:
        """The events of the whole answer: where it stands, and what it took."""
        told = self.whole(answer)
        item = told["output"][0]
        part = item["content"][0]
        events = ""
        for index, annotation in enumerate(part["annotations"]):
            events += self._event(
                "response.output_text.annotation.added",
                **self._at,
                annotation_index=index,
                annotation=annotation,
            )
        return (
            events
            + self._event("response.output_text.done", **self._at, text=part["text"], logprobs=[])
            + self._event("response.content_part.done", **self._at, part=part)
            + self._event("response.output_item.done", output_index=0, item=item)
            + self._event(f"response.{told['status']}", response=told)
        )

    def fail(self, refused: errors.Refused) -> str:
        """The event of an error after the beginning."""
        error = {"code": "server_error", "message": str(refused)}
        item = self._message("incomplete", [self._part(self._text, [])])
        told = self._told("failed", [item], None) | {"error": error}
        return self._event("response.failed", response=told)

    @property
    def _at(self) -> dict[str, Any]:
        return {"item_id": self._item, **PART}

    def _told(
        self, status: str, output: list[Any], used: dict[str, Any] | None, **others: Any
    ) -> dict[str, Any]:
        told = {**self._fixed, "status": status, "output": output, "usage": used}
        return {"error": None, "incomplete_details": None, **told, **others}

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        told = {"type": "message", "id": self._item, "status": status}
        return {**told, "role": "assistant", "content": content}

    def _part(self, text: str, annotations: list[Any]) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}

    def _annotations(self, answer: "Answer") -> list[dict[str, Any]]:
        return [{"type": "url_citation", **found} for found in citations(answer, self._base)]

    def _event(self, name: str, **values: Any) -> str:
        self._number += 1
        return sse.event({"type": name, "sequence_number": self._number, **values}, name)


def usage(answer: "Answer") -> dict[str, Any]:
    """The tokens that were read for an answer, and those of the answer."""
    read_, made = counted(answer)
    return {
        "input_tokens": read_,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read_ + made,
    }


routes = [Route("/v1/responses", respond, methods=["POST"])]
