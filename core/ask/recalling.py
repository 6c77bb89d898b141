"""Recall: the question and its answer attend to all that a method kept of a document."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from longctx.core.ask.answering import Begun, Question
from longctx.core.ask.gather import top_tokens
from longctx.core.ask.state_checks import require_all, require_search
from longctx.core.common.errors import UsageError
from longctx.core.contracts.memory import Recalled, Scores, Whole
from longctx.core.contracts.method import Recallable
from longctx.core.contracts.policy import Policy
from longctx.core.decode import policies
from longctx.core.engine.setup import Engine
from longctx.core.kv import kept
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.retrieve.gather_by import METHOD
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.document import Document


class Recalling:
    """Answers by recall: the question and its answer attend to all that was kept.

    Args:
        engine: the model.
        document: the open document.
        method: holds what was kept.
        name: the method's.
        index: the passages, and their words.
    """

    gathers_by, without = METHOD, ()

    def __init__(
        self, engine: Engine, document: Document, method: Recallable, name: str, index: PassageIndex
    ):
        self._engine, self._document, self._method, self.name = engine, document, method, name
        self.documents, self.index = (document,), index

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Reads the question against the document.

        Raises:
            UsageError: the decode policy does not fit what the method keeps.
        """
        memory = self._method.recall()
        policy = self._policy(question.decoding.name, memory)
        hidden = self._read(memory, question)
        memory.begin_answer()
        on_gathered()
        prompt = torch.cat([self._engine.prompt.prefix(), question.ids])
        decoded = policy(question.decoding.options, memory, self._engine.window)
        found = partial(self._chosen, memory, question.gather)
        return Begun(decoded, hidden, prompt, 0, found, len(question.ids))

    def _policy(self, name: str, memory: Recalled) -> Callable[..., Policy]:
        known = {each: policies.load(each).Policy for each in {name, *policies.names()}}
        over = {each: policy.recalling for each, policy in known.items() if policy.recalling}
        has_all = isinstance(memory, Whole)
        fitting = sorted(name for name, policy in over.items() if has_all or not policy.chooses)
        if name in fitting:
            return over[name]
        raise UsageError(
            f"cannot decode with {name!r} what is asked with the method {self.name!r}",
            f"the policies for that are {', '.join(fitting)}",
            "Choose one of them with --decode, or another --method.",
        )

    def find(self, question: Question, budgets: Sequence[int | None]) -> list[Chosen]:
        """What the question itself attends to, at each budget.

        Raises:
            LongctxError: the document's method keeps nothing to search by.
        """
        require_search(self._method, self.name, self._document)
        memory = self._method.recall()
        self._read(memory, question)
        return [self._chosen(memory, budget) for budget in budgets]

    def score(self, question: Question) -> Scores:
        """How much the question attends to each token.

        Raises:
            LongctxError: the document's method keeps nothing to search by.
        """
        require_search(self._method, self.name, self._document)
        memory = self._method.recall()
        self._read(memory, question)
        return self._scores(memory)

    def _read(self, memory: Recalled, question: Question) -> Tensor:
        hidden = torch.zeros(0)
        for chunk in question.ids.split(memory.chunk):
            hidden = self._engine.decoder.read(chunk, memory)
        return hidden[-1:]

    def _chosen(self, memory: Recalled, budget: int | None) -> Chosen:
        scores = self._scores(memory)
        wanted = (self._method.gather or sys.maxsize) if budget is None else budget
        count = min(wanted, int((scores.pooled >= 0).sum()))
        return Chosen(scores, top_tokens(scores, count, self._document.manifest.tokens, (0, 0)))

    def _scores(self, memory: Recalled) -> Scores:
        scores = memory.scores(self._document.manifest.tokens)
        require_all(len(scores.raw), self._document, kept.GROUP)
        return Scores(scores.raw.cpu(), scores.pooled.cpu())
