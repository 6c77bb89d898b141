"""The wheel holds everything: installed with the checkout out of reach, it answers a question."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = ("cli", "core", "kernels", "profiles", "samples", "pyproject.toml", "README.md", "LICENSE")


def run(*command: str, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_wheel_answers_a_question(tmp_path):
    source, site, away = tmp_path / "source", tmp_path / "site", tmp_path / "away"
    source.mkdir()
    away.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    wheels = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source))
    run(*pip, "wheel", *wheels)
    (wheel,) = tmp_path.glob("longctx-*.whl")
    run(*pip, "install", "--no-deps", "--target", str(site), str(wheel))
    shutil.rmtree(source)
    (away / "note.txt").write_text(
        "It rained on Tuesday.\nThe code of the blue door is 48213.\nThe boat came home.\n"
    )
    env = {**os.environ, "PYTHONPATH": str(site), "LONGCTX_LIBRARY": str(away / "library")}
    longctx = (sys.executable, "-P", "-m", "longctx.cli")
    where = run(
        sys.executable,
        "-P",
        "-c",
        "import longctx.core.model as m; print(m.__file__)",
        env=env,
        cwd=away,
    )
    assert where.startswith(str(site))
    run(*longctx, "ingest", "note.txt", env=env, cwd=away)
    answer = run(*longctx, "ask", "What is the code of the blue door?", env=env, cwd=away)
    assert answer.startswith("48213")
    assert "note.txt:2" in answer
