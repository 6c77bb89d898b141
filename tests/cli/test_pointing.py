"""`ask` where the reader answers: what is printed, what is refused, what a model writes."""

import json

import pytest

from longctx import Exchange, Library

TEXT = """\
The lighthouse at Skerry Point was kept by Ingrid Halvorsen from 1871 to 1902.

Her brother Tobias repaired boats in the harbour and sold rope for nine shillings a coil.
The great storm of 14 November 1893 broke the lantern, which cost 212 pounds to replace.
"""
QUESTION = "Who kept the lighthouse?"


@pytest.fixture
def asking(longctx, tmp_path, monkeypatch):
    monkeypatch.delenv("LONGCTX_ANSWER_MODEL")
    (tmp_path / "book.txt").write_text(TEXT)
    done = longctx("ingest", tmp_path / "book.txt", "--model", "tiny", "--vectors")
    assert done.exit_code == 0, done.stderr
    return longctx


def test_the_answer_is_a_stretch_of_the_text(asking):
    values = json.loads(asking("ask", QUESTION, "--json").stdout)
    quote = values["quote"]
    assert values["answer"] == quote["text"] == "Ingrid Halvorsen"
    assert TEXT.encode()[quote["start"] : quote["end"]].decode() == quote["text"]
    assert values["policy"] == {"name": "point"}
    assert values["state"]["answer_model"] == "reader"
    assert values["sentence"]["text"] == TEXT.partition("\n")[0]
    assert 0 <= values["likely"] <= 1
    assert all({"quote", "likely"} == one.keys() for one in values["also_possible"])


def test_no_model_of_a_document_is_loaded(asking, monkeypatch):
    from longctx.core.engine import setup

    monkeypatch.setattr(setup, "prepare", lambda *parts: pytest.fail("a model was loaded"))
    assert asking("ask", QUESTION).stdout.startswith("Ingrid Halvorsen\n")


@pytest.mark.parametrize("more", [["--answer-by", "decode"], ["--no-quote"], ["--decode", "dense"]])
def test_a_model_writes_where_it_is_asked_for(asking, more):
    told = json.loads(asking("ask", QUESTION, "--json", *more).stdout)
    assert told["policy"]["name"] == "dense"
    assert (told["likely"], told["also_possible"]) == (None, [])


def test_the_method_s_own_rule_may_choose_what_the_reader_reads(asking):
    how = ["--gather-by", "method", "--answer-by", "point"]
    told = json.loads(asking("ask", QUESTION, "--json", *how).stdout)
    assert told["answer"] == "Ingrid Halvorsen"
    assert told["state"]["gathered_by"] == "method"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--temperature", "0.7"], "the reader points at an answer and writes nothing"),
        (["--answer-by", "guess"], "unknown way to answer 'guess'"),
        (["--answer-by", "point", "--answer-model", "tiny"], "cannot take --answer-model"),
        (["--answer-by", "point", "--no-quote"], "cannot take --no-quote with --answer-by point"),
        (["--answer-by", "decode", "--quote"], "cannot take --quote with --answer-by decode"),
        (["--quote", "--answer-model", "tiny"], "cannot take --answer-model"),
    ],
)
def test_what_the_reader_cannot_do_is_refused(asking, more, why):
    done = asking("ask", QUESTION, *more)
    assert (done.exit_code, why in done.stderr) == (2, True), done.stderr


def test_quoting_is_pointing_and_a_setting(asking, monkeypatch):
    monkeypatch.setenv("LONGCTX_QUOTE", "1")
    for more, policy in (
        ((), "point"),
        (("--model", "tiny"), "point"),
        (("--no-quote",), "dense"),
    ):
        told = json.loads(asking("ask", QUESTION, "--json", *more).stdout)
        assert told["policy"]["name"] == policy


def test_an_earlier_question_is_put_before(asking, tmp_path):
    assert asking("list").exit_code == 0
    with Library(tmp_path / "library") as library:
        told = library.document("book").ask(
            "And what did her brother sell?", before=[Exchange(QUESTION, "Ingrid Halvorsen")]
        )
    assert "rope" in told.answer


def test_a_page_shows_it(asking, tmp_path):
    done = asking("ask", QUESTION, "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.stderr
    assert "Ingrid Halvorsen" in (tmp_path / "page.html").read_text()


def test_fewer_passages_are_read_where_so_many_are_wanted(asking):
    told = json.loads(asking("ask", QUESTION, "--passages", "1", "--json").stdout)
    assert told["state"]["read"]["passages"] == 1


def test_why_and_how_get_a_whole_sentence_or_list(asking, tmp_path):
    (tmp_path / "pump.md").write_text(
        "The pump stops at noon because air enters at the gland. It is oiled in May.\n\n"
        "To prime the pump:\n\n1. Close the red valve.\n2. Fill the funnel with water.\n"
        "3. Open the valve.\n\nThe mill has four stones.\n"
    )
    assert asking("ingest", tmp_path / "pump.md", "--model", "tiny").exit_code == 0
    why = asking("ask", "Why does the pump stop at noon?", "--doc", "pump")
    sentence = "The pump stops at noon because air enters at the gland."
    answer, empty, place = why.stdout.splitlines()[:3]
    assert (answer, empty) == (sentence, "")
    assert place.endswith("pump.md:1")
    told = json.loads(asking("ask", "How is the pump primed?", "--doc", "pump", "--json").stdout)
    assert told["answer"].splitlines() == [
        "To prime the pump:",
        "1. Close the red valve.",
        "2. Fill the funnel with water.",
        "3. Open the valve.",
    ]
    assert told["quote"]["text"].endswith("3. Open the valve.")
    assert told["sentence"]["text"] in told["quote"]["text"]


GERMAN = """\
Der Leuchtturm auf der Klippe wurde von Ingrid Halvorsen gehalten, und zwar bis zum Jahr 1902.

Ihr Bruder Tobias war der Bootsbauer im Hafen, und er hat auch Seile verkauft.
"""
RUSSIAN = """\
Маяк на скале хранила Ингрид Халворсен, и она жила там до зимы 1902 года.

Её брат Тобиас чинил лодки в гавани, и он также продавал канаты.
"""


@pytest.mark.parametrize(
    ("text", "question", "sentence"),
    [
        (GERMAN, "Wer hat den Leuchtturm auf der Klippe gehalten?", GERMAN.partition("\n")[0]),
        (RUSSIAN, "Кто хранил маяк на скале?", RUSSIAN.partition("\n")[0]),
    ],
)
def test_what_it_cannot_read_is_answered_with_a_sentence(
    asking, tmp_path, text, question, sentence
):
    (tmp_path / "turm.txt").write_text(text)
    assert asking("ingest", tmp_path / "turm.txt", "--model", "tiny").exit_code == 0
    done = asking("ask", question, "--doc", "turm")
    assert done.stdout.startswith(f"{sentence}\n")
    assert "the reader knows English alone" in done.stderr
    told = json.loads(asking("ask", question, "--doc", "turm", "--json").stdout)
    assert told["answer"] == sentence
    assert (told["found"], told["likely"], told["also_possible"]) == ("unsure", None, [])
    assert told["state"]["read"]["language_known"] is False


def test_english_is_known(asking):
    told = json.loads(asking("ask", QUESTION, "--json").stdout)
    assert told["state"]["read"]["language_known"] is True


def test_a_refusal_is_the_reader_s_own(asking):
    done = asking("ask", "What did the bishop eat at Easter?")
    assert done.stdout.startswith("not in the text\n")
    assert "no passage that was read seems to answer this; --anyway shows" in done.stderr
    assert "words occur together" not in done.stderr
