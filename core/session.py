"""The second half of the main job: store -> answering (gather -> recompute, or recall) -> decode.

A `Session` opens a document's state once and answers any number of questions from it. Nothing here
asks which method is in use.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor

from longctx.core.ahead import ReadAhead
from longctx.core.answer import INTERRUPTED, Answer, Found, decoded
from longctx.core.answering import Answering, Question, way_of
from longctx.core.decode import Generation
from longctx.core.decoding import Decoding
from longctx.core.device import dtype_name
from longctx.core.errors import LongctxError
from longctx.core.gather import passages
from longctx.core.lexical import PassageIndex
from longctx.core.memory import Scores
from longctx.core.sampling import Sampling
from longctx.core.scoring import METHOD
from longctx.core.setup import Setup, memory_told, policy, prepare, recorded
from longctx.core.store.library import Library
from longctx.core.store.sameness import has_changed

OUT_OF_MEMORY = "Use a smaller --gather or --max-new-tokens."
LARGE_STATE = (
    "Keys that were kept must all be in memory: keep them in fewer bytes (ingest --kv-dtype int8), "
    "or ingest with --method reform."
)


class Session:
    """An open document with its model.

    Use it as a context, or `close` it: it keeps others from deleting the document.

    Args:
        library: the library's folder.
        name: the document; None: the latest.
        setup: model, profile, device and dtype; the method is the document's.
        partial: also take what the last checkpoint holds of a document that is not finished.

    Attributes:
        document: the open document.
        changed: names of its sources whose files have other content now.

    Raises:
        NotFound: no such library or document.
        Locked: the document is being written.
        StateMismatch: the state is damaged, or of another model or format.
        LongctxError: no room for the model.
    """

    def __init__(self, library: Path, name: str | None, setup: Setup, partial: bool = False):
        started = time.perf_counter()
        store = Library.open(library)
        with ExitStack() as held:
            opened = store.reading(name or store.latest(), partial)
            self.document = held.enter_context(opened)
            self._load(setup)
            self._held = held.pop_all()
        self.changed = [s.name for s in self.document.manifest.sources if has_changed(s)]
        self._load_s = time.perf_counter() - started

    def _load(self, setup: Setup) -> None:
        """Loads the model, and meanwhile reads what it will need of the document."""
        with ReadAhead() as ahead:
            snapshot = ahead.submit(self.document.snapshot)
            ahead.warm(self.document.read_whole())
            self.engine = prepare(setup, recorded(self.document.manifest))
            self.document.require_model(self.engine.files.fingerprint().as_dict())
            try:
                _ = self.engine.decoder
            except LongctxError:
                snapshot.result()  # damage is told first: another model would not help
                raise
            with memory_told(self.engine, LARGE_STATE):
                self._method = self.engine.new_method(snapshot.result(), self.document)
            self._index = PassageIndex(self.document)
            self._ways: dict[str | None, Answering] = {}
            self._way = self._way_by(METHOD)  # a wrong method is told now; the rest when asked

    def _way_by(self, gather_by: str | None) -> Answering:
        """How the document is asked with what the user wants gathered by; all share one index."""
        if gather_by not in self._ways:
            parts = self.engine, self.document, self._method
            self._ways[gather_by] = way_of(*parts, gather_by, self._index)
        return self._ways[gather_by]

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the document, which nobody could delete or replace until now."""
        self._held.close()

    def ask(
        self,
        question: str,
        gather: int | None = None,
        sampling: Sampling | None = None,
        on_text: Callable[[str], None] = lambda text: None,
        decode: str | None = None,
        gather_by: str | None = None,
    ) -> Answer:
        """Answers a question from the state.

        Ctrl-C while the answer is decoded ends it: what came until then is returned.

        Args:
            question: the user's words.
            gather: tokens to recompute, prefix included; None: the method's.
            sampling: how to decode; what it leaves open is the profile's.
            on_text: gets the answer's text as it comes.
            decode: decode policy, `NAME` or `NAME:OPTION=VALUE,...`; None: the setup's.
            gather_by: what tokens are gathered by, of `scoring.names()`; None: the profile's, or
                the method's scores.

        Raises:
            UsageError: an empty question, one longer than the window, or a decode policy or a
                `gather_by` that there is not or that does not go with how the document is asked.
            LongctxError: `gather_by` needs scores that the document's method does not have.
        """
        engine, way = self.engine, self._way_by(gather_by)
        decoding = engine.decoding if decode is None else policy(decode, engine.profile)
        with memory_told(engine, OUT_OF_MEMORY):
            return self._ask(way, question, gather, sampling or Sampling(), on_text, decoding)

    def _ask(
        self,
        way: Answering,
        question: str,
        gather: int | None,
        sampling: Sampling,
        on_text: Callable[[str], None],
        decoding: Decoding,
    ) -> Answer:
        clock = _Clock(self._load_s)
        sampling = sampling.over(self.engine.profile.sampling)
        limit = sampling.max_new_tokens or self.engine.profile.max_new_tokens
        asked = Question(*self.engine.prompt.question(question), limit, gather, decoding, question)
        begun = way.begin(asked, lambda: clock.mark("gather_s"))
        prompt, ends = begun.prompt, self.engine.files.eos_ids()
        answer = Generation(
            self.engine.decoder, begun.policy, begun.hidden, prompt, sampling, limit, ends
        )
        answer.on_token = lambda: clock.mark("first_token_s")  # the first time counts
        text, whole = self._text(answer, on_text)
        rate = answer.tokens_per_s
        counts = {"question": len(asked.ids), "answer": answer.count, "dropped": begun.dropped}
        found = self._found(way, question, *begun.found(), counts, clock)
        return Answer(
            **vars(found),
            answer=text,
            stop=answer.stop if whole else INTERRUPTED,
            **decoded(decoding, begun.policy.spent()),
            tokens_per_s=None if rate is None else round(rate, 4),
        )

    def _text(self, answer: Generation, on_text: Callable[[str], None]) -> tuple[str, bool]:
        """The text of an answer, and whether it came to its end; Ctrl-C keeps what there is."""
        pieces: list[str] = []
        try:
            for piece in answer.texts(self.engine.files.tokenizer):
                # A model's answer begins with the space after "Answer:"; the user's does not.
                piece = piece if pieces else piece.lstrip()
                if piece:
                    pieces.append(piece)
                    on_text(piece)
        except KeyboardInterrupt:
            return "".join(pieces).strip(), False
        return "".join(pieces).strip(), True

    def find(self, query: str, gather: int | None = None, gather_by: str | None = None) -> Found:
        """The best passages for a query; nothing is decoded, so they may be more than the window.

        Args:
            query: the user's words.
            gather: tokens to gather; None: the method's.
            gather_by: what they are gathered by; see `ask`.

        Raises:
            UsageError: as `ask`.
            LongctxError: the document's method keeps nothing to search by.
        """
        clock, way = _Clock(self._load_s), self._way_by(gather_by)
        asked = Question(*self.engine.prompt.question(query), gather=gather, words=query)
        found = way.find(asked)
        clock.mark("gather_s")
        counts = {"question": len(asked.ids), "answer": 0, "dropped": 0}
        return self._found(way, query, *found, counts, clock)

    def score(self, query: str, gather_by: str | None = None) -> Scores:
        """The scores of every document token for a query, on the CPU; for `gather_by` see `ask`."""
        asked = Question(*self.engine.prompt.question(query), words=query)
        return self._way_by(gather_by).score(asked)

    def _found(
        self,
        way: Answering,
        question: str,
        scores: Scores,
        chosen: Tensor,
        counts: dict[str, int],
        clock: "_Clock",
    ) -> Found:
        threshold = way.threshold
        best = float(scores.raw.max()) if len(scores.raw) else None
        runs = passages(self.document, chosen, scores.raw)
        return Found(
            question=question,
            found=threshold is None or best is None or best >= threshold,
            documents=[self.document.manifest.name],
            passages=runs,
            tokens={
                "document": self.document.manifest.tokens,
                "gathered": len(chosen),
                **counts,
            },
            timings=clock.timings(),
            state=self._state(way),
        )

    def _state(self, way: Answering) -> dict[str, Any]:
        return {
            "reused_tokens": self.document.manifest.tokens,
            "status": self.document.manifest.status,
            "changed_sources": self.changed,
            "checked_bytes": self.document.checked_bytes,
            "method": way.name,
            "gathered_by": way.gathers_by,
            "model": self.engine.files.name,
            "device": self.engine.device,
            "dtype": dtype_name(self.engine.dtype),
        }


class _Clock:
    """Seconds since a question was asked."""

    def __init__(self, load_s: float):
        self._started = time.perf_counter()
        self._marks = {"load_s": load_s}

    def mark(self, name: str) -> None:
        self._marks.setdefault(name, time.perf_counter() - self._started)

    def timings(self) -> dict[str, float]:
        self.mark("total_s")
        return {name: round(seconds, 4) for name, seconds in self._marks.items()}
