"""The routes of the page and its policy, over a real socket; the page itself in `test_page.py`."""

import json
import re
import tempfile
import time
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

from longctx.cli.serve.spool import PREFIX
from longctx.cli.serve.uploads import progress
from longctx.core.ingest.job import Progress

ASKED = "What is the code of the oil-store padlock?"
NEEDLE = "The code of the oil-store padlock is 58204."
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FOLDER = Path(__file__).parents[3] / "cli" / "serve" / "page"


class Markup(HTMLParser):
    """What a page names and runs: attributes of each element, and text inside of scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def events(text: str) -> list[tuple[str, dict]]:
    """The events of a stream, without comments."""
    parts = [part for part in text.split("\n\n") if part and not part.startswith(":")]
    found = [re.fullmatch(r"event: (\w+)\ndata: (.*)", part) for part in parts]
    assert all(found), text
    return [(match[1], json.loads(match[2])) for match in found if match]


def error(response, status: int) -> dict:
    assert response.status_code == status, response.text
    return response.json()["error"]


@pytest.fixture(scope="module", autouse=True)
def own_temporaries(tmp_path_factory):
    """Other processes' uploads lie elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporaries")))
        yield


def uploads() -> set[Path]:
    return {*Path(tempfile.gettempdir()).glob(f"{PREFIX}*")}


def text_of(lines) -> str:
    return "\n".join(line["text"] for line in lines)


def test_the_page_and_its_files_run_nothing_but_their_own_scripts(changing):
    answer = changing.http.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    elements = Markup(answer.text).elements
    for tag, given in elements:
        assert not {name for name in given if name.startswith("on") or name == "style"}, tag
        assert tag != "style"
        assert tag != "script" or given.get("src")
    named = [given.get("src") or given.get("href") for tag, given in elements if tag != "a"]
    named = [name for name in named if name]
    assert len(named) == 3
    for name in named:
        assert name.startswith("/static/")
        assert changing.http.get(name).status_code == 200


def test_every_file_is_served_as_what_it_is(changing):
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
    kinds["svg"] = "image/svg+xml"
    for file in FOLDER.iterdir():
        answer = changing.http.get(f"/static/{file.name}")
        assert answer.content == file.read_bytes()
        assert answer.headers["content-type"].startswith(kinds[file.suffix[1:]])
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == POLICY


def test_scripts_import_what_is_there_and_make_no_markup_of_text():
    for file in FOLDER.glob("*.js"):
        script = file.read_text("utf-8")
        for name in re.findall(r'from "\./([^"]+)"', script):
            assert (FOLDER / name).is_file(), f"{file.name}: {name}"
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b"
        assert not re.search(rf"{forbidden}|new Function|srcdoc|https?://(?!www\.w3\.org)", script)


@pytest.mark.parametrize(
    "name", ["app.py", "../app.py", "..%2Fapp.py", "%2e%2e/app.py", "index", "page", "/etc/passwd"]
)
def test_nothing_else_is_a_file_of_the_page(changing, name):
    assert changing.http.get(f"/static/{name}").status_code == 404


def test_documents_are_listed(changing, own_library):
    told = {one["name"]: one for one in changing.http.get("/api/documents").json()}
    assert set(told["book"]) == {
        *("name", "tokens", "status", "sources", "created", "size", "model")
    }
    document = own_library["book"]
    assert told["book"]["sources"] == [*document.sources]
    assert (told["book"]["tokens"], told["book"]["model"]) == (document.tokens, "tiny")
    whole = changing.http.get("/api/documents/book").json()
    assert whole["name"] == "book"
    assert whole["tokens"] == document.tokens
    assert error(changing.http.get("/api/documents/other"), 404)["code"] == "not_found"


def test_text_is_whole_lines_around_bytes(changing, book):
    start = book.index(NEEDLE)
    given = {"start": start, "end": start + 5, "before": 200, "after": 300}
    marks = {"mark": f"{start}-{start + 3}", "chars": f"{start}:37-42"}
    told = changing.http.get("/api/documents/book/text", params={**given, **marks}).json()
    assert book[told["start"] : told["end"]] == text_of(told["lines"]) + "\n"
    assert (told["source"], told["size"]) == (0, len(book))
    assert told["name"].endswith("book.txt")
    (line,) = [line for line in told["lines"] if line["text"] == NEEDLE]
    assert [NEEDLE[a:b] for a, b in line["marks"]] == ["The", "58204"]
    assert (line["line"], line["place"], line["start"]) == (50, "50", start)
    assert (told["first"], told["last"]) == (told["lines"][0]["line"], told["lines"][-1]["line"])
    assert told["first"] < 50 < told["last"]


