"""No command waits for a pipe, or reads a device, that a document or a folder leads it to."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.core.store.manifest import MANIFEST, Manifest, Origin

pytestmark = pytest.mark.usefixtures("never_waits")
few_kinds = pytest.mark.parametrize("no_file", ["pipe", "device"], indirect=True)
a_pipe = pytest.mark.parametrize("no_file", ["pipe"], indirect=True)
NOTHING = hashlib.sha256(b"").hexdigest()
COMMANDS = [
    ("list",),
    ("show", "book"),
    ("verify",),
    ("find", "boat", "--gather-by", "bm25"),
    ("find", "boat"),
    ("find", "boat", "--all"),
    ("ask", "boat"),
    ("gc",),
    ("export", "book", "{}/book.longctx"),
    ("import", "{}/book.longctx", "--name", "other"),
    ("find", "boat", "--doc", "other", "--gather-by", "bm25"),
    ("verify", "other"),
    ("rename", "other", "another"),
    ("ingest", "{}/more.txt", "--append", "book"),
    ("ask", "boat"),
]


def lead_to(library: Path, path: Path, size: int | None) -> None:
    """Has the document say that it was read there; of a file of so many bytes, if it was packed."""
    folder = library / "documents" / "book"
    manifest = Manifest.read(folder)
    origin = None if size is None else Origin(size, NOTHING, "a", None)
    sources = [replace(source, path=str(path), origin=origin) for source in manifest.sources]
    left_out = {"place": len(sources), "path": str(path), "part": None, "mtime_ns": 0}
    report = {**manifest.report, "skipped": [{**left_out, "why": "", "text": False}]}
    changed = replace(manifest, sources=tuple(sources), report=report)
    (folder / MANIFEST).write_text(changed.to_json())


@pytest.mark.usefixtures("models_loaded_once")
@pytest.mark.parametrize("size", [None, 0])
def test_a_document_that_says_it_was_read_there(
    longctx, library, tmp_path, no_file, is_opened, size
):
    lead_to(library, no_file, size)
    (tmp_path / "more.txt").write_text("the keeper wrote that a boat came home\n")
    for command in COMMANDS:
        result = longctx(*(word.format(tmp_path) for word in command))
        assert result.exit_code == 0, (command, result.output)
        assert "changed" not in result.stderr
        assert not is_opened(no_file)


def put_device(path: Path) -> None:
    """The device of zeros under another name; a link to it where nobody may make one."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.stat("/dev/zero").st_rdev)
    except OSError:
        path.symlink_to("/dev/zero")


