"""Mail: main headers and text of a message, plain rather than HTML; then what is attached.

Attachments are read as files of their names. Messages in it are counted on, from 1 for itself.
"""

from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from functools import partial

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import mail
from longctx.core.sources.letters import Attached, Letter, LetterFormat

SEALED = ("application/pkcs7-mime", "application/x-pkcs7-mime", "multipart/encrypted")


class Format(LetterFormat):
    """The message, and what is attached."""

    def letter(self, data: bytes, name: str) -> Letter:
        """See `LetterFormat`."""
        message = message_from_bytes(data)
        if not message.keys():
            raise ValueError("it has no headers")
        return _letter(message, name)


def _letter(message: Message, name: str) -> Letter:
    if message.get_content_type() in SEALED:
        raise UnreadableInput(
            f"cannot read '{name}'",
            "it is encrypted or sealed",
            "Open it in your mail program and save it decrypted.",
        )
    parts = list(_parts(message))
    leaves = [part for part in parts if not part.is_multipart()]
    texts = list(mail.own_texts(leaves))
    attached = [_attached(part) for part in parts if part.is_multipart() or mail.filename(part)]
    text, bad = "".join(text for _, text, _ in texts), sum(bad for _, _, bad in texts)
    return Letter(mail.heads(message), text, attached, bad)


def _attached(part: Message) -> Attached:
    """An attachment; a forwarded message has its subject for a name."""
    inner = part.get_payload()
    if not isinstance(inner, list):
        return Attached(mail.filename(part), partial(mail.payload, part))
    message = inner[0] if inner and isinstance(inner[0], Message) else Message()
    name = mail.filename(part) or dict(mail.heads(message)).get("Subject", "a message")
    return Attached(name, partial(_letter, message, name))


def _parts(message: Message) -> Iterator[Message]:
    """The parts of a message that hold something: texts, files, and other messages as a whole."""
    waiting = [message]
    while waiting:
        part = waiting.pop()
        inner = part.get_payload()
        if isinstance(inner, list) and part.get_content_maintype() == "multipart":
            waiting += reversed([each for each in inner if isinstance(each, Message)])
        else:
            yield part
