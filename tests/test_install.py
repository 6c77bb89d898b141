"""What is built and installed, used in an environment that cannot see the clone."""

import base64
import hashlib
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RELEASE = runpy.run_path(str(ROOT / "docs" / "release.py"))
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
NEVER = re.compile(r"(^|/)(tests|docs|recipe|__pycache__|\.\w+)/")
MUST = {
    *("cli/serve/page/index.html", "cli/serve/page/style.css", "cli/serve/page/main.js"),
    *("profiles/tiny/model.safetensors", "profiles/minilm/model.safetensors"),
    *("profiles/minilm/NOTICE", "profiles/reader/model.safetensors", "profiles/reader/NOTICE"),
    *("samples/manual.md", "samples/questions/manual.yaml", "core/measure/eval/ruler/making.py"),
}
# Another project of the same name, as its 0.3.2 is made.
OTHERS = {
    "longctx/__init__.py": "from longctx.rag.pipeline import Pipeline\n__version__ = '0.3.2'\n",
    "longctx/rag/__init__.py": "",
    "longctx/rag/pipeline.py": "class Pipeline: ...\n",
    "longctx_daemon/__init__.py": "",
    "longctx_daemon/cli.py": "def main():\n    print('another program')\n",
    "longctx-0.3.2.dist-info/METADATA": "Metadata-Version: 2.4\nName: longctx\nVersion: 0.3.2\n",
    "longctx-0.3.2.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\n"
    "Root-Is-Purelib: true\nTag: py3-none-any\n",
    "longctx-0.3.2.dist-info/entry_points.txt": "[console_scripts]\n"
    "longctx = longctx_daemon.cli:main\n",
}

pytestmark = pytest.mark.slow


