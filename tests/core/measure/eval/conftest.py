"""A document of two letters in several scripts, and files of questions on it."""

import json

import pytest

from longctx.core.ask.session import Session
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest

FIRST = "Größe und Maß: the keeper wrote «Ёлка» in his book.\nA boat came home at dawn.\n" * 3
SECOND = "news of rain and salt\n" * 12 + "the boat is called Zoë\n"


def _line(answer: str, text: str, source: str) -> dict:
    offset = len(text[: text.index(answer)].encode())
    where = {"path": source, "byte_offset": offset, "line": 1}
    return {"question": f"the keeper {answer}", "answers": [answer, "other"], "where": where}


@pytest.fixture(scope="session")
def letter_texts() -> tuple[str, str]:
    """The text of both letters."""
    return FIRST, SECOND


@pytest.fixture
def letter_lines() -> list[dict]:
    """Three questions with places."""
    return [
        _line("Ёлка", FIRST, "letters/one.txt"),
        _line("dawn", FIRST, "one.txt"),
        _line("Zoë", SECOND, "letters/two.txt"),
    ]


@pytest.fixture(scope="session")
def letters(tmp_path_factory, model_folder):
    """A library with the document "letters", read by the random model; not to be changed."""
    folder = tmp_path_factory.mktemp("qa")
    (folder / "letters").mkdir()
    files = [folder / "letters" / "one.txt", folder / "letters" / "two.txt"]
    for file, text in zip(files, (FIRST, SECOND), strict=True):
        file.write_bytes(text.encode())
    profile = str(model_folder / "profile.yaml")
    setup = Setup(str(model_folder), profile, device="cpu", dtype="fp32", threads=1)
    ingest(folder / "library", [*map(str, files)], setup, name="letters")
    return folder / "library"


@pytest.fixture
def letters_session(letters, setup_random):
    """The letters, open."""
    with Session(letters, "letters", setup_random) as opened:
        yield opened


@pytest.fixture
def questions(tmp_path):
    """Writes lines, objects or text, to a file."""

    def write(*lines: dict | str):
        file = tmp_path / "a.questions.jsonl"
        texts = [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in lines]
        file.write_text("\n".join(texts), "utf-8")
        return file

    return write
