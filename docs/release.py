"""`make release`: builds what is uploaded, checks it, and prints what tags and uploads it.

Uploads nothing. The sdist is built from the tracked files, and the wheel from the sdist.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
LARGEST = 100 << 20  # bytes of a file that the Python index takes
META = {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}  # in an sdist, with what is built
MADE = {"PKG-INFO", "setup.cfg"}  # by setuptools, in an sdist


def tracked() -> list[str]:
    """The files of the working tree that git tracks, or does not ignore."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sorted(file for file in {*listed.split("\0")} - {""} if (ROOT / file).is_file())


def packaged() -> set[str]:
    """The tracked files that pyproject.toml packages."""
    setuptools = _pyproject()["tool"]["setuptools"]
    folders = {
        name.partition(".")[2].replace(".", "/") or ".": setuptools["package-data"].get(name, [])
        for name in setuptools["packages"]
    }
    files = map(PurePosixPath, tracked())
    return {
        str(file)
        for file in files
        for folder, data in folders.items()
        if (file.suffix == ".py" and str(file.parent) == folder)
        or (file.is_relative_to(folder) and any(_fits(file, folder, glob) for glob in data))
    }


def build(out: Path, *options: str) -> tuple[Path, Path]:
    """Builds from a copy of the tracked files: nothing else of the clone can get in.

    Args:
        out: the folder for the two files; must be empty or not exist.
        options: of `python -m build`.

    Returns:
        The sdist and the wheel.
    """
    with TemporaryDirectory() as copy:
        for file in tracked():
            (Path(copy) / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, Path(copy) / file)
        command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(out)]
        done = subprocess.run([*command, *options, copy], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def problems(sdist: Path, wheel: Path) -> Iterator[str]:
    """What is wrong with the two files: their sizes, and what they lack or hold too much."""
    name = sdist.name.removesuffix(".tar.gz")
    with zipfile.ZipFile(wheel) as held:
        found = {one: held.read(one) for one in held.namelist() if not one.endswith("/")}
    own = {one: data for one, data in found.items() if not one.startswith(f"{name}.dist-info/")}
    yield from differences("the wheel", own, {f"longctx/{file}": file for file in packaged()})
    with tarfile.open(sdist) as held:
        members = [one for one in held.getmembers() if one.isfile()]
        found = {one.name: held.extractfile(one).read() for one in members}  # type: ignore[union-attr]
    made = (f"{name}/longctx_reader.egg-info/", *(f"{name}/{one}" for one in MADE))
    own = {one: data for one, data in found.items() if not one.startswith(made)}
    yield from differences("the sdist", own, {f"{name}/{file}": file for file in packaged() | META})
    for file in (sdist, wheel):
        if file.stat().st_size > LARGEST:
            yield f"{file.name} has {file.stat().st_size:,} bytes; {LARGEST:,} are the most"


def unready(version: str, changelog: str, status: str, tags: str) -> Iterator[str]:
    """Why this commit is no release: of the texts of CHANGELOG.md, `git status` and `git tag`."""
    top = re.search(r"^## (.*)", changelog, re.M)
    if not top or top[1] != version:
        yield f"pyproject.toml has the version {version}, CHANGELOG.md '{top and top[1]}'"
    if status.strip():
        yield f"there are changes that are not committed:\n{status.rstrip()}"
    if f"v{version}" in tags.split():
        yield f"the tag v{version} exists: set the next version in pyproject.toml"


def differences(what: str, held: dict[str, bytes], wanted: dict[str, str]) -> Iterator[str]:
    """How the files that an archive holds differ from the tracked files that it should hold."""
    for name in sorted(held.keys() | wanted.keys()):
        if name not in held:
            yield f"{what} lacks {name}"
        elif name not in wanted:
            yield f"{what} holds {name}"
        elif held[name] != (ROOT / wanted[name]).read_bytes():
            yield f"{what} holds another {name}"


def _fits(file: PurePosixPath, folder: str, glob: str) -> bool:
    """Whether a pattern of package data takes a file; `*` stays in a folder."""
    inside = file.relative_to(folder)
    return len(inside.parts) == glob.count("/") + 1 and inside.match(glob)


def _pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> None:
    """Leaves the two files in dist/, and exits with 1 if something is wrong."""
    version, out = _pyproject()["project"]["version"], ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    files = build(out)
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    wrong = [*problems(*files)]
    wrong += unready(version, changelog, _git("status", "--porcelain"), _git("tag"))
    for problem in wrong:
        print(f"problem: {problem}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    print(f"Nothing is uploaded yet. To release {version}:")
    print(f"  git tag v{version} && git push origin v{version}")
    print(f"  twine upload {' '.join(str(file.relative_to(ROOT)) for file in files)}")


if __name__ == "__main__":
    main()
