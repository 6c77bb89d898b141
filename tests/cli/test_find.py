"""`find`: what is printed of what it finds, its options, bad input, and that it needs no model."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_documents import HEADER, add_source, flip
from word_documents import write_texts

from longctx.cli import render
from longctx.core.store.library import Library

LINES = [f"line {i}: the keeper wrote in his book and the rain went on\n" for i in range(1, 401)]
LINES[99] = "line 100: a zeppelin came over the harbour\n"
LINES[249] = "line 250: two zeppelins, it was said, and a customer\n"
LINES[299] = "line 300: customer 53831 wrote of a refund\n"
LINES[349] = "line 350: 53831 zeppelins for no customer, customer or customer\n"
TEXT = "".join(LINES)


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    """A library with the document of LINES; not to be changed."""
    library = Library.open(tmp_path_factory.mktemp("find") / "library", create=True)
    write_texts(library, TEXT)
    return library.path


@pytest.fixture
def written(tmp_path, book):
    """Writes a document of texts, without embeddings, where commands look for a library."""
    library = Library.open(tmp_path / "library", create=True)

    def write(*texts: str, name: str = "book"):
        if texts != (TEXT,) or library.documents():
            return write_texts(library, *texts, name=name)
        shutil.copytree(book, library.path, dirs_exist_ok=True)
        return library.document(name)

    return write


@pytest.fixture
def find(longctx):
    """What `find` prints; it must succeed."""

    def run(*args: object) -> str:
        result = longctx("find", *args)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.fixture
def by_words(find, written):
    """`find` in the document of LINES, as an object."""
    written(TEXT)
    return lambda *args: json.loads(find(*args, "--json"))


def numbers(told: str) -> list[int]:
    """The line numbers of `file:line: text`."""
    return [int(found) for found in re.findall(r"^0\.txt:(\d+): ", told, re.M)]


# --- what is printed ---


def test_the_line_that_matches_is_told_with_its_number(find, written):
    written(TEXT)
    told = find("zeppelin", "--gather-by", "bm25").splitlines()
    assert sorted(told) == sorted(f"0.txt:{n}: {LINES[n - 1].strip()}" for n in (100, 250, 350))


def test_where_no_document_has_vectors_words_alone_decide(longctx, written):
    written(TEXT)
    named = longctx("find", "zeppelin", "--gather-by", "bm25")
    unnamed = longctx("find", "zeppelin")
    assert unnamed.stdout == named.stdout
    assert unnamed.stderr == named.stderr


def test_an_exact_string_comes_first(find, written):
    written(TEXT)
    assert numbers(find("customer 53831"))[0] == 300
    assert numbers(find("CUSTOMER  53831"))[0] == 300
    assert numbers(find('zeppelins "customer 53831"'))[0] == 300
    assert numbers(find('zeppelins customer "53831"'))[0] != 100


def test_as_many_as_are_wanted(find, written, by_words):
    assert len(numbers(find("zeppelin", "-k", 2))) == 2
    assert numbers(find("zeppelin", "-k", 1)) == numbers(find("zeppelin"))[:1]
    assert len(by_words("the keeper")["passages"]) == 10
    passages = by_words("zeppelin", "--gather", 1)["passages"]
    assert len(passages) == 1


def test_lines_around_those_that_match(find, written):
    written(TEXT)
    told = find("zeppelin harbour", "-k", 1, "-C", 2).splitlines()
    shown = [(98, "-"), (99, "-"), (100, ":"), (101, "-"), (102, "-")]
    assert told == [f"0.txt{mark}{n}{mark} {LINES[n - 1].rstrip()}" for n, mark in shown]
    assert find("zeppelin", "-C", 1).splitlines().count("--") == 2
    assert "--" not in find("zeppelin", "-C", 0).splitlines()


def test_context_ends_where_the_file_does(find, written):
    written("a zeppelin came\nand rain\n")
    assert find("zeppelin", "-C", 5) == "0.txt:1: a zeppelin came\n0.txt-2- and rain\n"


def test_files_alone_are_told_once_each(find, written):
    written(TEXT, "of rain alone\n" * 50, "one zeppelin\n")
    assert sorted(find("zeppelin", "-l").splitlines()) == ["0.txt", "2.txt"]
    assert find("customer 53831", "-l", "-k", 1) == "0.txt\n"
    assert find("-e", "rain alone", "-l") == "1.txt\n"


# --- text in quotes ---

ERRORS = "error E-7741 of a pump\n" + "rain and rain\n" * 300 + "error E-7742, e-7742x and E-7740\n"


def test_what_is_quoted_is_found_alone_if_it_is_anywhere(longctx, written):
    written(ERRORS, "an error of E-7741\n" * 3)
    for quoted in ('"E-7742"', 'error pump "e-7742"', "\u201cE-7742\u201d"):
        result = longctx("find", quoted)
        assert result.stdout == f"0.txt:302: {ERRORS.splitlines()[-1]}\n"
        assert "nearest" not in result.stderr
    assert longctx("find", '"E-7742" error', "-l").stdout == "0.txt\n"
    assert len(longctx("find", "error E-7742").stdout.splitlines()) > 1
    assert longctx("find", "error E-7742", "-l").stdout == "0.txt\n1.txt\n"


@pytest.mark.parametrize("more", [(), ("-l",), ("-e", "error")])
def test_where_nothing_has_what_is_quoted_it_is_said(longctx, written, more):
    written(ERRORS)
    result = longctx("find", 'error "E-774"', *more)
    assert result.exit_code == 0
    assert result.stdout.startswith("0.txt")
    said = 'no passage with the exact text in "..." was found: these are the nearest\n'
    assert said in result.stderr
    passages = json.loads(longctx("find", 'error "E-774"', *more, "--json").stdout)["passages"]
    assert {passage["exact"] for passage in passages} == {False}
    assert said not in longctx("find", "error E-774", *more).stderr


# --- a regular expression ---


def test_only_lines_that_an_expression_matches(find, written):
    written(TEXT)
    assert sorted(numbers(find("zeppelin", "-e", "two|customer"))) == [250, 350]
    assert numbers(find("zeppelin", "-e", "^line 1")) == [100]


def test_without_words_lines_are_told_in_their_order(find, written):
    written(TEXT)
    assert numbers(find("-e", r"zeppelin|customer \d")) == [100, 250, 300, 350]
    assert numbers(find("-e", "^line 3", "-k", 3)) == [3, 30, 31]
    assert numbers(find("", "-e", "zeppelin", "-k", 1)) == [100]


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a{99999999999999999999}"])
def test_a_wrong_expression_is_refused(longctx, written, pattern):
    written(TEXT)
    result = longctx("find", "zeppelin", "-e", pattern)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot use the regular expression" in result.stderr


def test_an_expression_without_end_is_given_up(longctx, written, monkeypatch):
    monkeypatch.setattr(
        "longctx.core.passages.line_filter.LineFilter.__init__.__defaults__", (0.05,)
    )
    written("a" * 60 + "!\n")
    result = longctx("find", "-e", "(a|aa)+$")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "one line took longer" in result.stderr


@pytest.mark.parametrize("words", [[], [""], [" \n"]])
def test_nothing_to_look_for_is_refused(longctx, written, words):
    written(TEXT)
    result = longctx("find", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the query is empty" in result.stderr


# --- JSON ---


def require_places(source: bytes, passages: list[dict]) -> None:
    """Bytes and text say the same, and words stand in the line that matches."""
    for passage in passages:
        match = passage["match"]
        for part in (passage, match):
            assert source[part["start"] : part["end"]].decode() == part["text"]
            assert part["line"] == source.count(b"\n", 0, part["start"]) + 1
            assert part["place"] == str(part["line"])
        assert passage["start"] <= match["start"] < match["end"] <= passage["end"]
        for low, high in match["words"]:
            assert match["start"] <= low < high <= match["end"]


def test_json_has_bytes_of_the_source(find, written):
    text = TEXT.replace(
        "a zeppelin", "\u00ab\u0446\u0435\u043f\u043f\u00bb, ein Zeppelin \u98db\u8239"
    )
    written(text)
    source = text.encode()
    for query in ("zeppelin", "customer 53831", "\u0446\u0435\u043f\u043f", "the keeper"):
        values = json.loads(find(query, "--json"))
        assert values["passages"]
        require_places(source, values["passages"])
    [first, *_] = json.loads(find("zeppelin harbour", "--json"))["passages"]
    words = [source[low:high].decode() for low, high in first["match"]["words"]]
    assert words == ["Zeppelin", "harbour"]
    assert not first["exact"]


def test_json_says_what_was_exact(by_words):
    passages = by_words("customer 53831")["passages"]
    assert [passage["exact"] for passage in passages][:2] == [True, False]


def test_json_of_a_search_by_words(by_words):
    values = by_words("customer refund")
    assert (values["found"], values["evidence"]) == ("yes", 1.0)
    assert values["documents"] == ["book"]
    assert values["tokens"]["document"] == len(TEXT.split()) + TEXT.count("\n")
    assert values["tokens"]["gathered"] > 0
    assert (values["state"]["gathered_by"], values["state"]["device"]) == ("bm25", None)
    far = by_words("submarine periscope torpedo")
    assert (far["found"], far["evidence"], far["passages"]) == ("no", 0.0, [])
    without = by_words("the of")
    assert (without["found"], without["evidence"]) == ("unsure", None)


def test_json_of_a_search_by_meaning(find, longctx, library, model_options):
    values = json.loads(find("a boat came home", "--json", *model_options))
    assert values["state"]["gathered_by"] == "hybrid"
    assert (values["found"], values["evidence"]) == ("yes", 1.0)
    alone = json.loads(find("a boat came home", "--json", "--gather-by", "bm25"))
    assert (alone["found"], alone["evidence"]) == (values["found"], values["evidence"])
    assert alone.keys() == values.keys()
    assert alone["state"].keys() == values["state"].keys()
    assert alone["passages"][0].keys() == values["passages"][0].keys()
    far = json.loads(find("submarine torpedo", "--json", *model_options))
    assert (far["found"], far["evidence"]) == ("no", 0.0)
    document = Library.open(library).document("book")
    source = document.text(0, 0, document.manifest.sources[0].size)
    require_places(source, values["passages"] + alone["passages"])


# --- bad input ---


@pytest.mark.parametrize("query", ["the of and", "submarine", "?", "x", "鯨", "кит", "حوت"])
def test_nothing_found_is_no_failure(longctx, written, query):
    written(TEXT)
    result = longctx("find", query)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith("nothing was found\n")


@pytest.mark.parametrize("query", ["and the", "c", "?!", "-"])
def test_what_is_no_counted_word_is_found_as_it_stands(find, written, query):
    written("rain\n" * 99 + "snow, and the ice: c ?! - .\n" + "rain\n" * 99)
    assert find("--", query) == "0.txt:100: snow, and the ice: c ?! - .\n"


def test_a_long_question(longctx, written):
    written(TEXT)
    result = longctx("find", "unheard of " * 2499 + "zeppelin")
    assert result.exit_code == 0
    assert sorted(numbers(result.stdout)) == [100, 250, 350]


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("\u0446\u0435\u043f\u043f\u0435\u043b\u0438\u043d", "над гаванью цеппелин летел"),
        ("\u98db\u8239", "\u6e2f\u306e\u4e0a\u306b\u98db\u8239\u304c\u6765\u305f"),
        ("\u0633\u0641\u064a\u0646\u0629", "رأى الحارس سفينة في البحر"),
    ],
)
def test_other_scripts(find, written, query, line):
    written("rain went on\n" * 150 + line + "\n" + "rain went on\n" * 150)
    assert find(query) == f"0.txt:151: {line}\n"


@pytest.mark.parametrize("text", ["zeppelin", "a zeppelin\n", "\n\n zeppelin \n\n"])
def test_a_document_shorter_than_a_window(find, written, text):
    written(text)
    assert find("zeppelin") == f"0.txt:{text.count(chr(10), 0, 2) + 1}: {text.strip()}\n"


def test_a_person_who_asks_find_a_question_learns_of_ask(longctx, library, monkeypatch):
    question = "who wrote of the boat?"
    plain = longctx("find", question)
    assert "longctx ask" not in plain.output
    monkeypatch.setattr(render, "is_watched", lambda: True)
    shown = longctx("find", question)
    assert shown.stdout == plain.stdout
    assert "`longctx ask 'who wrote of the boat?'` answers a question" in shown.stderr
    for words in (["the boat"], ["who"], [question, "--json"], [question, "-q"]):
        assert "longctx ask" not in longctx("find", *words).output


def test_an_empty_document(longctx, written):
    written("")
    result = longctx("find", "zeppelin")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing was found" in result.stderr
    assert longctx("find", "-e", "z").stdout == ""


# --- terminals ---

EVIL = "\x1b[31mzeppelin\x1b[0m \x1b]0;title\x07 \x9b1m \u202eharbour\u2066 \x08\x7f\r\u2028"
STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
LINK = re.compile("\x1b]8;;([^\x1b]*)\x1b\\\\(.*?)\x1b]8;;\x1b\\\\")


@pytest.fixture
def evil(tmp_path):
    """A document with escape sequences in its text and in the name of its file."""
    library = Library.open(tmp_path / "library", create=True)
    data = f"rain and snow\nthe keeper saw {EVIL} and\nwent on\n".encode()
    with library.writer("evil", HEADER, shard_rows=64) as writer:
        path = Path("/a folder") / EVIL
        add_source(writer, f"{EVIL}\nzeppelin", data, path=path, mtime_ns=5)
        writer.complete({"none": torch.zeros(0)})


@pytest.mark.usefixtures("evil")
@pytest.mark.parametrize(
    "args",
    [[], ["-C", 1], ["-l"], ["-e", "keeper"], ["-e", "\x1b"], ["--json"]],
)
def test_no_escape_sequence_of_a_document_is_printed(longctx, args):
    for query in ("zeppelin harbour", EVIL):
        result = longctx("find", query, *args)
        assert not STEERS.search(result.stdout + result.stderr), result.output
        assert result.stdout.strip()
    refused = longctx("find", "zeppelin", "--doc", EVIL, *args)
    assert refused.exit_code == 10
    assert not STEERS.search(refused.output)


@pytest.mark.usefixtures("evil")
def test_links_only_where_they_are_wanted(find, monkeypatch):
    plain = find("zeppelin harbour")
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_HYPERLINK", "1")
    linked = find("zeppelin harbour")
    [(address, told)] = LINK.findall(linked)
    assert re.fullmatch(r"file:///a%20folder/[\w%.\-]+#2", address)
    assert LINK.sub(r"\2", linked) == plain
    assert plain.startswith(told)
    assert not STEERS.search(told)
    [(address, _)] = LINK.findall(find("harbour", "-l"))
    assert "#" not in address
    monkeypatch.setenv("NO_COLOR", "1")
    assert find("zeppelin harbour") == plain


def test_words_are_marked_where_there_are_colours(find, written, monkeypatch):
    written(TEXT)
    plain = find("zeppelin", "-k", 1)
    monkeypatch.setenv("FORCE_COLOR", "1")
    marked = find("zeppelin", "-k", 1)
    assert re.search(r"\x1b\[[\d;]+mzeppelins?\x1b\[0m", marked)
    assert re.sub(r"\x1b\[[\d;]*m", "", marked) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert find("zeppelin", "-k", 1) == plain


# --- several documents ---


def test_lines_of_several_documents_have_their_names(longctx, written):
    written(TEXT, name="book")
    written("rain\n" * 70 + "a lost zeppelin\n", name="letter")
    both = ["--doc", "book", "--doc", "letter"]
    told = longctx("find", "zeppelin lost", *both).stdout.splitlines()
    assert told[0] == "letter: 0.txt:71: a lost zeppelin"
    assert sorted(line.split(": ")[0] for line in told) == ["book"] * 3 + ["letter"]
    assert longctx("find", "zeppelin lost", "--all").stdout.splitlines() == told
    values = json.loads(longctx("find", "zeppelin lost", "--all", "--json").stdout)
    assert values["documents"] == ["book", "letter"]
    assert values["passages"][0]["document"] == "letter"
    assert (values["state"]["left_out"], values["state"]["skipped"]) == (0, [])
    files = longctx("find", "zeppelin", *both, "-l").stdout.splitlines()
    assert sorted(files) == ["book: 0.txt", "letter: 0.txt"]


# --- no model libraries ---

ALONE = """
import sys
from longctx.cli.main import app
try:
    app(sys.argv[1:])
