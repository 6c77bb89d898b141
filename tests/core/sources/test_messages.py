"""Messages of .eml and .msg files: their text, what is attached, and where each is cited."""

import sys
from email.message import EmailMessage

import pytest
from sample_files import docx, odt, paragraph, part_in, pdf, read, xlsx, zipped
from sample_messages import eml, msg, ole, outlook

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import formats
from longctx.core.sources.reader import Source


def cited(source: Source) -> dict[str, str]:
    """Where each text of a message is cited, without headings."""
    _, pieces = read(source)
    places = {}
    for text, number in pieces:
        place = formats.cited("message", number, part_in(pieces, number))
        if not text.startswith("[attachment: "):
            places[place] = places.get(place, "") + text
    return places


FILES = {
    "a report.pdf": pdf("The keeper", "A boat"),
    "costs.xlsx": xlsx({"Costs": [["Rent", 7]]}),
    "n.txt": "läuft\r\n".encode(),
    "photo.png": b"\x89PNG\0\0",
    "empty.txt": b"",
}
READ = {
    "message 1 / a report.pdf:p. 1": "The keeper\n\n",
    "message 1 / a report.pdf:p. 2": "A boat\n\n",
    "message 1 / costs.xlsx": "[sheet: Costs]\nRent\t7\n",
    "message 1 / n.txt": "läuft\n\n",
}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.eml", eml("Grüße", "Hello\n", FILES, "<p>Hello in HTML")),
        ("a.msg", msg("Grüße", "Hello\r\n", FILES)),
    ],
)
def test_attachments_are_read_and_pictures_named(opened, name, data):
    source = opened(name, data)
    places = cited(source)
    body = places.pop("message 1")
    assert places == READ
    assert body.startswith("From: Ina")
    assert body.endswith("Subject: Grüße\n\nHello\n\n")
    text = read(source)[0]
    assert "HTML" not in text
    assert all(f"[attachment: {attached}]\n" in text for attached in FILES)
    assert source.lost == []


INNER = {"p.odt": odt("<text:p>A boat</text:p>")}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.eml", eml("One", "Hello", {"f.eml": eml("Two", "Inside", INNER), "n.txt": b"after"})),
        ("b.eml", eml("One", "Hello", {"f.msg": msg("Two", "Inside", INNER), "n.txt": b"after"})),
        ("a.msg", msg("One", "Hello", {"f": outlook("Two", "Inside", INNER), "n.txt": b"after"})),
    ],
)
def test_messages_in_messages_are_counted_on(opened, name, data):
    places = cited(opened(name, data))
    assert places["message 2"].endswith("Subject: Two\n\nInside\n\n")
    assert places["message 2 / p.odt:paragraph 1"] == "A boat\n"
    assert places["message 1 / n.txt"] == "after\n\n"


@pytest.mark.parametrize(
    ("attached", "data", "why"),
    [
        ("bad.docx", b"PK\3\4", "it is damaged"),
        ("bad.pdf", b"%PDF", "it is damaged"),
        ("old.doc", b"\0\1", "an older text document"),
        ("z.zip", zipped({"a": b"a"}), "archives in messages are not opened"),
        ("bomb.odt", zipped({"content.xml": b"<!DOCTYPE x><x/>"}), "declares a document type"),
    ],
)
def test_documents_that_cannot_be_read_are_lost_and_the_rest_is_read(opened, attached, data, why):
    for name, whole in (
        ("a.eml", eml("One", "Hello", {attached: data, "n.txt": b"after"})),
        ("a.msg", msg("One", "Hello", {attached: data, "n.txt": b"after"})),
    ):
        source = opened(name, whole)
        assert cited(source)["message 1 / n.txt"] == "after\n\n"
        (told,) = source.lost
        assert f"the attachment '{attached}' cannot be read: " in told
        assert why in told


def test_parts_that_two_attachments_both_have_count_twice(opened):
    data = docx(paragraph("one")), docx(paragraph("two"))
    places = cited(opened("a.eml", eml("One", "x", {"a.docx": data[0], "b.docx": data[1]})))
    assert places["message 1 / a.docx:paragraph 1"] == "one\n"
    assert places["message 1 / b.docx:paragraph 1"] == "two\n"


@pytest.mark.usefixtures("here")
def test_an_attachment_whose_library_is_missing_is_lost(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    source = opened("a.eml", eml("One", "Hello", {"a.xlsx": FILES["costs.xlsx"]}))
    assert "Hello" in cited(source)["message 1"]
    assert "needs openpyxl, which is not installed" in source.lost[0]


def test_messages_in_one_another_end(opened):
    data = eml("0", "deep")
    for depth in range(1, 8):
        data = eml(str(depth), "x", {"f.eml": data})
    source = opened("a.eml", data)
    assert len([place for place in cited(source) if "/" not in place]) == 4
    assert "over 4 messages are in one another" in source.lost[0]


@pytest.mark.parametrize("kind", ["application/pkcs7-mime", "multipart/encrypted"])
def test_encrypted_mail_is_refused(opened, kind):
    message = EmailMessage()
    message["Subject"], message["Content-Type"] = "One", kind
    with pytest.raises(UnreadableInput, match=r"encrypted or sealed.*save it decrypted"):
        read(opened("a.eml", message.as_bytes()))


def test_a_stream_that_is_longer_than_its_file_is_refused(opened):
    data = bytearray(msg("One", "Hello"))
    root = data.index("Root Entry".encode("utf-16-le"))
    data[root + 120 : root + 124] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(UnreadableInput, match="a part of it is longer than the file"):
        read(opened("a.msg", bytes(data)))


def test_mail_of_outlook_that_is_a_page(opened):
    tree = outlook("One", "", head=32, html="<p>Hello<p>you")
    assert cited(opened("a.msg", ole(tree)))["message 1"].endswith("\nHello\n\nyou\n\n")


@pytest.mark.parametrize(
    "line", ["filename*=x'", "filename*=idna''%ff", "filename=a; filename*0=b"]
)
def test_odd_mail_is_read_all_the_same(opened, line):
    data = f"Subject: Odd\nContent-Disposition: attachment; {line}\n\nab\n".encode()
    assert "Subject: Odd" in cited(opened("a.eml", data))["message 1"]
