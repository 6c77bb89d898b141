"""The wheel holds everything: installed with the checkout out of reach, it answers a question."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = ("__init__.py", "__main__.py", "pyproject.toml", "README.md", "LICENSE")
COMPILED = shutil.ignore_patterns("__pycache__")
PARTS = ("cli", "core", "kernels", "profiles", "samples", *FILES)


def run(*command: str, **options) -> subprocess.CompletedProcess:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, **options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_an_installed_wheel_answers_a_question(tmp_path):
    source, site, away = tmp_path / "source", tmp_path / "site", tmp_path / "away"
    source.mkdir()
    away.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=COMPILED)
        else:
            shutil.copy(ROOT / part, source / part)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    wheels = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source))
    stored = "--config-settings=--build-option=--compression=stored"  # 100 MB of weights
    run(*pip, "wheel", stored, *wheels)
    (wheel,) = tmp_path.glob("longctx-*.whl")
    with zipfile.ZipFile(wheel) as held:  # as pip installs it, but for its scripts
        held.extractall(site)
    shutil.rmtree(source)
    note = away / "note.txt"
    note.write_text(
        "It rained on Tuesday.\nThe code of the blue door is 48213.\nThe boat came home.\n"
    )
    env = {**os.environ, "PYTHONPATH": str(site), "LONGCTX_LIBRARY": str(away / "library")}
    longctx = (sys.executable, "-P", "-m", "longctx")
    where = "import importlib.util as u; print(u.find_spec('longctx.core.model.adapter').origin)"
    what = f"{where}; import longctx; print(longctx.__version__)"
    place, stated = run(sys.executable, "-P", "-c", what, env=env, cwd=away).stdout.splitlines()
    assert place.startswith(str(site))
    (entries,) = site.glob("longctx-*.dist-info/entry_points.txt")
    assert "[llm]\nlongctx = longctx.cli.llm_plugin\n" in entries.read_text()
    page = site / "longctx" / "cli" / "serve" / "page"
    files = {file.name for file in (ROOT / "cli" / "serve" / "page").iterdir()}
    assert {file.name for file in page.iterdir()} == files > {"index.html", "style.css", "main.js"}
    assert run(*longctx, "--version", env=env).stdout == f"longctx {stated}\n"
    read = run(*longctx, "ingest", "note.txt", env=env, cwd=away)
    assert read.stderr == ""
    assert re.fullmatch(r"note: complete, \d+ tokens, state .*\n", read.stdout)
    note.unlink()
    asked = run(*longctx, "ask", "What is the code of the blue door?", env=env, cwd=away)
    assert asked.stderr == "document: note (the latest)\n"
    answer, blank, passage = asked.stdout.splitlines()
    assert (answer, blank) == ("48213", "")
    assert passage.startswith("note.txt:2:")