def test_text_at_a_line(changing):
    given = {"line": 50, "before": 0, "after": 0}
    told = changing.http.get("/api/documents/book/text", params=given).json()
    assert [line["text"] for line in told["lines"]] == [NEEDLE]
    beyond = changing.http.get("/api/documents/book/text", params={"line": 10**6, "before": 10})
    assert beyond.json()["end"] == beyond.json()["size"]


@pytest.mark.parametrize(
    "given",
    [
        {"start": "x"},
        {"start": "-1"},
        {"end": "1e3"},
        {"line": ""},
        {"mark": "5"},
        {"chars": "5:6"},
        {"before": "9" * 30},
        {"source": "1"},
        {"source": "٣"},
    ],
)
def test_places_that_are_none_are_refused(changing, given):
    assert error(changing.http.get("/api/documents/book/text", params=given), 400)["message"]


def test_the_strip_is_highest_where_the_words_are(changing, book, own_library):
    place = "/api/documents/book/strip"
    told = changing.http.get(place, params={"q": ASKED, "bins": 20}).json()
    at = book.index("58204") * 20 // len(book)
    assert max(range(20), key=lambda number: told["bins"][number]) in (at - 1, at, at + 1)
    assert told["bins"][at] > 0.9 > 0.3 > told["bins"][0]
    assert told["total"] == len(book)
    name = own_library["book"].sources[0]
    part = {"document": "book", "source": 0, "name": name, "from": 0, "to": len(book)}
    assert told["sources"] == [part]
    assert changing.http.get(place).json() == {**told, "bins": []}
    for bins in ("0", "2001", "x"):
        error(changing.http.get(place, params={"q": "a", "bins": bins}), 400)


def test_an_answer_comes_in_pieces_and_then_whole(changing, own_library):
    body = {"document": "book", "question": ASKED, "before": []}
    told = events(changing.http.post("/api/ask", json=body).text)
    assert [name for name, _ in told[:-1]] == ["piece"] * (len(told) - 1)
    kind, answer = told[-1]
    assert kind == "answer"
    assert "".join(piece["text"] for _, piece in told[:-1]).strip() == answer["answer"] == "58204"
    alone = own_library.document("book").ask(ASKED, gather=256).as_dict()
    unlike = {"timings", "tokens_per_s", "state"}
    kept = {key: value for key, value in answer.items() if key not in unlike}
    assert kept == json.loads(json.dumps({k: v for k, v in alone.items() if k not in unlike}))


def test_a_question_goes_on_from_what_was_said(changing):
    before = [{"question": "Where is the padlock?", "answer": "At the oil-store."}]
    body = {"document": "book", "question": "What is its code?", "before": before}
    (_, answer) = events(changing.http.post("/api/ask", json=body).text)[-1]
    assert answer["continues"] == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"document": "other", "question": "who?"}, 404),
        ({"document": "book"}, 400),
        ({"document": "book", "question": " "}, 400),
        ({"document": "book", "question": "who?", "model": "x"}, 400),
        ({"document": "book", "question": "who?", "before": ["x"]}, 400),
        ({"document": "book", "question": "who?", "before": [{"answer": "x"}]}, 400),
        ({"document": 5, "question": "who?"}, 400),
    ],
)
def test_questions_that_cannot_be_asked(changing, body, status):
    error(changing.http.post("/api/ask", json=body), status)


def test_passages_are_found_in_one_document_or_in_all(changing, own_library):
    body = {"document": "book", "query": "padlock code", "k": 3}
    told = changing.http.post("/api/find", json=body).json()
    assert told["passages"][0]["match"]["text"] == NEEDLE
    alone = own_library.document("book").find("padlock code", k=3).as_dict()
    assert told["passages"] == alone["passages"]
    every = changing.http.post("/api/find", json={"query": "sign quay gull", "k": 5}).json()
    assert len(every["documents"]) == 2
    assert "window.stolen" in every["passages"][0]["text"]
    for wrong in ({"query": " "}, {"query": "a", "k": 0}, {"query": "a", "k": 101}):
        error(changing.http.post("/api/find", json={"document": "book", **wrong}), 400)


def test_a_file_that_is_sent_is_read_and_called_after_itself(changing, own_library):
    text = b"The harbour bell was cast in 1888 by Dahl.\n" * 30
    answer = changing.http.post("/api/ingest", params={"name": r"C:\docs\bell.txt"}, content=text)
    *steps, (last, done) = events(answer.text)
    assert {name for name, _ in steps} == {"progress"}
    assert steps[-1][1]["total"] == len(text)
    assert last == "done"
    assert done["document"] == "bell"
    try:
        document = own_library.document("bell")
        assert (document.sources, document.tokens) == (("bell.txt",), done["tokens"])
        assert document.as_dict()["sources"][0]["path"] is None
        again = {"params": {"name": "bell.txt"}, "content": b"The bell is gone.\n"}
        assert error(changing.http.post("/api/ingest", **again), 409)["code"] == "exists"
        again["params"]["replace"] = "1"
        assert events(changing.http.post("/api/ingest", **again).text)[-1][0] == "done"
        assert own_library.document("bell").text() == "The bell is gone.\n"
    finally:
        own_library.remove("bell")
    assert not uploads()


