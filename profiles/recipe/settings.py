"""What differs between the models that the recipe makes: sizes, tokenizer, prompt, refusals.

Each model has a YAML file beside this one; every command that needs it takes `--settings`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

Kind = TypeVar("Kind")
TINY = Path(__file__).with_name("tiny.yaml")


@dataclass(frozen=True)
class Settings:
    """The settings of one model; the file has the same names.

    Attributes:
        sizes: fields of `training.model.Config`.
        special: the tokenizer's tokens for a document's start, an answer's end, and padding.
        longest: most bytes of a token.
        questions: texts that may come before a question.
        answer: text before an answer.
        refusal: the answer if the document has none.
        absent: share of the questions whose answer is left out of their document.
    """

    sizes: dict[str, Any]
    special: list[str]
    longest: int
    questions: list[str]
    answer: str
    refusal: str
    absent: float


def load(path: Path = TINY) -> Settings:
    """Reads a settings file; see `read`."""
    return read(path, Settings)


def read(path: Path, kind: type[Kind]) -> Kind:
    """Reads a YAML file with the fields of a class.

    Raises:
        TypeError: a name is missing or unknown.
    """
    return kind(**yaml.safe_load(path.read_text("utf-8")))
