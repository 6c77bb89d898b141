"""`--devices` and `--max-memory`: the same state and answer as with one device."""

import json

import pytest

from longctx.core.common.errors import UsageError


@pytest.mark.parametrize("method", ["reform", "reattention", "both", "infllm", "ltri"])
def test_a_document_is_read_and_asked_over_two_devices(longctx, tmp_path, model_options, method):
    text = tmp_path / "book.txt"
    text.write_text("the keeper wrote in his book that a boat came home at dawn\n" * 20)
    answers = []
    for number, devices in enumerate([(), ("--devices", "cpu,cpu", "--max-memory", "1GB")]):
        library = "--library", str(tmp_path / str(number))
        options = *model_options, *library, *devices
        assert longctx("ingest", str(text), *options, "--method", method).exit_code == 0
        done = longctx("ask", "who wrote of the boat?", *options, "--json")
        answers.append(json.loads(done.stdout)["answer"])
    one, two = (tmp_path / number / "documents" / "book" for number in "01")
    assert sorted(path.name for path in one.iterdir()) == sorted(p.name for p in two.iterdir())
    assert all(path.read_bytes() == (two / path.name).read_bytes() for path in one.iterdir())
    assert answers[0] == answers[1]


def test_max_memory_is_of_several_devices(longctx, tmp_path, model_options):
    text = tmp_path / "book.txt"
    text.write_text("a boat")
    done = longctx("ingest", str(text), *model_options, "--max-memory", "1GB")
    assert done.exit_code == UsageError.exit_code
    assert "--max-memory needs --devices" in done.stderr
