"""Runs a retrieving method, and its transcription, over a document, a question and an answer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from float64_models import ORDER, WIDE, exact, float64_model, largest_difference, weights_of
from row_list import RowList
from transformers import PreTrainedModel

from longctx.core.contracts.memory import Memory, Place
from longctx.core.engine.encode import encode
from longctx.core.model.adapter import Decoder

PREFIX = 3  # tokens before the document
ANSWER = ORDER[300:]


@dataclass(frozen=True)
class Runs:
    """What both of them read; a test may name other options, tokens and lengths.

    Attributes:
        transcription: the module of the method's literal transcription.
        settings_of: the transcription's settings of options.
        method: the class that reads.
        options: the method's.
        ids: tokens of the prefix and the document.
        question: tokens of the question.
        steps: tokens of the answer.
        answering: what the transcription's `feed` is told besides of a token of the answer.
    """

    transcription: ModuleType
    settings_of: Callable[[Any], Any]
    method: type
    options: Any
    ids: list[int]
    question: list[int]
    steps: int
    answering: dict[str, Any] = field(default_factory=dict)
    _expected: list[list[np.ndarray]] = field(default_factory=list)

    def read(
        self,
        model: PreTrainedModel,
        options: Any = None,
        cls: type | None = None,
        place: Place = WIDE,
        ids: list[int] | None = None,
    ) -> tuple[Decoder, Any, RowList]:
        """The decoder, the method that has read the document, and its rows."""
        decoder, rows = Decoder(model), RowList()
        method = (cls or self.method)(options or self.options, decoder.layers, place)
        given = torch.tensor(self.ids if ids is None else ids)
        with exact():  # in pieces that are not the chunks
            list(encode(decoder, method, given[:PREFIX], given[PREFIX:].split(37), rows))
        return decoder, method, rows

    def read_on(self, decoder: Decoder, cls: type, half: int) -> tuple[Any, RowList]:
        """A method that goes on from a snapshot after `half` tokens, and all rows of both."""
        given, rows = torch.tensor(self.ids), RowList()
        begun, gone_on = (cls(self.options, decoder.layers, WIDE) for _ in range(2))
        with exact():
            list(encode(decoder, begun, given[:PREFIX], [given[PREFIX:half]], rows))
            gone_on.restore(begun.snapshot(), rows, reading=True)
            list(encode(decoder, gone_on, given[:0], [given[half:]], rows))
        return gone_on, rows

    def answer(
        self,
        decoder: Decoder,
        method: Any,
        steps: int | None = None,
        question: list[int] | None = None,
    ) -> tuple[list[np.ndarray], Memory]:
        """Logits after the question and after each token of the answer, and the memory."""
        memory, found = method.recall(), []
        with exact():
            for chunk in torch.tensor(question or self.question).split(memory.chunk):
                hidden = decoder.read(chunk, memory)
            memory.begin_answer()
            found.append(decoder.logits(hidden[-1:])[0].numpy())
            for token in ANSWER[: self.steps if steps is None else steps]:
                hidden = decoder.read(torch.tensor([token]), memory)
                found.append(decoder.logits(hidden)[0].numpy())
        return found, memory

    def transcribed_reading(
        self, model: PreTrainedModel, options: Any = None
    ) -> tuple[Any, Any, Any]:
        """The transcription's weights and settings, and what it is after the document."""
        weights, settings = weights_of(model), self.settings_of(options or self.options)
        return weights, settings, self.transcription.read(weights, self.ids, settings)

    def transcribed_answer(
        self, model: PreTrainedModel, options: Any = None, steps: int | None = None
    ) -> tuple[list[np.ndarray], Any, Any, Any]:
        """Logits as of `answer`; what it is after the document, the question and the answer."""
        weights, settings, reading = self.transcribed_reading(model, options)
        feed = self.transcription.feed
        logits, asked = feed(weights, reading, self.question, settings)
        found, after = [logits], asked
        for token in ANSWER[: self.steps if steps is None else steps]:
            logits, after = feed(weights, after, [token], settings, **self.answering)
            found.append(logits)
        return found, reading, asked, after

    def difference_of_mutant(
        self,
        make_model: Callable[..., PreTrainedModel],
        monkeypatch: pytest.MonkeyPatch,
        where: Any,
        name: str,
        mutant: Any,
    ) -> float:
        """The largest difference of logits from the transcription's with something replaced."""
        model = float64_model(make_model)
        if not self._expected:  # the same for every mutant
            self._expected.append(self.transcribed_answer(model, steps=1)[0])
        monkeypatch.setattr(where, name, mutant)
        found = self.answer(*self.read(model)[:2], steps=1)[0]
        return largest_difference(found, self._expected[0])
