"""A model's profile, and a document and questions read with REFORM's own code.

Knows nothing of which heads are chosen.
"""

from pathlib import Path

import torch
from torch import Tensor

from longctx.core.contracts.memory import Place
from longctx.core.engine.encode import chunks
from longctx.core.kv.embeddings import GROUP
from longctx.core.methods.reform import Method, Options
from longctx.core.model.adapter import Decoder
from longctx.core.model.files import ModelFiles
from longctx.core.profile import profile
from longctx.core.profile.prompt import PromptEncoder

QUESTION = "\nQuestion: {question}\nAnswer:"  # for a model without a profile


def profile_of(files: ModelFiles, path: Path | None) -> profile.Profile:
    """The profile in a file or in the model's folder; else the bundled model's prompt.

    Args:
        files: the model.
        path: a YAML file; None: profile.yaml in the model's folder, if there is one.
    """
    file = path or files.folder / "profile.yaml"
    if path or file.is_file():
        return profile.load(file.read_text("utf-8"), f"profile {file}")
    prompt = profile.PromptTemplate(files.tokenizer.bos_token or "", QUESTION)
    return profile.Profile(files.name, prompt=prompt)


class Reading:
    """Reads documents and their questions as REFORM does.

    Args:
        decoder: the model.
        options: REFORM's; its heads are the ones measured.
        prompt: encodes prefix and question.
    """

    def __init__(self, decoder: Decoder, options: Options, prompt: PromptEncoder):
        self._decoder, self._options, self._prompt = decoder, options, prompt

    def document(self, ids: Tensor) -> tuple[Method, Tensor]:
        """Reads a document.

        Args:
            ids: (N,) its tokens.

        Returns:
            REFORM's state after it, and (heads, N, D) float32 unit vectors of its tokens.
        """
        method = Method(self._options, self._decoder.layers)
        prefix, blocks = self._prompt.prefix(), []
        for chunk in chunks(prefix, [ids], lambda: method.chunk):
            self._decoder.read(chunk, method, method.depth)
            blocks.append(_vectors(method.rows()[GROUP]))
        return method, torch.cat(blocks, dim=1)[:, len(prefix) :]

    def question(self, method: Method, words: str) -> Tensor:
        """Reads a question after a document, and leaves `method` as it was.

        Returns:
            (heads, T, D) float32 unit vectors of the question's own words.
        """
        # The question is read from the snapshot, as in a later process. It is not a whole chunk, so
        # nothing is evicted for it.
        device = self._decoder.device
        place = Place(str(device), self._decoder.dtype)
        asked = Method(self._options, self._decoder.layers, place)
        asked.restore(method.snapshot())
        ids, scored = self._prompt.question(words)
        self._decoder.read(ids, asked, asked.depth)
        return _vectors(asked.rows()[GROUP])[:, scored.to(device)]


def _vectors(rows: dict[str, Tensor]) -> Tensor:
    """(heads, n, D) float32 of a method's int8 rows."""
    return (rows["vectors"].float() * rows["scales"].float()[..., None]).transpose(0, 1)