class Environment:
    """A virtual environment outside the clone, with nothing of this process's settings."""

    def __init__(self, folder: Path):
        self.folder, self.away = folder / "env", folder / "away"
        self.away.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder], check=True)
        self.python, self.longctx = (self.folder / "bin" / name for name in ("python", "longctx"))
        lib = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        self.site = self.folder / lib
        kept = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
        self.variables = {**kept, "LONGCTX_LIBRARY": str(self.away / "library")}

    def pip(self, *words: object) -> None:
        done = subprocess.run([*PIP, "--python", self.python, *words], capture_output=True)
        assert done.returncode == 0, done.stderr

    def install(self, wheel: Path) -> None:
        self.pip("install", "--no-index", "--no-deps", "--no-compile", wheel)

    def share_libraries(self) -> None:
        """What the package needs is that of this process; .pth files there are not followed."""
        (self.site / "libraries.pth").write_text(sysconfig.get_path("purelib"))

    def call(self, *words: object, code: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=240, cwd=self.away, env=self.variables
        )
        assert done.returncode == code, done.stderr
        return done


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist and the wheel."""
    return RELEASE["build"](tmp_path_factory.mktemp("built"))


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path)


def test_sdist_and_wheel_hold_what_is_packaged(built):
    sdist, wheel = built
    assert [*RELEASE["problems"](sdist, wheel)] == []
    with tarfile.open(sdist) as held:
        members = {name.partition("/")[2] for name in held.getnames()}
    assert members > MUST | {"LICENSE", "README.md", "pyproject.toml"}
    assert [name for name in members if NEVER.search(name)] == []
    with zipfile.ZipFile(wheel) as held:
        members = {name.removeprefix("longctx/") for name in held.namelist()}
        entries = held.read(f"{info(wheel)}/entry_points.txt").decode()
    assert members > MUST
    assert [name for name in members if NEVER.search(name)] == []
    assert "[llm]\nlongctx = longctx.cli.llm_plugin\n" in entries
    wanted = {"longctx/__init__.py": "__init__.py", "longctx/__main__.py": "__main__.py"}
    held = {"longctx/__init__.py": b"", "longctx/tests/test_x.py": b""}
    assert [*RELEASE["differences"]("the wheel", held, wanted)] == [
        "the wheel holds another longctx/__init__.py",
        "the wheel lacks longctx/__main__.py",
        "the wheel holds longctx/tests/test_x.py",
    ]


def test_the_installed_program_works_without_the_clone(built, environment):
    environment.install(built[1])
    environment.share_libraries()
    call, longctx = environment.call, environment.longctx
    what = "import longctx; from longctx.core.common import errors as module; "
    what += "print(module.__file__, longctx.__version__)"
    place, stated = call(environment.python, "-c", what).stdout.split()
    assert place.startswith(str(environment.site))
    assert call(longctx, "--version").stdout == f"longctx {stated}\n"
    note = environment.away / "note.txt"
    note.write_text(
        "It rained on Tuesday.\nThe code of the blue door is 48213.\nThe boat came home.\n"
    )
    read = call(longctx, "ingest", "note.txt")
    assert read.stderr == ""
    assert re.fullmatch(r"note: complete, \d+ tokens, state .*\n", read.stdout)
    note.unlink()
    asked = call(longctx, "ask", "What is the code of the blue door?")
    assert asked.stderr == "document: note (the latest)\n"
    answer, blank, passage = asked.stdout.splitlines()
    assert (answer, blank) == ("48213", "")
    assert passage.startswith("note.txt:2:")
    found = call(longctx, "find", "blue door", "--gather-by", "bm25").stdout
    assert found == "note.txt:2: The code of the blue door is 48213.\n"
    serve = [longctx, "serve", "--port", "0", "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(serve, cwd=environment.away, env=environment.variables, **pipes) as run:
        try:
            address = re.search(r"http://\S+", run.stdout.readline())[0]
            require_page(address)
        finally:
            run.terminate()
    assert run.returncode == 0


def require_page(address: str) -> None:
    """The installed server gives each file of the page."""
    for file in (ROOT / "cli" / "serve" / "page").iterdir():
        name = "" if file.name == "index.html" else f"static/{file.name}"
        with urllib.request.urlopen(f"{address}/{name}", timeout=60) as answered:
            assert answered.read() == file.read_bytes()


def test_two_projects_in_one_environment_are_noticed_and_repaired(built, environment, tmp_path):
    other, python, longctx = other_wheel(tmp_path), environment.python, environment.longctx
    environment.install(other)
    environment.install(built[1])  # over the other
    told = environment.call(longctx, "list", code=1).stderr
    assert "'longctx-0.3.2.dist-info' is there too" in told
    remove, _ = (line.split()[1:] for line in told.splitlines()[-2:])
    assert remove == ["uninstall", "longctx", "longctx-reader"]
    environment.pip("install", "--no-index", "--no-deps", "--force-reinstall", other)
    assert environment.call(longctx).stdout == "another program\n"
    told = environment.call(python, "-m", "longctx", "list", code=1).stderr
    assert "its __init__.py is missing, or another project's" in told
    environment.pip("uninstall", "--yes", "longctx")
    assert not longctx.exists()
    assert environment.call(python, "-m", "longctx", code=1).stderr == told
    environment.pip("uninstall", "--yes", "longctx-reader")
    assert not (environment.site / "longctx").exists()


def info(wheel: Path) -> str:
    """The folder of a wheel's metadata."""
    return "-".join(wheel.name.split("-")[:2]) + ".dist-info"


def other_wheel(folder: Path) -> Path:
    wheel, record = folder / "longctx-0.3.2-py3-none-any.whl", ""
    with zipfile.ZipFile(wheel, "w") as made:
        for name, text in OTHERS.items():
            made.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record += f"{name},sha256={digest.decode().rstrip('=')},{len(text)}\n"
        name = "longctx-0.3.2.dist-info/RECORD"
        made.writestr(name, f"{record}{name},,\n")
    return wheel


def test_a_commit_that_is_no_release_is_named():
    unready, done = RELEASE["unready"], "# Changelog\n\n## 0.2.0\n\n- A.\n\n## 0.1.0\n"
    assert [*unready("0.2.0", done, "", "v0.1.0\nv0.1.9\n")] == []
    begun = done.replace("0.2.0", "0.2.0 (unreleased)")
    first, second, third = unready("0.2.0", begun, " M README.md\n", "v0.1.0\nv0.2.0\n")
    assert first == "pyproject.toml has the version 0.2.0, CHANGELOG.md '0.2.0 (unreleased)'"
    assert second.endswith("not committed:\n M README.md")
    assert third.startswith("the tag v0.2.0 exists")
