"""Messages of both kinds with what is attached, as mail programs write them."""

import struct
from email import message_from_bytes
from email.message import EmailMessage
from pathlib import PurePath
from typing import Any
from zlib import crc32

SECTOR, MINI, CUTOFF = 512, 64, 4096  # bytes of the containers that Outlook writes
END, FREE, FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
ROOT, STORAGE, STREAM = 5, 1, 2
STRING, BINARY = 0x001F, 0x0102
Tree = dict[str, "bytes | Tree"]


def eml(subject: str, text: str, attached: dict[str, bytes] | None = None, html: str = "") -> bytes:
    """A message as it is sent; what is attached under a name that ends in .eml is a message."""
    message = EmailMessage()
    message["From"], message["Subject"] = "Ina <ina@example.org>", subject
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    for name, data in (attached or {}).items():
        if PurePath(name).suffix == ".eml":
            message.add_attachment(message_from_bytes(data, EmailMessage))
        else:
            message.add_attachment(data, "application", "octet-stream", filename=name)
    if attached or html:
        message.set_boundary(f"border-{crc32(subject.encode())}")
    return message.as_bytes()


def msg(subject: str, text: str, attached: dict[str, bytes | Tree] | None = None) -> bytes:
    """A message as Outlook saves it; an attachment that is a tree is a message."""
    return ole(outlook(subject, text, attached, 32))


def outlook(
    subject: str, text: str, attached: dict[str, Any] | None = None, head: int = 24, html: str = ""
) -> Tree:
    """The streams of a message; `head` bytes come before its properties, 24 in another message."""
    values: dict[tuple[int, int], bytes] = {
        (0x001A, STRING): "IPM.Note".encode("utf-16-le"),
        (0x0037, STRING): subject.encode("utf-16-le"),
        (0x0C1A, STRING): "Ina".encode("utf-16-le"),
        (0x1000, STRING): text.encode("utf-16-le"),
    }
    if html:
        values |= {(0x1013, BINARY): html.encode()}
        del values[0x1000, STRING]
    tree = _properties(values, head)
    for number, (name, data) in enumerate((attached or {}).items()):
        own = {(0x3707, STRING): name.encode("utf-16-le")}
        if isinstance(data, bytes):
            inner = _properties(own | {(0x3701, BINARY): data}, 8)
        else:
            inner = _properties(own, 8) | {"__substg1.0_3701000D": data}
        tree[f"__attach_version1.0_#{number:08X}"] = inner
    return tree


def _properties(values: dict[tuple[int, int], bytes], head: int) -> Tree:
    rows = [struct.pack("<HHIII", kind, key, 6, len(v) + 2, 0) for (key, kind), v in values.items()]
    tree: Tree = {"__properties_version1.0": bytes(head) + b"".join(rows)}
    return tree | {f"__substg1.0_{key:04X}{kind:04X}": v for (key, kind), v in values.items()}


def ole(tree: Tree) -> bytes:
    """A compound file: storages (a tree each) and streams, as [MS-CFB] lays them out."""
    entries: list[list[Any]] = [["Root Entry", ROOT, FREE, b"", FREE]]
    _list(tree, 0, entries)
    small = bytearray()
    fat: list[int] = []
    sectors = bytearray()
    mini_fat: list[int] = []

    def put(data: bytes) -> int:
        if not data:
            return END
        first, count = len(fat), -(-len(data) // SECTOR)
        fat.extend([*range(first + 1, first + count), END])
        sectors.extend(data.ljust(count * SECTOR, b"\0"))
        return first

    for entry in entries[1:]:
        data = entry[3]
        if entry[1] == STREAM and 0 < len(data) < CUTOFF:
            first, count = len(mini_fat), -(-len(data) // MINI)
            mini_fat.extend([*range(first + 1, first + count), END])
            small.extend(data.ljust(count * MINI, b"\0"))
            entry.append(first)
        else:
            entry.append(put(data))
    entries[0][3] = bytes(small)
    entries[0].append(put(bytes(small)))
    of_mini = put(struct.pack(f"<{len(mini_fat)}I", *mini_fat).ljust(SECTOR, b"\xff"))
    directory = put(b"".join(_entry(entries, index) for index in range(len(entries))))
    count = -(-(len(fat) + 8) // (SECTOR // 4 - 1))  # sectors of the table itself, in it too
    first = len(fat)
    table = [*fat, *[FAT] * count]
    table += [FREE] * (count * SECTOR // 4 - len(table))
    sectors += struct.pack(f"<{len(table)}I", *table)
    head = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16)
    head += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    mini_count = -(-len(mini_fat) * 4 // SECTOR)
    head += struct.pack("<IIIIIIIII", 0, count, directory, 0, CUTOFF, of_mini, mini_count, END, 0)
    places = [*range(first, first + count), *[FREE] * (109 - count)]
    return head + struct.pack("<109I", *places) + bytes(sectors)


def _list(tree: Tree, parent: int, entries: list[list[Any]]) -> None:
    """Appends what is in a storage: each entry is the right neighbour of the one before it."""
    before = None
    for name, inner in sorted(tree.items(), key=lambda item: (len(item[0]), item[0].upper())):
        index = len(entries)
        if isinstance(inner, bytes):
            entries.append([name, STREAM, FREE, inner, FREE])
        else:
            entries.append([name, STORAGE, FREE, b"", FREE])
        if before is None:
            entries[parent][2] = index
        else:
            entries[before][4] = index
        before = index
        if not isinstance(inner, bytes):
            _list(inner, index, entries)


def _entry(entries: list[list[Any]], index: int) -> bytes:
    name, kind, child, data, right, first = entries[index]
    written = name.encode("utf-16-le") + b"\0\0"
    where = struct.pack("<III16xI8x8xIQ", FREE, right, child, 0, first, len(data))
    return written.ljust(64, b"\0") + struct.pack("<HBB", len(written), kind, 1) + where
