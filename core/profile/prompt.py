"""The tokens around a document: the prefix, the question, and which question tokens score.

Special tokens count as such only in the profile's templates; in the user's words they are text.
torch is imported when tensors are wanted.
"""

import re
from typing import TYPE_CHECKING, Any

from longctx.core.common.errors import UsageError
from longctx.core.profile.profile import PLACE, PromptTemplate
from longctx.core.profile.wording import require_text

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from torch import Tensor


class PromptEncoder:
    """Turns the texts around a document into tokens.

    Args:
        prompt: the profile's templates.
        tokenizer: a fast transformers tokenizer.
    """

    def __init__(self, prompt: PromptTemplate, tokenizer: Any):
        self._prompt = prompt
        self._backend = tokenizer.backend_tokenizer
        added = self._backend.get_added_tokens_decoder().values()
        specials = sorted((t for t in added if t.special), key=lambda t: -len(t.content))
        pattern = "|".join(map(_pattern, specials))
        self._specials = re.compile(f"({pattern})") if pattern else None

    def prefix(self) -> "Tensor":
        """(P,) token ids before the document."""
        return self.text(self._prompt.prefix)

    def text(self, template: str) -> "Tensor":
        """(n,) token ids of a text of the profile's, which may contain special tokens."""
        import torch

        return torch.tensor(self._encode(template, None)[0], dtype=torch.long)

    def question(self, words: str) -> "tuple[Tensor, Tensor]":
        """The question in its template.

        Args:
            words: the user's question.

        Returns:
            (T,) token ids, and (T,) bool: the tokens that hold the user's own words.

        Raises:
            UsageError: the question is empty or not text.
        """
        import torch

        ids, scored = self.question_ids(words)
        return torch.tensor(ids, dtype=torch.long), torch.tensor(scored, dtype=torch.bool)

    def question_ids(self, words: str) -> tuple[list[int], list[bool]]:
        """The same as numbers."""
        if not words.strip():
            raise UsageError("the question is empty", "", "Say what you want to know.")
        require_text(words)
        return self._encode(self._prompt.question, words.strip())

    def _encode(self, template: str, words: str | None) -> tuple[list[int], list[bool]]:
        parts = self._specials.split(template) if self._specials else [template]
        ids: list[int] = []
        scored: list[bool] = []
        for number, part in enumerate(parts):
            if number % 2:  # re.split alternates text and matches
                found = self._backend.token_to_id(part)
                ids.append(self._backend.token_to_id(part.strip()) if found is None else found)
                scored.append(False)
            elif part:
                self._append_text(part, words, ids, scored)
        return ids, scored

    def _append_text(
        self, part: str, words: str | None, ids: list[int], scored: list[bool]
    ) -> None:
        start, end = -1, -1
        if words is not None and PLACE in part:
            start = part.index(PLACE)
            end = start + len(words)
            part = part.replace(PLACE, words, 1)
        self._backend.encode_special_tokens = True
        encoding = self._backend.encode(part, add_special_tokens=False)
        ids += encoding.ids
        scored += [first < end and last > start for first, last in encoding.offsets]


def _pattern(token: "AddedToken") -> str:
    """The pattern of a special token in a template: some tokens absorb the spaces beside them."""
    before, after = (r"\s*" if taken else "" for taken in (token.lstrip, token.rstrip))
    return before + re.escape(token.content) + after
