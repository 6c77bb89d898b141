"""Two looks into a model: what REFORM's embeddings rank first, and what ReAttention would select.

Documents are read by the methods' own code. Knows nothing of which heads are wanted.
"""

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from longctx.core.contracts.memory import Place
from longctx.core.engine.encode import chunks
from longctx.core.kv.embeddings import GROUP
from longctx.core.kv.prompt import Prompt
from longctx.core.methods.reform import Method, Options
from longctx.core.model.adapter import Decoder, Layer
from longctx.core.profile.prompt import PromptEncoder
from longctx.profiles.tiny.recipe.cases import Case

Spans = list[tuple[int, int]]  # (first, last + 1) tokens

POOL = 20  # neighbours over which a token's score is averaged
TOP = 4  # keys that a query selects


class Reading:
    """Documents read as REFORM reads them, and questions put to them.

    Args:
        decoder: the model.
        options: of REFORM; its heads are the ones measured.
        prompt: encodes prefix and question.
    """

    def __init__(self, decoder: Decoder, options: Options, prompt: PromptEncoder):
        self._decoder, self._options, self._prompt = decoder, options, prompt

    def cosines(self, case: Case) -> Tensor:
        """Cosine of every document token with every token of the question's own words.

        Returns:
            (heads, N, T) float32.
        """
        method, text = self.document(_tensor(case.document.ids))
        return text @ self.question(method, case.question).transpose(1, 2)

    def document(self, ids: Tensor) -> tuple[Method, Tensor]:
        """Reads a document.

        Args:
            ids: (N,) its tokens.

        Returns:
            REFORM as it stands after it, and (heads, N, D) float32 unit vectors of its tokens.
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
        # The question is read from the snapshot, as in a later process. It is no whole chunk, so
        # nothing is evicted for it.
        device = self._decoder.device
        place = Place(str(device), self._decoder.dtype)
        asked = Method(self._options, self._decoder.layers, place)
        asked.restore(method.snapshot())
        ids, scored = self._prompt.question(words)
        self._decoder.read(ids, asked, asked.depth)
        return _vectors(asked.rows()[GROUP])[:, scored.to(device)]


def normalised_ranks(scores: Tensor, needles: Spans) -> Tensor:
    """Mean rank of the needles' tokens by pooled score, divided by the number of tokens.

    Args:
        scores: (heads, N), not yet pooled.
        needles: where they stand.

    Returns:
        (heads,) float64; 0 is best, 0.5 is chance.
    """
    N = scores.shape[1]
    pooled = F.avg_pool1d(scores, POOL, stride=1, padding=POOL // 2, count_include_pad=False)
    # A stable order: among equal scores the earlier token comes first.
    ranks = pooled[:, :N].argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return torch.cat([ranks[:, slice(*needle)] for needle in needles], dim=1).double().mean(1) / N


class Selection(Prompt):
    """Full attention that notes which document tokens the last query would select by plain q.k.

    Attributes:
        top: of each layer, (H, TOP) tokens of the document.

    Args:
        capacity: tokens of the prompt.
        document: where the document stands in it.
    """

    def __init__(self, capacity: int, document: slice):
        super().__init__(capacity)
        self._document = document
        self.top: list[Tensor] = []

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Notes the last query's best tokens, then attends to everything; see `Memory.attend`."""
        last = q[:, -1].float().unflatten(0, (layer.kv_heads, -1))  # (G, H/G, D)
        scores = last @ k[:, self._document].float().transpose(1, 2)  # (G, H/G, N)
        self.top.append(scores.flatten(0, 1).topk(TOP).indices)
        return super().attend(layer, q, k, v)


def selected(decoder: Decoder, case: Case, prefix: int) -> Tensor:
    """The document tokens that the last prompt token selects, in one window.

    Args:
        decoder: the model.
        case: its prompt is read.
        prefix: tokens before the document.

    Returns:
        (L, H, TOP) int64.
    """
    memory = Selection(len(case.prompt), slice(prefix, prefix + len(case.document.ids)))
    decoder.read(_tensor(case.prompt), memory)
    return torch.stack(memory.top).cpu()


def hit(tokens: Tensor, spans: Spans) -> Tensor:
    """Whether any of the tokens (..., n) lies in one of the spans; (...) bool."""
    inside = [(tokens >= first) & (tokens < end) for first, end in spans]
    return torch.stack(inside).any(dim=0).any(dim=-1)


def answer_span(case: Case, backend: Tokenizer) -> tuple[int, int]:
    """The tokens of the document that hold the answer."""
    encoding = backend.encode(case.document.text, add_special_tokens=False)
    start = case.document.text.index(case.answer)
    end = start + len(case.answer)
    return encoding.char_to_token(start), encoding.char_to_token(end - 1) + 1


def _vectors(rows: dict[str, Tensor]) -> Tensor:
    """(heads, n, D) float32 of a method's int8 rows."""
    return (rows["vectors"].float() * rows["scales"].float()[..., None]).transpose(0, 1)


def _tensor(ids: np.ndarray) -> Tensor:
    return torch.from_numpy(ids.astype("int64"))
