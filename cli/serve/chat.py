"""`POST /v1/chat/completions`: OpenAI's older interface, which most programs speak."""

import time
import uuid
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from longctx.cli.serve import errors, sse
from longctx.cli.serve.answering import base_of, begun, counted, more, whole
from longctx.cli.serve.asked import Asked, asked
from longctx.cli.serve.cited import citations
from longctx.cli.serve.fields import read

if TYPE_CHECKING:
    from longctx import Answer

DONE = "data: [DONE]\n\n"


async def complete(request: Request) -> Response:
    """Answers a conversation's last message, whole or as it is made."""
    body = await read(request)
    wanted = body.whole("max_completion_tokens")
    longest = wanted if wanted is not None else body.whole("max_tokens")
    messages = body.items("messages")
    question = asked(body, messages, longest, request.app.state.options)
    streams = bool(body.flag("stream"))
    shows_usage = bool(body.fields("stream_options").flag("include_usage"))
    pieces = await begun(request, question)
    answer = _Completion(question, base_of(request))
    if not streams:
        return JSONResponse(answer.whole(await whole(pieces)))
    return await sse.streamed(
        pieces,
        begin=lambda: answer.chunk({"role": "assistant", "content": ""}),
        show=lambda piece: answer.chunk({"content": piece}),
        end=lambda result: answer.end(result, shows_usage),
        fail=lambda refused: sse.event(errors.as_dict(refused)),
    )


class _Completion:
    """The objects that tell of one answer."""

    def __init__(self, question: Asked, base: str):
        self._base = base
        self._common = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": question.model,
        }

    def whole(self, answer: "Answer") -> dict[str, Any]:
        """The answer at once."""
        message = {
            "role": "assistant",
            "content": answer.answer,
            "refusal": None,
            "annotations": self._annotations(answer),
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _end(answer)}
        return {
            "object": "chat.completion",
            **self._common,
            "choices": [choice],
            "usage": usage(answer),
            "longctx": more(answer),
        }

    def chunk(self, delta: dict[str, Any], finish: str | None = None, **others: Any) -> str:
        """An event with what is new."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event(choices=[choice], **others)

    def end(self, answer: "Answer", shows_usage: bool) -> str:
        """The last events: where the answer stands, and what it took."""
        delta = {"annotations": self._annotations(answer)}
        events = self.chunk(delta, _end(answer), longctx=more(answer))
        if shows_usage:
            events += self._event(choices=[], usage=usage(answer))
        return events + DONE

    def _event(self, **values: Any) -> str:
        return sse.event({"object": "chat.completion.chunk", **self._common, **values})

    def _annotations(self, answer: "Answer") -> list[dict[str, Any]]:
        found = citations(answer, self._base)
        return [{"type": "url_citation", "url_citation": citation} for citation in found]


def usage(answer: "Answer") -> dict[str, int]:
    """The tokens that were read for an answer, and those of the answer."""
    read, made = counted(answer)
    return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}


def _end(answer: "Answer") -> str:
    return "length" if answer.stop == "length" else "stop"


routes = [Route("/v1/chat/completions", complete, methods=["POST"])]
