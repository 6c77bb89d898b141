"""`ingest --follow`: of a document that is there already, and of a log that is empty yet."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from longctx.cli.ingest.stop import Stop
from longctx.core.ingest.ingested import Ingested
from longctx.core.store.library import Library

TEXT = "the keeper wrote in his book that a boat came home at dawn\n" * 20
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "app.log"
    path.write_text(TEXT)
    return path


@pytest.fixture
def meanwhile(monkeypatch):
    """What happens while nothing comes, one thing each second; then Ctrl-C."""

    def happens(*events) -> None:
        waiting = [*events]

        def wait(seconds: float) -> None:
            if not waiting:
                raise KeyboardInterrupt
            waiting.pop(0)()

        monkeypatch.setattr("longctx.core.ingest.follow.time", SimpleNamespace(sleep=wait))

    return happens


@pytest.fixture
def library_of(tmp_path):
    """The manifest of the document "app", as it is now."""
    return lambda: Library.open(tmp_path / "library").document("app").manifest


# --- how it is read ---

WAYS = [("--method", "streaming"), ("--keep-kv",), ("--kv-dtype", "int8"), ("--profile", "OTHER")]


@pytest.mark.parametrize("way", WAYS)
def test_a_document_that_is_there_is_not_read_in_another_way(longctx, model_options, log, way):
    longctx("ingest", log, *model_options)
    keys = ("--method", "reattention") if "--kv-dtype" in way else ()
    given = model_options[:2] if "--profile" in way else model_options
    other = log.with_name("other.yaml")
    other.write_text(Path(model_options[-1]).read_text() + "description: another\n")
    way = [str(other) if word == "OTHER" else word for word in way]
    refused = longctx("ingest", log, "--follow", *way, *keys, *given)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "cannot follow for 'app' in the way that is wanted" in refused.stderr


@pytest.mark.parametrize("way", [("--follow",), ("--append", "app")])
def test_a_number_format_that_is_only_a_setting_is_for_documents_to_come(
    longctx, library_of, model_options, log, meanwhile, monkeypatch, way
):
    assert longctx("ingest", log, "--dtype", "bf16", *model_options).exit_code == 0
    log.write_text(TEXT * 2)
    meanwhile()
    refused = longctx("ingest", *way, log, "--dtype", "fp32", *model_options[:2])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "cannot read on 'app' in fp32: it was read in bf16" in refused.stderr
    for setting in ("fp32", "auto"):
        monkeypatch.setenv("LONGCTX_DTYPE", setting)
        log.write_text(log.read_text() + TEXT)
        meanwhile()
        assert longctx("ingest", *way, log, *model_options[:2]).exit_code == 0
        assert library_of().recorded["dtype"] == "bf16"
    meanwhile()
    assert longctx("ingest", "--follow", log, "--name", "new", *model_options).exit_code == 0


def test_the_same_command_goes_on(longctx, model_options, log, meanwhile):
    way = ("--follow", "--keep-kv", "--kv-dtype", "int8", *model_options)
    for _ in range(2):
        meanwhile()
        assert longctx("ingest", log, *way).exit_code == 0


def test_a_new_document_is_begun_in_the_way_that_is_wanted(longctx, model_options, log, meanwhile):
    meanwhile()
    result = longctx("ingest", log, "--follow", "--method", "streaming", *model_options)
    assert result.exit_code == 0
    assert json.loads(longctx("show", "app", "--json").stdout)["method"] == "streaming"
    settings = {"LONGCTX_METHOD": "reform"}  # which do not hinder, as with --append
    assert longctx("ingest", log, "--follow", *model_options[:2], env=settings).exit_code == 0


# --- an empty log ---


@pytest.mark.parametrize("name", ["app.log", "[red]\x1b[31m.log"])
def test_the_first_bytes_are_waited_for(longctx, model_options, tmp_path, meanwhile, name):
    log = tmp_path / name
    log.touch()
    meanwhile(lambda: None, log.unlink, lambda: log.write_text(TEXT))
    result = longctx("ingest", log, "--follow", "--name", "app", "--json", *model_options)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["bytes"] == len(TEXT)
    assert result.stderr.count("is empty yet") == 1
    assert "\x1b" not in result.stderr


def test_ctrl_c_before_anything_came_to_a_document_that_is_there(
    longctx, model_options, tmp_path, meanwhile
):
    (tmp_path / "old.log").write_text(TEXT)
    longctx("ingest", tmp_path / "old.log", "--name", "app", *model_options)
    log = tmp_path / "app.log"
    log.touch()
    meanwhile()
    result = longctx("ingest", log, "--follow", "--json", *model_options)
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["name"], told["status"], told["bytes"]) == ("app", "unchanged", len(TEXT))


@pytest.mark.parametrize("skipped", [[], ["one file"]])
def test_ctrl_c_that_the_reading_does_not_see_is_no_error_either(
    longctx, model_options, log, monkeypatch, skipped
):
    def interrupted(job, observer, *more):
        observer.done(Ingested("app", "complete", 1, 2, 3, skipped=skipped))
        raise KeyboardInterrupt

    monkeypatch.setattr("longctx.core.ingest.follow.follow", interrupted)
    result = longctx("ingest", log, "--follow", "--json", *model_options)
    assert result.exit_code == (3 if skipped else 0)
    assert json.loads(result.stdout)["tokens"] == 1
    stop = Stop(json=True)
    stop.followed = Ingested("app", "complete", 1, 2, 3, skipped=skipped)
    assert stop.end(130) == result.exit_code


def test_ctrl_c_before_anything_came(longctx, model_options, tmp_path, meanwhile):
    log = tmp_path / "app.log"
    log.touch()
    meanwhile()
    result = longctx("ingest", log, "--follow", *model_options)
    assert (result.exit_code, result.stdout) == (130, "")
    assert not list(tmp_path.glob("library/documents/*"))


def test_a_log_that_is_not_there_is_an_error(longctx, tmp_path):
    result = longctx("ingest", tmp_path / "app.log", "--follow")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no such file" in result.stderr


def test_what_is_empty_is_still_an_error_elsewhere(longctx, model_options, tmp_path):
    (tmp_path / "app.log").touch()
    result = longctx("ingest", tmp_path / "app.log", *model_options)
    assert (result.exit_code, result.stdout) == (3, "")