@pytest.mark.usefixtures("models_loaded_once")
@pytest.mark.parametrize("how", ["top", "top/*", "top/**/*"])
def test_a_folder_and_a_pattern(longctx, model_options, tmp_path, no_file, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    top = tmp_path / "top"
    top.mkdir()
    (top / "a.txt").write_text("the keeper wrote that a boat came home\n")
    (top / "loop").symlink_to("loop")
    (top / "zero").symlink_to("/dev/zero")
    os.mkfifo(top / ".gitignore")
    for name in ("no-file", "no-file.pdf", "no-file.tar.gz"):
        if no_file == Path("/dev/zero"):
            put_device(top / name)
        elif no_file.is_symlink():
            (top / name).symlink_to(no_file)
        else:
            os.link(no_file, top / name)
    result = longctx("ingest", how, "--name", "top", "--json", *model_options)
    assert result.exit_code == 0, result.output
    left_out = json.loads(result.stdout)["left_out"]
    names = ["no-file", "no-file.pdf", "no-file.tar.gz", "zero"] + ["loop"] * (how == "top")
    for name in names:
        assert sum(f"'top/{name}'" in told for told in left_out) == 1, (name, left_out)
    assert len(left_out) == len(names)


@few_kinds
@pytest.mark.parametrize(
    ("command", "name", "code"),
    [
        (("ask", "--questions", "{}"), "q.txt", 2),
        (("ask", "--questions", "{}"), "q.yaml", 2),
        (("ask", "boat", "--profile", "{}"), "p.yaml", 2),
        (("ingest", "{}/../book.txt", "--profile", "{}"), "p.yaml", 2),
        (("niah", "--haystack", "{}"), "h.txt", 2),
        (("eval", "qa", "book", "{}"), "q.jsonl", 2),
        (("eval", "qa", "book", "{}"), "q.yaml", 2),
        (("eval", "babilong", "{}"), "qa1.txt", 2),
        (("eval", "ruler", "--tasks", "qa_1", "--qa", "{}"), "s.json", 2),
        (("follow",), "", 2),
    ],
)
def test_files_of_a_command(longctx, library, tmp_path, no_file, is_opened, command, name, code):
    path = tmp_path / name if name else no_file
    if name:
        path.symlink_to(no_file)
    words = command if name else ("ingest", "{}", "--follow", "--name", "new")
    result = longctx(*(word.format(path) for word in words))
    assert result.exit_code == code, result.output
    assert not is_opened(no_file)


@few_kinds
def test_prose_that_a_folder_leads_to(longctx, tmp_path, no_file, is_opened):
    (tmp_path / "prose").mkdir()
    (tmp_path / "prose/a.md").symlink_to(no_file)
    result = longctx("niah", "--haystack", tmp_path / "prose")
    assert (result.exit_code, "0 files" in result.stderr) == (2, True), result.output
    assert not is_opened(no_file)


@few_kinds
def test_a_config_file(longctx, tmp_path, no_file, is_opened, monkeypatch):
    monkeypatch.setenv("LONGCTX_CONFIG", str(no_file))
    result = longctx("list")
    assert (result.exit_code, "no config file" in result.stderr) == (2, True)
    assert not is_opened(no_file)


FILES = ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"]


@a_pipe
@pytest.mark.parametrize(
    "file", [*FILES, "config.json", "chat_template.jinja", "added_tokens.json"]
)
def test_files_of_a_model(longctx, model_folder, library, tmp_path, no_file, is_opened, file):
    model = shutil.copytree(model_folder, tmp_path / "model")
    (model / file).unlink(missing_ok=True)
    (model / file).symlink_to(no_file)
    result = longctx("ask", "boat", "--model", model)
    assert result.exit_code == 2, result.output
    assert file in result.stderr
    assert not is_opened(no_file)


@pytest.mark.parametrize(
    ("file", "most"),
    [
        ("config.json", 1 << 20),
        ("tokenizer.json", 128 << 20),
        ("model.safetensors.index.json", 64 << 20),
    ],
)
def test_sizes_of_a_models_files(longctx, model_folder, library, tmp_path, file, most):
    model = shutil.copytree(model_folder, tmp_path / "model")
    with (model / file).open("ab") as grown:
        grown.truncate(most + 1)
    (model / "training.json").symlink_to("/dev/zero")  # what no library reads does not matter
    result = longctx("ask", "boat", "--model", model)
    assert result.exit_code == 2, result.output
    assert f"{file}: it has {most + 1:,} bytes, and {most:,} are the most" in result.stderr


@pytest.mark.parametrize(
    ("words", "name", "size"),
    [
        (("ask", "--questions", "{}"), "q.txt", 16 << 20),
        (("eval", "qa", "book", "{}"), "q.jsonl", 64 << 20),
        (("eval", "babilong", "{}"), "qa1.txt", 64 << 20),
        (("niah", "--haystack", "{}"), "h.txt", 64 << 20),
        (("list",), "config.toml", 1 << 20),
    ],
)
def test_sizes_of_files(longctx, library, tmp_path, words, name, size):
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(size + 1)
    result = longctx(*(word.format(path) for word in words))
    assert result.exit_code == 2, result.output
    assert f"it has {size + 1:,} bytes, and {size:,} are the most" in result.stderr


def test_a_question_without_end(longctx, library):
    result = longctx("ask", "-", input=b"a" * ((1 << 20) + 1))
    assert (result.exit_code, "more than 1,048,576 bytes" in result.stderr) == (2, True)


def run(*words: str, **more) -> subprocess.CompletedProcess:
    """A command in a process of its own, with little memory and no time without end."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (6 << 30,) * 2); "
    code += "from longctx.cli.__main__ import main; main()"
    command = [sys.executable, "-P", "-c", code, *words]
    return subprocess.run(command, capture_output=True, timeout=90, text=True, **more)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("import", "-", "--name", "new"), 13),
        (("import", "/dev/zero", "--name", "new"), 13),
        (("ingest", "/dev/zero", "--name", "new"), 2),
        (("ask", "--questions", "/dev/stdin"), 2),
    ],
)
def test_a_stream_of_zeros(library, words, code):
    with open("/dev/zero", "rb") as zeros:
        done = run(*words, stdin=zeros)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
