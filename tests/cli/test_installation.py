"""Files of another project, whose package has the same name, are noticed before a command runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longctx.cli import installation
from longctx.core.common import distribution

ROOT = Path(__file__).parent.parent.parent
OTHERS = '"""Another project."""\n__version__ = "0.3.2"\n'


@pytest.fixture
def site(tmp_path):
    """A folder with the package as an installer leaves it, of links."""
    package = tmp_path / "site" / "longctx"
    package.mkdir(parents=True)
    for name in ("__init__.py", "__main__.py", "cli", "core", "kernels", "profiles", "samples"):
        (package / name).symlink_to(ROOT / name)
    (tmp_path / "site" / "longctx_reader-0.1.0.dist-info").mkdir()
    return package.parent


def run(site: Path, *words: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-P", "-m", "longctx", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def replace_init(site: Path) -> None:
    (site / "longctx" / "__init__.py").unlink()
    (site / "longctx" / "__init__.py").write_text(OTHERS)


MIXED = {
    "after": (lambda site: (site / "longctx-0.3.2.dist-info").mkdir(), "'longctx-0.3.2.dist-info'"),
    "egg": (lambda site: (site / "longctx-0.3.2-py3.11.egg-info").mkdir(), "egg-info' is there"),
    "over": (replace_init, "__init__.py is missing, or another project's"),
    "removed": (lambda site: (site / "longctx" / "__init__.py").unlink(), "__init__.py is missing"),
}


@pytest.mark.parametrize("how", MIXED)
def test_a_mixed_folder_stops_every_command(site, how):
    mix, why = MIXED[how]
    mix(site)
    for words in ([], ["--help"], ["find", "x"]):
        done = run(site, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: cannot start from '{site}/longctx': ")
        assert why in done.stderr
        assert done.stderr.splitlines()[-2:] == [
            "  pip uninstall longctx longctx-reader",
            "  pip install .",
        ]
    told = json.loads(run(site, "list", "--json").stderr)
    assert told["error"]["code"] == 1
    assert why in told["error"]["message"]


def test_a_folder_of_its_own_runs(site):
    (site / "longctx_daemon-1.0.dist-info").mkdir()
    (site / "longctx-notes.txt").touch()
    done = run(site, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_warns_of_the_other_distribution(longctx, monkeypatch):
    installed = {"longctx": "0.3.2"}
    monkeypatch.setattr(distribution, "version", lambda name=distribution.NAME: installed.get(name))
    none, other = installation.warnings()
    assert none == f"{installation.FOLDER!r} belongs to no installed distribution longctx-reader"
    assert "the distribution longctx 0.3.2 is installed too" in other
    assert other.endswith("pip uninstall longctx longctx-reader\n  pip install .")
    done = longctx("doctor")
    assert done.exit_code == 0
    assert "warning        the distribution longctx 0.3.2 is" in done.stdout
    monkeypatch.undo()
    assert installation.warnings() == []