def test_an_archive_that_is_sent(changing, own_library, tmp_path):
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
        archive.writestr("a/one.txt", "The keeper wrote one.")
        archive.writestr("two.txt", "The keeper wrote two.")
    content = (tmp_path / "made.zip").read_bytes()
    told = changing.http.post("/api/ingest", params={"name": "both.zip"}, content=content)
    assert events(told.text)[-1][1]["document"] == "both"
    assert own_library.document("both").sources == ("both.zip/a/one.txt", "both.zip/two.txt")
    assert changing.http.delete("/api/documents/both").json() == {"deleted": "both"}


@pytest.mark.parametrize("name", ["", "..", "a/..", "a\x07b", "\u2028"])
def test_names_that_no_file_has(changing, name):
    answer = changing.http.post("/api/ingest", params={"name": name}, content=b"text")
    assert error(answer, 400)["param"] == "name"


def test_what_is_no_text_is_refused_and_leaves_nothing(changing, own_library):
    before = [document.name for document in own_library]
    sent = {"params": {"name": "picture.txt"}, "content": bytes(range(256)) * 40}
    told = error(changing.http.post("/api/ingest", **sent), 422)
    assert "picture.txt" in told["message"]
    assert tempfile.gettempdir() not in told["message"]
    assert [document.name for document in own_library] == before
    assert not uploads()


def test_a_reading_ends_where_its_client_leaves(changing, own_library):
    text = "".join(f"Line {i} of a long log that nobody waits for.\n" for i in range(20_000))
    place = {"params": {"name": "long.log"}, "content": text.encode()}
    with changing.http.stream("POST", "/api/ingest", **place) as answer:
        assert any(line == "event: progress" for line in answer.iter_lines())
    reading = changing.app.state.reading
    until = time.monotonic() + 100
    while (reading.running or uploads()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not reading.running
    assert not uploads()
    assert own_library["long"].status in ("draft", "reading")
    other = {"params": {"name": "long.log"}, "content": b"Another log.\n"}
    assert error(changing.http.post("/api/ingest", **other), 409)["code"] == "exists"
    other["params"]["replace"] = "1"
    assert events(changing.http.post("/api/ingest", **other).text)[-1][0] == "done"
    own_library.remove("long")


def test_a_document_is_deleted(changing, own_library):
    sent = {"params": {"name": "gone.txt"}, "content": b"It will be gone.\n"}
    events(changing.http.post("/api/ingest", **sent).text)
    place = "/api/documents/gone"
    assert changing.http.get(place).status_code == 200
    assert changing.http.delete(place).json() == {"deleted": "gone"}
    assert changing.http.get(place).status_code == 404
    assert error(changing.http.delete(place), 404)["code"] == "not_found"


def test_names_of_any_signs_are_found(changing, marked_name):
    from urllib.parse import quote

    told = changing.http.get(f"/api/documents/{quote(marked_name, safe='')}/text").json()
    assert "<script>" in told["lines"][0]["text"]


def test_how_far_a_reading_is():
    state = Progress(total=1000, cache=200, processed=600, tokens=90, kept=0, time_ms=2000)
    assert progress(state) == {
        **{"done": 600, "total": 1000, "tokens": 90},
        **{"rate": 200.0, "left_s": 2.0},
    }
    unknown = Progress(total=None, cache=0, processed=600, tokens=90, kept=0, time_ms=2000)
    assert progress(unknown)["left_s"] is None
    begun = Progress(total=1000, cache=200, processed=200, tokens=90, kept=0, time_ms=0)
    assert (progress(begun)["rate"], progress(begun)["left_s"]) == (None, None)


def test_the_page_needs_no_token_and_what_it_asks_does(serve):
    served = serve(token="a-token-of-some-length")
    served.http.headers.pop("Authorization")
    for path in ("/", "/static/main.js"):
        assert served.http.get(path).status_code == 200
    for path in ("/api/documents", "/api/documents/notes", "/api/documents/notes/text"):
        assert error(served.http.get(path), 401)["type"] == "authentication_error"
    assert served.http.delete("/api/documents/notes").status_code == 401
    assert served.http.post("/api/ingest?name=a.txt", content=b"a").status_code == 401
    shown = {"Authorization": "Bearer a-token-of-some-length"}
    assert served.http.get("/api/documents", headers=shown).status_code == 200
