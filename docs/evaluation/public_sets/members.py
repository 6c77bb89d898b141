"""The members of a set, from an archive or a folder, compared with a list of hashes."""

import hashlib
import json
import lzma
import tarfile
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from public_sets.items import BadSet, Record

LISTS = Path(__file__).parent / "lists"  # NAME.sha256, in the form of sha256sum


@dataclass(frozen=True)
class Members:
    """Files of a set by their path in it."""

    origin: Path
    files: dict[str, bytes]

    @property
    def digest(self) -> str:
        """SHA-256 of all names and contents."""
        return hashlib.sha256(listed(self).encode()).hexdigest()

    def text(self, name: str) -> str:
        """A member as text.

        Raises:
            BadSet: it is not there, or not UTF-8.
        """
        if name not in self.files:
            raise BadSet(f"{self.origin} is incomplete: it has no {name}")
        try:
            return self.files[name].decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadSet(f"{name} in {self.origin} is damaged: {error}") from error

    def lines(self, name: str) -> list[Record]:
        """A member of JSON lines.

        Raises:
            BadSet: it is not there, or a line of it is no JSON object.
        """
        rows = []
        for number, line in enumerate(self.text(name).splitlines(), 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise BadSet(f"{name} in {self.origin}, line {number}: {error}") from error
            if not isinstance(row, dict):
                raise BadSet(f"{name} in {self.origin}, line {number}: no JSON object")
            rows.append(row)
        return rows


def read(path: Path) -> Members:
    """All files of a `.tar.xz` archive, of one compressed file, or of a folder.

    The first folder of an archive, which has its name, is left out of the paths.

    Raises:
        BadSet: nothing is there, or the archive is cut off or damaged.
    """
    if path.is_dir():
        inside = [file for file in sorted(path.rglob("*")) if file.is_file()]
        return _without_top(path, {f.relative_to(path).as_posix(): f.read_bytes() for f in inside})
    try:
        data = path.read_bytes()
        if path.suffix == ".xz":  # all of it, since tar does not look for the end
            data = lzma.decompress(data)
        if path.name.removesuffix(".xz").endswith(".tar"):
            with tarfile.open(fileobj=BytesIO(data)) as archive:
                found = [member for member in archive if member.isfile()]
                files = {m.name: archive.extractfile(m).read() for m in found}  # type: ignore  # files have one
            return _without_top(path, files)
        return Members(path, {path.name.removesuffix(".xz"): data})
    except FileNotFoundError as error:
        raise BadSet(f"{path} is not there") from error
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise BadSet(f"{path} is cut off or damaged: {error}") from error


def _without_top(path: Path, files: dict[str, bytes]) -> Members:
    tops = {name.split("/")[0] for name in files}
    if len(tops) == 1 and all("/" in name for name in files):
        files = {name.split("/", 1)[1]: data for name, data in files.items()}
    return Members(path, files)


def listed(members: Members) -> str:
    """The SHA-256 of each member and its path, a line each."""
    pairs = sorted((name, hashlib.sha256(data).hexdigest()) for name, data in members.files.items())
    return "".join(f"{digest}  {name}\n" for name, digest in pairs)


def compare(members: Members, wanted: Path) -> None:
    """Refuses a set that lacks a member, or has one with other bytes. Further files are ignored.

    Args:
        members: of the set.
        wanted: the list.

    Raises:
        BadSet: names the first member, and how many more differ.
    """
    rows = [line.split("  ", 1) for line in wanted.read_text("utf-8").splitlines() if line]
    absent = [name for _, name in rows if name not in members.files]
    if absent:
        raise BadSet(f"{members.origin} is incomplete: it has no {_first(absent)}")
    other = [
        name for digest, name in rows if hashlib.sha256(members.files[name]).hexdigest() != digest
    ]
    if other:
        raise BadSet(f"{members.origin} is damaged: other bytes in {_first(other)}")


def _first(names: list[str]) -> str:
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]}{more}"


def laid_out(documents: dict[str, dict[str, bytes]], folder: Path) -> dict[str, list[Path]]:
    """Writes documents as files, each in a folder of its own; those with these bytes stay.

    Returns:
        What to read for each document: its files, or their topmost folders.
    """
    placed: dict[str, list[Path]] = {}
    for number, (name, files) in enumerate(documents.items()):
        place = folder / f"{number:03}"
        for file, data in files.items():
            path = place / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != data:
                with tempfile.NamedTemporaryFile(dir=folder, delete=False) as new:
                    new.write(data)
                Path(new.name).replace(path)
        placed[name] = [place / top for top in dict.fromkeys(file.split("/")[0] for file in files)]
    return placed
