"""The sample log: the same bytes every time, and its questions point at the planted lines."""

import hashlib
from pathlib import Path

import pytest
import yaml

from longctx.samples import make_log

QUESTIONS = Path(__file__).parent.parent / "samples" / "questions" / "server-log.yaml"
SHA256 = "74c458d51e095fa24299b13699e2178a61f703d3ea9729e302a0bf2e34a777fd"


def write(path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr("sys.argv", ["make_log", str(path)])
    make_log.main()
    return path.read_bytes()


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return list(make_log.log_lines())


def test_written_twice_it_has_the_same_known_bytes(tmp_path, monkeypatch):
    first = write(tmp_path / "first.log", monkeypatch)
    assert write(tmp_path / "second.log", monkeypatch) == first
    assert hashlib.sha256(first).hexdigest() == SHA256
    assert first.count(b"\n") == 20_000


def test_times_never_go_back(lines):
    stamps = [line.split(" ", 1)[0] for line in lines]
    assert stamps == sorted(stamps)


def test_twenty_questions_with_answers_on_their_lines_only(lines):
    sheet = yaml.safe_load(QUESTIONS.read_text("utf-8"))
    text = "\n".join(lines)
    assert sheet["document"] == "server.log"
    assert len(sheet["questions"]) == 20
    for item in sheet["questions"]:
        assert item["line"] in make_log.PLANTED, item["question"]
        assert item["answer"] in lines[item["line"] - 1], item["question"]
        assert text.count(item["answer"]) == 1, item["question"]
        assert item["answer"].lower() not in item["question"].lower()
