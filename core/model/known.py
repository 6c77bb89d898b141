"""What transformers makes of a model's configuration and tokenizer, kept for the next run.

Importing transformers' model code takes longer than all else that a question needs. What it makes
of a folder's files depends on these and on the versions of the libraries alone. So it is kept in
the user's cache under a digest of both; losing it costs only time. Knows nothing of weights.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from longctx.core.common import file_limits
from longctx.core.common.errors import LongctxError
from longctx.core.common.outputs import Output
from longctx.core.common.regular_files import read_regular
from longctx.core.model.folder import most_of
from longctx.core.model.weights import cache_folder, sha256

FOLDER = "described"  # in the user's cache: one file for each model and pair of versions
MOST = 16  # files kept there; the oldest goes first
FORM = "1"  # of such a file


@cache
def versions() -> str:
    """The versions of the libraries that read a model's files, without importing them."""
    return " ".join(metadata.version(name) for name in ("transformers", "tokenizers"))


@dataclass(frozen=True)
class Known:
    """What is known of a model by its files.

    Attributes:
        config: its configuration, as transformers' `to_dict` has it.
        tokenizer: the same of its tokenizer: `backend` and what is asked of the rest.
    """

    config: dict[str, Any]
    tokenizer: dict[str, Any]

    @classmethod
    def of(cls, config: Any, tokenizer: Any) -> "Known":
        """What is asked of a configuration and a fast tokenizer of transformers."""
        values = json.loads(json.dumps(config.to_dict(), default=str))
        return cls(
            {name: value for name, value in values.items() if name != "_name_or_path"},
            {
                "backend": tokenizer.backend_tokenizer.to_str(),
                **{name: getattr(tokenizer, name, None) for name in ASKED},
            },
        )

    def is_same(self, config: Any, tokenizer: Any) -> bool:
        """Whether what can be made of it is what it was taken from."""
        from tokenizers import Tokenizer

        whole = {name: v for name, v in config.to_dict().items() if name != "_name_or_path"}
        text = json.dumps(whole, sort_keys=True, default=str)
        backend = tokenizer.backend_tokenizer.to_str()
        return (
            json.dumps(self.config, sort_keys=True) == text
            and Tokenizer.from_str(self.tokenizer["backend"]).to_str() == backend
        )


ASKED = ("bos_token", "bos_token_id", "eos_token_id", "chat_template", "name_or_path")


def key_of(folder: Path) -> str:
    """A digest of a folder's files, but for the weights, and of what reads them.

    Raises:
        OSError: a file cannot be read.
    """
    told = [FORM, versions(), str(folder)]  # a tokenizer knows its folder
    for file in sorted(folder.rglob("*")):
        most = most_of(file)
        if most and file.is_file():
            data = read_regular(file, most)
            told.append(f"{file.relative_to(folder)} {sha256(data)}")
    return sha256("\n".join(told).encode())


def recall(key: str) -> Known | None:
    """What was kept under a key; None if that is nothing whole."""
    try:
        data = read_regular(_path(key), file_limits.TOKENIZER)
        digest, _, text = data.partition(b"\n")
        if sha256(text).encode() != digest:
            return None
        return Known(**json.loads(text))
    except (OSError, ValueError, TypeError):
        return None


def keep(key: str, known: Known) -> None:
    """Keeps it for later runs, if the cache can be written."""
    text = json.dumps({"config": known.config, "tokenizer": known.tokenizer})
    path = _path(key)
    with suppress(OSError, LongctxError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime)[:-MOST]:
            old.unlink()
        Output(path).write(f"{sha256(text.encode())}\n{text}")


def _path(key: str) -> Path:
    return cache_folder() / FOLDER / f"{key[:32]}.json"


class KnownTokenizer:
    """A fast tokenizer of transformers, of which nothing is made before it is asked for.

    Args:
        told: `Known.tokenizer`.
        whole: makes the whole one, for everything that is not known.

    Attributes:
        is_fast: always.
        backend_tokenizer: of the tokenizers library.
        bos_token, bos_token_id, eos_token_id, chat_template, name_or_path: as in transformers.
    """

    is_fast = True

    def __init__(self, told: dict[str, Any], whole: Any):
        from tokenizers import Tokenizer

        self.backend_tokenizer: Any = Tokenizer.from_str(told["backend"])
        for name in ASKED:
            setattr(self, name, told[name])
        self._make, self._made = whole, None

    def _whole(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_make", "_made"):  # while it is copied, or made
            raise AttributeError(name)
        return getattr(self._whole(), name)

    def __call__(self, *texts: Any, **options: Any) -> Any:
        """Tokens of texts, as in transformers."""
        return self._whole()(*texts, **options)

    def __len__(self) -> int:
        return len(self._whole())