except SystemExit as done:
    assert not done.code, done.code
heavy = {"torch", "transformers", "tokenizers", "safetensors.torch", "bm25s", "rich", "pydantic"}
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


def modules(*args: object) -> tuple[str, str]:
    """What `find` prints in a process of its own, and which heavy modules that imported."""
    command = [sys.executable, "-P", "-c", ALONE, "find", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout, done.stderr.splitlines()[-1]


@pytest.mark.parametrize("args", [["boat"], ["boat", "--json"], ["boat", "-l"], ["-e", "boat"]])
def test_a_search_by_words_imports_no_model_libraries(library, args):
    words = ["--gather-by", "bm25"] if args[0] == "boat" else []
    told, heavy = modules(*args, *words)
    assert ("book.txt" if "-l" in args else "boat") in told
    assert heavy == "[]"


def test_nor_does_that_of_a_document_without_vectors(written):
    written(TEXT)
    told, heavy = modules("zeppelin")
    assert "zeppelin" in told
    assert heavy == "[]"


# --- damage ---

SPARED = "`longctx find --gather-by bm25` works without this file"


def embeddings(library: Path) -> Path:
    """The file of the embeddings."""
    return library / "documents" / "book" / "embeddings-00000.safetensors"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


DAMAGE = {
    "cut": cut,
    "missing": Path.unlink,
    "flipped": lambda path: flip(path, path.stat().st_size - 9),
    "flipped in its length": lambda path: flip(path, 6),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_embeddings_stop_what_needs_them(longctx, library, model_options, damage):
    DAMAGE[damage](embeddings(library))
    for command in ("find", "ask"):
        result = longctx(command, "a boat", "--gather-by", "maxsim", *model_options)
        assert (result.exit_code, result.stdout) == (13, "")
        assert "embeddings-00000.safetensors" in result.stderr
        assert SPARED in result.stderr


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("more", [["--gather-by", "bm25"], ["-e", "boat"]])
def test_a_search_by_words_works_without_embeddings(longctx, library, damage, more):
    query = ["a boat"] if more[0] == "--gather-by" else []
    whole = longctx("find", *query, *more)
    DAMAGE[damage](embeddings(library))
    result = longctx("find", *query, *more)
    assert (result.exit_code, result.stdout) == (0, whole.stdout)
    assert result.stdout
    told = "book is searched without its embeddings: "
    if damage == "flipped":  # what is not read is not looked at
        assert told not in result.stderr
    else:
        assert told in result.stderr
        assert "embeddings-00000.safetensors" in result.stderr


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_nor_does_a_search_of_several_documents_need_them(find, longctx, library, damage):
    shutil.copytree(library / "documents/book", library / "documents/copy")
    both = ["--doc", "book", "--doc", "copy"]
    whole = [find("a boat", *which, "--gather-by", "bm25") for which in (both, ["--all"])]
    DAMAGE[damage](embeddings(library))
    for which, told in zip((both, ["--all"]), whole, strict=True):
        result = longctx("find", "a boat", *which, "--gather-by", "bm25")
        assert (result.exit_code, result.stdout) == (0, told), result.stderr
        assert result.stderr.count("searched without its embeddings") == 1


@pytest.mark.parametrize("command", ["find", "ask"])
@pytest.mark.parametrize("more", [[], ["--gather-by", "bm25"]])
def test_a_damaged_word_index_is_counted_again(longctx, library, model_options, command, more):
    whole = longctx(command, "a boat came home", *more, *model_options)
    assert "counted again" not in whole.stderr
    flip(library / "documents" / "book" / "words-00000.safetensors", 100)
    result = longctx(command, "a boat came home", *more, *model_options)
    assert (result.exit_code, result.stdout) == (0, whole.stdout)
    told = [line for line in result.stderr.splitlines() if "counted again" in line]
    assert len(told) == 1
    assert told[0].endswith("`longctx ingest PATH... --name book --replace` writes it")
    values = json.loads(longctx(command, "a boat", "--json", *more, *model_options).stdout)
    assert values["state"]["counted_again"] == ["book"]
