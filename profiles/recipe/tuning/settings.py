"""What differs between the models that are tuned: which weights change, and where they are tapped.

The file `../tiny-tuned.yaml` has these names.
"""

from dataclasses import dataclass
from pathlib import Path

from longctx.profiles.recipe.settings import read

TINY = Path(__file__).parents[1] / "tiny-tuned.yaml"


@dataclass(frozen=True)
class Settings:
    """The settings of one model.

    Attributes:
        model: as `--model` has it.
        rank: of the adapter's matrices; 0: every matrix is trained in full.
        whole: matrices that are trained in full beside the adapter.
        layer: the layer whose queries are the embeddings of tokens.
        heads: its query heads.
        refusal: the answer if the text has none.
        absent: share of the questions whose answer is left out of their text.
        rate: the highest learning rate.
        dropout: share of what each layer adds that is left out while the model learns to read.
    """

    model: str
    rank: int
    whole: list[str]
    layer: int
    heads: list[int]
    refusal: str
    absent: float
    rate: float
    dropout: float


def load(path: Path) -> Settings:
    """Reads a settings file; see `recipe.settings.read`."""
    return read(path, Settings)
