"""Outlook: main headers and text of a message, plain rather than HTML; then what is attached.

Attachments are read as files of their names. Messages in it are counted on, from 1 for itself.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources.letters import Attached, Letter, LetterFormat, of_page

if TYPE_CHECKING:
    from oxmsg import Message
    from oxmsg.storage import Storage

PROPERTIES = "__properties_version1.0"
INNER = "__substg1.0_3701000D"  # the message that is an attachment
HEAD = 24  # bytes before the properties of such a message, and 8 more of a file's own
RTF = 0x1009  # the property of a text in compressed RTF
SHORT_NAME = 0x3704  # of an attachment, of the time of eight letters
SHOWN_NAME = 0x3001
SENDER = 0x0C1A  # the sender's name


class Format(LetterFormat):
    """The message, and what is attached."""

    needs = "oxmsg"

    def letter(self, data: bytes, name: str) -> Letter:
        """See `LetterFormat`."""
        from olefile import OleFileIO
        from oxmsg.storage import Storage

        with OleFileIO(data) as ole:
            _require_bounded(ole, len(data))
            return _letter(Storage.from_ole(ole), name)


def _require_bounded(ole: Any, most: int) -> None:
    """Refuses a chain of sectors that leads back to itself: it would be followed for gigabytes."""
    if any(entry and entry.size > most for entry in ole.direntries):
        raise ValueError("a part of it is longer than the file")


def _letter(storage: "Storage", name: str) -> Letter:
    from oxmsg import Message

    message = Message(storage)
    if "SMIME" in message.message_class.upper():
        raise UnreadableInput(
            f"cannot read '{name}'",
            "it is encrypted or sealed",
            "Open it in Outlook and save it decrypted.",
        )
    text = message.body or of_page(message.html_body or "")
    only_rtf = not text.strip() and message.properties.binary_prop_value(RTF)
    lost = "its text is in compressed RTF alone, which is not read" if only_rtf else ""
    attached = [_attached(each) for each in storage.iter_attachment_storages()]
    return Letter(_heads(message), text, attached, lost=lost)


def _heads(message: "Message") -> list[tuple[str, str]]:
    to = ", ".join(each.name or each.email_address or "" for each in message.recipients)
    sent = message.message_headers.get("Date") or message.sent_date
    sender = message.sender or message.properties.str_prop_value(SENDER)
    found = {"From": sender, "To": to, "Date": sent, "Subject": message.subject}
    return [(key, str(value)) for key, value in found.items() if value]


def _attached(storage: "Storage") -> Attached:
    from oxmsg import Message
    from oxmsg.attachment import Attachment

    its = Attachment(storage)
    said = [its.file_name, *map(its.properties.str_prop_value, (SHORT_NAME, SHOWN_NAME))]
    name = next(filter(None, said), "a file")
    for inner in storage.storages:
        if inner.name == INNER:
            own = _as_file(inner)
            name = Message(own).subject or name
            return Attached(name, partial(_letter, own, name))
    return Attached(name, lambda: its.file_bytes or b"")


def _as_file(inner: "Storage") -> "Storage":
    """A message in another one as if it were a file, whose properties begin 8 bytes later."""
    streams = tuple(
        replace(each, bytes_=each.bytes_[:HEAD] + bytes(8) + each.bytes_[HEAD:])
        if each.name == PROPERTIES
        else each
        for each in inner.streams
    )
    return replace(inner, streams=streams)
