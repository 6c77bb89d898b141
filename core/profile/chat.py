"""Chat templates: what an instruct model expects to see around a document and its question.

transformers renders the template once, with a message that has placeholders for document and
question, and the result is cut at these. So the part before the document is read only once, and
the part after it with every question. Knows nothing of tokens.
"""

import inspect
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.common.foreign import foreign
from longctx.core.profile.profile import PLACE, Chat, PromptTemplate

# Text that no template makes itself, with characters that escaping would change.
DOCUMENT, QUESTION = "<'\"&[the document's place]\\>", "<'\"&[the question's place]\\>"
# For templates that write the date: a state must not depend on the day it is made.
DATES = {"%Y": "2026", "%y": "26", "%m": "01", "%B": "January", "%b": "Jan", "%d": "01"}
CALENDAR = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(f" | replace('{part}', '{value}')" for part, value in DATES.items())
    + " }}{% endmacro %}{{ '' }}"
)
REMEDY = "Write the model's prompt in a profile (docs/profiles.md)."


def resolve(prompt: PromptTemplate | Chat | None, tokenizer: Any) -> PromptTemplate:
    """The text around a document, from a profile or from the tokenizer's chat template.

    Args:
        prompt: the profile's prompt; None to use the chat template, if there is one.
        tokenizer: a transformers tokenizer.

    Raises:
        UsageError: a chat template is required and there is none, or it cannot be cut.
    """
    if isinstance(prompt, PromptTemplate):
        return prompt
    if tokenizer.chat_template:
        return _cut(prompt or Chat(), tokenizer)
    if prompt is None:
        return PromptTemplate(prefix=_begin(tokenizer))
    raise UsageError("no chat template", "the model's tokenizer comes without one", REMEDY)


def _begin(tokenizer: Any) -> str:
    """The token that the tokenizer puts before every text, or an empty string."""
    ids = tokenizer.backend_tokenizer.encode("").ids
    return tokenizer.bos_token if ids and ids[0] == tokenizer.bos_token_id else ""


def _cut(chat: Chat, tokenizer: Any) -> PromptTemplate:
    content = f"{chat.prefix}{DOCUMENT}{chat.question.replace(PLACE, QUESTION, 1)}"
    text = _render(tokenizer, content, chat.chat_options)
    marks = [text.count(mark) for mark in (DOCUMENT, QUESTION)]
    if marks != [1, 1] or content not in text:
        times = f"{marks[0]} times the document and {marks[1]} times the question"
        altered = "it alters the text of a message" if marks == [1, 1] else f"it gives {times}"
        raise UsageError("cannot use the model's chat template", altered, REMEDY)
    before, after = text.split(content)
    if PLACE in after:
        raise UsageError("cannot use the model's chat template", f"it has {PLACE} in it", REMEDY)
    return PromptTemplate(prefix=before + chat.prefix, question=chat.question + after)


def _render(tokenizer: Any, content: str, options: dict[str, Any]) -> str:
    """The template's text for one user message, up to where the model's message begins."""
    taken = {"messages", *inspect.signature(tokenizer.apply_chat_template).parameters}
    if clash := sorted(taken & {*options}):
        why = "it is no variable of the template's own"
        raise UsageError(f"cannot use {clash[0]!r} in `chat_options`", why, "Leave it out.")
    with foreign("cannot use the model's chat template", REMEDY):
        template = tokenizer.get_chat_template()
        return tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            chat_template=CALENDAR + template if "strftime_now" in template else template,
            tokenize=False,
            add_generation_prompt=True,
            **{"enable_thinking": False, **options},
        )
