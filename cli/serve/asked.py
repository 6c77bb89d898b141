"""A question as both interfaces of OpenAI send it: to which documents, with which settings.

What would change the meaning of an answer, and cannot be done, is refused; other fields that we do
not know are left alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from longctx.cli.serve.fields import Fields
from longctx.cli.serve.options import Options
from longctx.core.ask.follow_up import Exchange, refers_back
from longctx.core.common.errors import UsageError
from longctx.core.profile.sampling import Sampling

ALL = "longctx"  # the model that asks every document
PREFIX = f"{ALL}/"
OWN = "longctx"  # the field with settings that OpenAI has no names for
OWN_FIELDS = ("gather", "passages", "gather_by", "answer_by", "quote", "anyway")
OWN_FIELDS += ("top_k", "min_p", "repetition_penalty")
# Values that ask for nothing that is not done anyhow; any other is refused.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "n": (1,),
    "previous_response_id": (),
    "conversation": (),
    "background": (False,),
    "prompt": (),
}
TEXT = ("text", "input_text", "output_text")


@dataclass(frozen=True)
class Asked:
    """A question ready to be put.

    Attributes:
        model: as the client names it.
        document: its name; empty: all.
        question: the client's words.
        before: the earlier exchanges that it refers to.
        how: arguments of `longctx.Document.ask`.
    """

    model: str
    document: str
    question: str
    before: tuple[Exchange, ...] = ()
    how: dict[str, Any] = field(default_factory=dict)


def asked(body: Fields, messages: Sequence[Any], longest: int | None, options: Options) -> Asked:
    """The question of a request.

    Args:
        body: the request.
        messages: its messages, the question last.
        longest: tokens that the client wants at most.
        options: the server's.

    Raises:
        Refused: 400, for what is wrong or cannot be done.
        UsageError: a number is out of range.
    """
    require_possible(body)
    model = body.required("model")
    question, before = conversation(body, messages)
    return Asked(
        model=model,
        document=document_of(body, model),
        question=question,
        before=before if refers_back(question) else (),
        how={**options.asked, **_settings(body, longest, options)},
    )


def document_of(body: Fields, model: str) -> str:
    """The document that a model's name stands for; empty: all of them.

    Raises:
        Refused: 404, no name of a model is like this.
    """
    if model == ALL:
        return ""
    if not model.startswith(PREFIX) or model == PREFIX:
        body.refuse("model", f"must be '{ALL}' (all documents) or '{PREFIX}NAME'; see /v1/models")
    return model.removeprefix(PREFIX)


def require_possible(body: Fields) -> None:
    """Refuses what cannot be done and would change the answer.

    Raises:
        Refused: 400.
    """
    for name, harmless in HARMLESS.items():
        if name in body and body.raw(name) not in harmless:
            body.refuse(name, "cannot be used here: answers are one text from a document")
    for name in ("response_format", "text"):
        form = body.fields(name)
        form = form.fields("format") if name == "text" else form
        if (form.text("type") or "text") != "text":
            form.refuse("type", "cannot be used here: answers are plain text")


def conversation(body: Fields, messages: Sequence[Any]) -> tuple[str, tuple[Exchange, ...]]:
    """The question, and the exchanges before it, from messages of users and assistants.

    What other roles say (system, developer) is left alone: how a document is asked stands in the
    profile of the model.

    Raises:
        Refused: 400.
    """
    exchanges: list[Exchange] = []
    question: str | None = None
    for message in messages:
        if not isinstance(message, dict):
            body.refuse("messages", "must be a list of objects")
        told = Fields(message, "messages")
        role = told.text("role") or "user"
        if role in ("system", "developer"):
            continue
        if role not in ("user", "assistant"):
            told.refuse("role", "must be system, developer, user or assistant")
        text = _text_of(told)
        if role == "user":
            if question is not None:
                exchanges.append(Exchange(question, ""))
            question = text
        elif question is not None:
            exchanges.append(Exchange(question, text))
            question = None
    if question is None or not question.strip():
        body.refuse("messages", "must end with a question of the user")
    return question, tuple(exchanges)


def _text_of(message: Fields) -> str:
    """What a message says; it may come in parts."""
    content = message.raw("content")
    if isinstance(content, str) or content is None:
        return content or ""
    texts = []
    for part in message.items("content"):
        told = Fields(part, "messages.content") if isinstance(part, dict) else message
        if told is message or told.raw("type") not in TEXT:
            message.refuse("content", "may have only text: images, sounds and files are not read")
        texts.append(told.text("text") or "")
    return "".join(texts)


def _settings(body: Fields, longest: int | None, options: Options) -> dict[str, Any]:
    """What the request says of how to answer."""
    own = body.fields(OWN)
    own.require_known(*OWN_FIELDS)
    most = options.max_new_tokens
    given = {
        "max_new_tokens": min(longest, most) if longest is not None else None,
        "temperature": body.number("temperature"),
        "top_p": body.number("top_p"),
        "seed": body.whole("seed"),
        "stop": body.texts("stop"),
        "top_k": own.whole("top_k"),
        "min_p": own.number("min_p"),
        "repetition_penalty": own.number("repetition_penalty"),
    }
    Sampling(**given | {"stop": given["stop"] or None})  # wrong values are told of at once
    given |= {"gather": own.whole("gather"), "passages": own.whole("passages")}
    given |= {"gather_by": own.text("gather_by"), "quote": own.flag("quote")}
    given |= {"answer_by": own.text("answer_by"), "anyway": bool(own.flag("anyway"))}
    for name in ("gather", "passages"):
        if given[name] is not None and given[name] < 1:
            raise UsageError(f"cannot use {name} {given[name]}", "", "Give 1 or more.")
    return {name: value for name, value in given.items() if value not in (None, ())}
