"""Several continuations of one prompt, whose keys and values are read once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from longctx.core.contracts.policy import Looks, Spent
from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Decoder


class Forks:
    """Reads paths of tokens after a prompt, each as if it alone followed.

    What a path has in common with the one read before it is not read again.

    Args:
        decoder: the model.
        prompt: read in full, with room for the longest path; only this may add to it.
        hidden: the prompt's last hidden state (1, E).
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, hidden: Tensor):
        self._decoder, self._prompt, self._length = decoder, prompt, prompt.length
        self._first = self._scores(hidden)
        self._held: tuple[int, ...] = ()
        self._looks, self._longest = Looks(prompt.windows), 0

    def after(self, path: tuple[int, ...]) -> Tensor:
        """Log-probabilities (vocabulary,) of the token after a path."""
        if not path:
            return self._first[0]
        same = 0
        for one, other in zip(path[:-1], self._held, strict=False):
            if one != other:
                break
            same += 1
        return self._run(path, same)[-1]

    def score(self, path: Sequence[int], ends: Sequence[int]) -> float:
        """The log-probability of a path and of an end after it, all read in one pass.

        Args:
            path: token ids, at least one.
            ends: token ids that end an answer.
        """
        scores = torch.cat([self._first, self._run(tuple(path), 0)])
        own = scores[range(len(path)), list(path)].sum()
        return float(own + scores[-1, list(ends)].logsumexp(0))

    def spent(self) -> Spent:
        """How much the tokens read attended to."""
        return Spent(self._looks.mean, None, self._length + self._longest)

    def _run(self, path: tuple[int, ...], same: int) -> Tensor:
        """Reads a path of which the first `same` tokens are held; the scores after the others."""
        self._prompt.cut(self._length + same)
        hidden = self._decoder.read(torch.tensor(path[same:]), self._prompt)
        self._held = path
        self._longest = max(self._longest, len(path))
        for count in range(self._length + same + 1, self._length + len(path) + 1):
            self._looks.add(count, count)
        return self._scores(hidden)

    def _scores(self, hidden: Tensor) -> Tensor:
        """Log-probabilities (n, vocabulary) after hidden states (n, E)."""
        return self._decoder.logits(hidden).log_softmax(dim=-1)
