"""Things of a registry that a test adds: one file each, in a folder of its own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

POLICY = '''\
"""Loud and clear: everything, whatever its options."""

from dataclasses import dataclass

from longctx.core.contracts.policy import PolicyOptions
from longctx.core.kv.prompt_policy import PromptPolicy


@dataclass(frozen=True)
class Options(PolicyOptions):
    """One option of every sort.

    Attributes:
        budget: tokens.
        share: of them.
        rule: a word.
        loud: whether it is.
    """

    budget: int = 4096
    share: float | None = None
    rule: str = "top"
    loud: bool = False

    def reserve(self, answer: int) -> int:
        return max(answer, 16)

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget: expected 1 or more, got {self.budget}")


class Policy(PromptPolicy):
    """As `dense`."""

    kind = None

    def __init__(self, options, prompt, window):
        super().__init__(prompt)

    def attend(self, layer, q, k, v):
        return self._caches[layer.index].read(q, k, v)

    def advance(self):
        count = self._start + self._looks.steps + 1
        self._looks.add(count, count)
'''
GATHER_SOURCE = '''\
"""Twice: the question's words, each counted twice."""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.ranked import Ranked


class GatherSource(gather_by.GatherSource):
    """The passages by BM25, doubled."""

    vectors = "unused"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """See `gather_by.GatherSource`."""
        passages = sought.index.passages
        words = sought.index.scores_in(sought.words, passages.alone())
        return Ranked(passages, 2 * words, words, None)
'''
FORMAT = '''\
"""Verses: lines between blank lines, cited by verse."""

from collections.abc import Iterator
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.limits import Share
from longctx.core.sources.pieces import Piece


class Format(formats.Format):
    """Verses, of which the last one ends with a full stop."""

    marks = "verse"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Iterator[Piece]:
        """Each verse."""
        text = file.read().decode("utf-8")
        if not text.endswith("."):
            raise ValueError("its end is missing")
        for number, verse in enumerate(text.split("\\n\\n"), 1):
            yield Piece(f"{verse}\\n\\n", number)
'''


@contextmanager
def toy(package: ModuleType, name: str, text: str, folder: Path) -> Iterator[None]:
    """Adds a file to a registry for a while."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text, "utf-8")
    package.__path__.append(str(folder))
    try:
        yield
    finally:
        package.__path__.remove(str(folder))
        sys.modules.pop(f"{package.__name__}.{name}", None)
        vars(package).pop(name, None)
