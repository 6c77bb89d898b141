"""What can be asked: one document, or several together."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypedDict, Unpack, overload
from weakref import WeakSet

from longctx.core.api.defaults import pointed_at
from longctx.core.api.model import Model, asks, running
from longctx.core.api.opening import Chosen, open_session
from longctx.core.api.stream import AnswerStream
from longctx.core.ask.candidates import Candidates
from longctx.core.common.collection import no_collection
from longctx.core.common.errors import UsageError
from longctx.core.profile.wording import require_text
from longctx.core.retrieve.gather_by import METHOD, USUAL, WORDS, check, embeddings, vectors
from longctx.core.store.catalogue import MANY

if TYPE_CHECKING:
    from longctx.core.api.passages import Findings
    from longctx.core.api.words_alone import Opened
    from longctx.core.ask.answer import Answer
    from longctx.core.ask.asking import Asking
    from longctx.core.ask.based import Based
    from longctx.core.ask.follow_up import Exchange
    from longctx.core.ask.server.messages import Sent
    from longctx.core.profile.sampling import Sampling
    from longctx.core.report.answers import Shown
    from longctx.core.report.strip import Strip


class Wishes(TypedDict, total=False):
    """What `ask` takes besides the question; its docstring says what each means."""

    gather: int | None
    passages: int | None
    gather_by: str | None
    answer_by: str | None
    decode: str | None
    quote: bool | None
    max_new_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    seed: int | None
    stop: Sequence[str]
    before: "Sequence[Exchange]"
    anyway: bool
    model: Model | str | None
    on_text: Callable[[str], None] | None
    on_sending: "Callable[[Sent], None] | None"
    on_shown: "Callable[[Shown], None] | None"


class Searching(TypedDict, total=False):
    """What `find` takes besides the query; its docstring says what each means."""

    k: int
    gather_by: str | None
    regexp: str | None
    gather: int | None
    files: bool
    around: int
    model: Model | str | None


POINT, DECODE = "point", "decode"  # ways to answer


def named_way(answer_by: str | None, quote: bool | None) -> str | None:
    """The way to answer that is named by `answer_by`, or by `quote`; None: neither names one.

    Raises:
        UsageError: they name different ones.
    """
    if quote is None:
        return answer_by
    named, flag = (POINT, "--quote") if quote else (DECODE, "--no-quote")
    if answer_by not in (None, named):
        why = "the reader quotes, and a model that writes does not"
        what = f"cannot take {flag} with --answer-by {answer_by}"
        raise UsageError(what, why, "Leave one of them out.")
    return named


class Models(NamedTuple):
    """The names of what is loaded: the model that searches, and what answers.

    Attributes:
        points: the reader answers.
    """

    searches: str
    answers: str
    points: bool = False


class Askable(ABC):
    """One document or several, opened at the first question and open until `close`.

    While it is open, nobody can delete or replace it, in other processes either. Threads may share
    it: their questions take turns.
    """

    def __init__(self, model: Callable[[Model | str | None], Model], note: Callable[[str], None]):
        self._model, self._noted = model, note
        self._lock = threading.RLock()  # of what is opened without a model
        self._held, self._words = ExitStack(), None
        self._used: WeakSet[Model] = WeakSet()
        self._told: set[str] = set()

    @abstractmethod
    def _chosen(self) -> Chosen:
        """The documents."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of what is open; a later question opens it again."""
        for model in [*self._used]:
            with running(model).turn():
                running(model).let_go(self)
        self._used.clear()
        with self._lock:
            self._words = None
            self._held.close()
            self._told.clear()

    def open(
        self,
        *,
        gather_by: str | None = None,
        answer_by: str | None = None,
        model: Model | str | None = None,
    ) -> Models:
        """Opens it with what answers now, rather than at the first question.

        Args:
            gather_by, answer_by, model: as of `ask`.

        Raises:
            LongctxError: as `ask`.
        """
        chosen = self._model(model)
        if self._points(chosen, gather_by, answer_by, {}):
            return self._open_reader(chosen)
        with running(chosen).turn():
            session = self._session(chosen, gather_by, finding=False)
            engine, server = session.engine, session.server
            elsewhere = server and (server.model or server.origin)
            return Models(engine.files.name, elsewhere or engine.answering.files.name)

    @overload
    def ask(
        self, question: str, *, stream: Literal[False] = False, **wishes: "Unpack[Wishes]"
    ) -> "Answer": ...

    @overload
    def ask(
        self, question: str, *, stream: Literal[True], **wishes: "Unpack[Wishes]"
    ) -> AnswerStream: ...

    def ask(
        self,
        question: str,
        *,
        stream: bool = False,
        gather: int | None = None,
        passages: int | None = None,
        gather_by: str | None = None,
        answer_by: str | None = None,
        decode: str | None = None,
        quote: bool | None = None,
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: Sequence[str] = (),
        before: "Sequence[Exchange]" = (),
        anyway: bool = True,
        model: Model | str | None = None,
        on_text: Callable[[str], None] | None = None,
        on_sending: "Callable[[Sent], None] | None" = None,
        on_shown: "Callable[[Shown], None] | None" = None,
    ) -> "Answer | AnswerStream":
        """Answers a question, and cites.

        Ctrl-C during decoding ends the answer; what there is of it is returned.

        Args:
            question: the user's words.
            stream: give the pieces of the answer as they are decoded; what goes wrong, except in
                these arguments, is raised where they are taken.
            gather: tokens of text to answer from; None: the profile's number, or the method's.
            passages: the most passages to answer from; None: as many as fit.
            gather_by: "hybrid", "bm25", "dense", "maxsim", "method" or "reader"; None: the usual.
            answer_by: "point": the reader points at a stretch of the passages; "decode": a model
                reads them and writes; None: the reader, where the bundled model read the documents
                and nothing is asked for that only a model that writes can do.
            decode: the decode policy, `NAME` or `NAME:OPTION=VALUE,...`; None: the model's.
            quote: whether the answer must be an exact stretch of the text: true is `answer_by`
                "point", false is "decode".
            max_new_tokens: the longest answer in tokens; None: the profile's number.
            temperature, top_p, top_k, min_p, repetition_penalty, seed: how a model that writes
                samples; None: as the profile says, else the likeliest token. The reader takes the
                likeliest stretch.
            stop: texts that end the answer.
            before: earlier questions and answers that this one refers to.
            anyway: answer also where the text seems to have no answer (`found` is "no"); if false,
                the answer is then "not in the text", and no sentence is given with such an answer.
            model: the model; None: the library's.
            on_text: gets the pieces of the answer as they are decoded, in this thread.
            on_sending: where another server answers, gets what is sent there, before it is.
            on_shown: gets what a page shows of the answer, for `longctx.answers_page`.

        Raises:
            UsageError: an argument does not fit the document or the model.
            NoAnswer: another server was to answer, and does not.
            NotFound: the document is not there, or not finished.
            Locked: another process is writing it.
            StateMismatch: it is damaged, or of another model.
            LongctxError: the model does not fit in memory.
        """
        from longctx.core.profile.sampling import Sampling

        require_text(question)
        if gather_by is not None:
            check(gather_by)
        sampling = Sampling(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            stop=tuple(stop) or None,
        )
        named = self._model(model)
        way = named_way(answer_by, quote)
        if self._points(named, gather_by, way, {"--decode": decode}):
            point = {"most": passages, "tokens": gather, "gather_by": gather_by, "anyway": anyway}
            run = partial(self._point, question, tuple(before), point, named, on_shown)
            return AnswerStream(run) if stream else run(on_text or (lambda text: None))
        how: dict[str, Any] = {"gather": gather, "passages": passages, "gather_by": gather_by}
        how |= {"decode": decode, "before": tuple(before)}
        how["anyway"] = anyway
        if on_sending is not None:
            how["on_sending"] = on_sending
        run = partial(self._ask, question, sampling, how, named, on_shown)
        if stream:
            return AnswerStream(run)
        return run(on_text or (lambda text: None))

    def _ask(
        self,
        question: str,
        sampling: "Sampling",
        how: dict[str, Any],
        model: Model,
        on_shown: "Callable[[Shown], None] | None",
        on_text: Callable[[str], None],
    ) -> "Answer":
        with running(model).turn():
            session = self._session(model, how["gather_by"], finding=False)
            found: list[Based] = []
            told = {} if on_shown is None else {"on_based": found.append}
            answer = session.ask(question, sampling=sampling, on_text=on_text, **told, **how)
            if on_shown is not None:
                from longctx.core.report.answers import shown

                on_shown(shown(answer, found[0].documents, found[0].ranked))
            return answer

    def _points(
        self, model: Model, gather_by: str | None, answer_by: str | None, wanted: dict[str, Any]
    ) -> bool:
        """Whether the reader answers, rather than a model that writes.

        Args:
            model: as the user names it.
            gather_by, answer_by: as of `ask`.
            wanted: by its option, what only a model that writes can do; None: not asked for.

        Raises:
            UsageError: `answer_by` is unknown, or does not fit what else is asked for.
        """
        if answer_by not in (None, POINT, DECODE):
            remedy = f"Use {POINT} or {DECODE}."
            raise UsageError(f"unknown way to answer {answer_by!r}", "", remedy)
        given = [option for option, value in wanted.items() if value is not None]
        elsewhere = model.answers or model.answer_with or model.server_model
        if answer_by == POINT:
            if elsewhere:
                given = ["--answer-model" if model.answers else "--answer-with", *given]
            if given:
                why = "the reader points at an answer and writes nothing"
                raise UsageError(f"cannot take {given[0]} with --answer-by {POINT}", why, "")
            return True
        if answer_by == DECODE or given or elsewhere or model.decode or model.name or model.profile:
            return False
        usual = model.method is None and gather_by != METHOD
        return usual and all(map(pointed_at, self._chosen().manifests))

    def _point(
        self,
        question: str,
        before: "tuple[Exchange, ...]",
        how: dict[str, Any],
        model: Model,
        on_shown: "Callable[[Shown], None] | None",
        on_text: Callable[[str], None],
    ) -> "Answer":
        """The answer that the reader points at."""
        from longctx.core.api.pointing import Pointing

        pointing = Pointing(question, before, model.device, model.threads, **how)
        source = self._without_model(model, how["gather_by"], question)
        if source is not None:
            with self._lock:
                opened = self._for_words()
                answer, found = opened.without_damaged(
                    lambda: pointing.by_stored(opened, source, on_text)
                )
        else:
            with running(model).turn():
                session = self._session(model, how["gather_by"], finding=True)
                answer, found = session.without_damaged(lambda: pointing.by_model(session, on_text))
        if on_shown is not None:
            from longctx.core.report.answers import shown

            on_shown(shown(answer, found.documents, found.ranked))
        return answer

    def _open_reader(self, model: Model) -> Models:
        """Opens the documents without a model, and the reader."""
        from longctx.core.api.pointing import prepared

        with self._lock:
            searches = self._for_words().facts[0].model["name"]
        return Models(searches, prepared(model.device, model.threads), points=True)

    def find(
        self,
        query: str = "",
        *,
        k: int = 10,
        gather_by: str | None = None,
        regexp: str | None = None,
        gather: int | None = None,
        files: bool = False,
        around: int = 0,
        model: Model | str | None = None,
    ) -> "Findings":
        """The best passages for words, or the lines that match a regular expression.

        No model is loaded where words alone decide.

        Args:
            query: what to look for, in any words; of text in "...", only passages that have it
                exactly are found (`exact`), or the nearest where none has. May be empty where
                there is `regexp`.
            k: the most passages.
            gather_by: as of `ask`; "bm25" needs no model.
            regexp: only lines that match it.
            gather: the most tokens of all passages together, except that the first always counts.
            files: one passage from each file is enough.
            around: lines before and behind each matching one that are wanted too.
            model: as of `ask`.

        Raises:
            UsageError: there is nothing to look for, or an argument is wrong.
            LongctxError: as `ask`.
        """
        from longctx.core.api.searching import Search
        from longctx.core.passages.line_filter import LineFilter

        if gather_by is not None:
            check(gather_by)
        if not query.strip() and regexp is None:
            raise UsageError("the query is empty", "", "Say what to look for, or give --regexp.")
        if k < 1:
            raise UsageError(f"cannot find {k} passages", "", "Ask for 1 or more.")
        require_text(query)
        lines = None if regexp is None else LineFilter(regexp)
        search, named = Search(query, lines, k, gather, files, around), self._model(model)
        if source := self._without_model(named, gather_by, query):
            with self._lock:
                with no_collection():
                    opened = self._for_words()
                # A pattern is looked for in all text, which takes long, and others' garbage waits.
                with nullcontext() if lines else no_collection():
                    return opened.without_damaged(lambda: search.by_stored(opened, source))
        with running(named).turn():
            session = self._session(named, gather_by, finding=True)
            return session.without_damaged(lambda: search.by_model(session, gather_by))

    def strip(
        self,
        query: str = "",
        bins: int = 200,
        *,
        gather_by: str | None = None,
        model: Model | str | None = None,
    ) -> "Strip":
        """Where in the text the scores of a query lie, from 0 to 1.

        Args:
            query: what to look for; empty: only the sources with their bytes, without bins.
            bins: equal parts of the text, of which each shows its best score; at most 2,000.
            gather_by, model: as of `ask`.

        Raises:
            UsageError: an argument is wrong.
            LongctxError: as `ask`.
        """
        from longctx.core.report.strip import outline, strip

        def of_stored(source: str) -> "Strip":
            return strip(opened.ranked(query, source), opened.documents, bins)

        def of_model() -> "Strip":
            looked = session.look(query, gather_by)
            return strip(looked.ranked, looked.documents, bins)

        if gather_by is not None:
            check(gather_by)
        named = self._model(model)
        if not query.strip():
            with self._lock:
                return outline(self._for_words().documents)
        require_text(query)
        if source := self._without_model(named, gather_by, query):
            with self._lock:
                opened = self._for_words()
                return opened.without_damaged(lambda: of_stored(source))
        with running(named).turn():
            session = self._session(named, gather_by, finding=True)
            return session.without_damaged(of_model)

    def _without_model(self, model: Model, gather_by: str | None, query: str) -> str | None:
        """The gather source, if stored words and vectors are all it needs; None: a model is."""
        if not query.strip():
            return WORDS
        if model.method is not None:
            return None
        manifests = self._chosen().manifests
        many = len(manifests) >= MANY
        if many and gather_by is None:
            self._note(
                f"{len(manifests):,} documents are searched by words alone (bm25); --gather-by "
                "hybrid also compares the meaning of some of them"
            )
            return WORDS
        if model.profile is not None and gather_by is None:
            return None
        none_have = not any(manifest.has_vectors for manifest in manifests)
        named = gather_by or self._recorded_source()
        if gather_by is None and vectors(named) == "used" and none_have:
            return WORDS
        if named == METHOD or embeddings(named) or (many and vectors(named) != "unused"):
            return None
        return named

    def _recorded_source(self) -> str:
        """The gather source of the documents' profiles; the usual one where they differ."""
        from longctx.core.engine.choice import recorded

        with self._lock:
            manifests = [document.manifest for document in self._for_words().documents]
        profiles = [recorded(manifest).profile for manifest in manifests]
        named = {own.get("gather_by", USUAL) for own in profiles if isinstance(own, dict)}
        return named.pop() if len(named) == 1 else USUAL

    def _session(self, model: Model, gather_by: str | None, finding: bool) -> "Asking":
        """What is asked, open with a model; inside its turn."""
        chosen = self._chosen()
        setup = asks(model, finding)
        self._used.add(model)
        opened = partial(open_session, chosen, setup, gather_by, self._note)
        return running(model).session(self, setup, finding, opened)

    def _for_words(self) -> "Opened":
        """What is read without a model, open; under the lock."""
        from longctx.core.api.words_alone import open_for_words

        if self._words is None:
            chosen = self._chosen()
            several = chosen.documents
            if isinstance(several, Candidates) and not several.named and len(several) >= MANY:
                from longctx.core.api.words_of_many import open_many

                opening = open_many(several, self._note)
            else:
                opening = open_for_words(chosen, self._note)
            self._words = self._held.enter_context(opening)
        return self._words

    def _note(self, text: str) -> None:
        """Tells what people should know, once."""
        if text not in self._told:
            self._told.add(text)
            self._noted(text)
