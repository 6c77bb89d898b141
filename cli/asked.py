"""Which documents `ask` asks, and how they are opened: named ones, a given text, those before."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from longctx.cli import exchanges, given_text, render
from longctx.cli.answers import Answers
from longctx.cli.exchanges import LastAnswer
from longctx.cli.given_text import GivenText
from longctx.cli.loading import BUNDLED, with_answerer
from longctx.cli.settings import library_path
from longctx.cli.together import GIVEN, choose_documents, first_manifest, open_documents
from longctx.core.ask.follow_up import Exchange
from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from longctx.core.ask.asking import Asking
    from longctx.core.ask.candidates import Candidates
    from longctx.core.store.document import Document
    from longctx.core.store.manifest import Manifest

READ_AS = ("model", "profile", "device", "dtype", "threads")  # how --text is read
SETUP = (*READ_AS, "method", "decode", "answer_model", "answer_profile")
NOT_WITH_TEXT = ("docs", "everything", "method", "partial")


@dataclass(frozen=True)
class Chosen:
    """Documents to ask.

    Attributes:
        library: the folder of the library that they are in.
        documents: one, or several.
    """

    library: Path
    documents: "Document | Candidates"

    @property
    def manifests(self) -> "Sequence[Manifest]":
        """Those of the documents."""
        from longctx.core.ask.candidates import Candidates

        if isinstance(self.documents, Candidates):
            return self.documents.manifests
        return (self.documents.manifest,)


class Asked:
    """The documents of one run of `ask`, as its options say.

    Args:
        context: the options.

    Raises:
        UsageError: options contradict one another.
    """

    def __init__(self, context: typer.Context):
        self._context, self._given = context, context.params
        self.library = library_path(self._given["library"])
        self._require_fit()

    def _require_fit(self) -> None:
        given = self._given
        if given["keep"] is not None and not given["texts"]:
            raise UsageError("--keep has nothing to keep", "", "Give --text too.")
        typed = [name for name in NOT_WITH_TEXT if given["texts"] and self._is_typed(name)]
        if typed:
            flag = {"docs": "doc", "everything": "all"}.get(typed[0], typed[0])
            why = "a text is asked by itself, as it is read"
            raise UsageError(f"cannot take both --text and --{flag}", why, "Give one of them.")
        if given["continues"] and (given["question"] == "-" or given["questions"]):
            why = "of many questions, none is put behind another"
            raise UsageError("cannot take --continue with many questions", why, "Leave it out.")

    def _is_typed(self, name: str) -> bool:
        source = self._context.get_parameter_source(name)
        return source is not None and source.name == GIVEN

    def given_text(self) -> AbstractContextManager[GivenText]:
        """Reads what --text names; see `given_text.reading`."""
        given = self._given
        choices = {name: given[name] for name in READ_AS}
        return given_text.reading(
            given["texts"], given["keep"], self.library, given["json"], choices
        )

    def before(self) -> LastAnswer | None:
        """The question before, with --continue.

        Raises:
            UsageError: none is kept.
        """
        return exchanges.last_answer() if self._given["continues"] else None

    def first(self, text: GivenText | None, before: LastAnswer | None) -> Chosen:
        """The documents that are asked first: the text, those named, those before, or the latest.

        Raises:
            LongctxError: there is no such document.
        """
        if text is not None:
            from longctx.core.store.library import Library

            return Chosen(text.library, Library.open(text.library).document(text.name))
        docs, everything = self._given["docs"], self._given["everything"]
        if before is not None and not everything and not self._is_typed("docs"):
            exchanges.require_library(before, self.library)
            docs = [*before.documents]
        return self._choose(docs, everything)

    def named(self, names: list[str]) -> Chosen:
        """Documents of the user's library by their names.

        Raises:
            LongctxError: there is no such document.
        """
        return self._choose(names, everything=False)

    def _choose(self, docs: list[str] | None, everything: bool) -> Chosen:
        partial = self._given["partial"]
        found = choose_documents(self._context, self.library, docs, everything, partial)
        return Chosen(self.library, found)

    @contextmanager
    def opened(self, chosen: Chosen) -> "Iterator[Asking]":
        """Opens documents with their model, and tells people what they should know."""
        given = self._given
        gather_by, how = given["gather_by"], (given["partial"], given["max_docs"])
        setup = self._setup(chosen, gather_by)
        library, documents = chosen.library, chosen.documents
        with open_documents(library, documents, *how, gather_by, **setup) as session:
            is_usual = given["answer_model"] is given["model"] is None
            if is_usual and session.engine.answering.files.name == BUNDLED:
                render.note(_how_to_do_better())
            yield session

    def _setup(self, chosen: Chosen, gather_by: str | None) -> dict[str, Any]:
        setup = {name: self._given[name] for name in SETUP}
        return with_answerer(setup, first_manifest(chosen.documents), gather_by)

    def keep(self, answers: Answers, chosen: Chosen) -> None:
        """Keeps the last answer for --continue, unless it is of a text that is not kept."""
        told = answers.last
        if told is None or self._given["json"] or not self._given["history"]:
            return
        if chosen.library == self.library:
            where = str(self.library.absolute())
            exchanges.keep(LastAnswer(where, tuple(told.documents), answers.exchanges()))


def after(exchange: Exchange) -> None:
    """Says which question one is put behind."""
    render.note(f'(after "{render.one_line(exchange.question)}")')


def _how_to_do_better() -> str:
    """What to say of the bundled model, and which command changes that."""
    from longctx.core.model import small

    better = f"--answer-model {small.NAME}" if small.find_base() else f"`{small.PULL}`"
    return f"the answer is by tiny, a small demonstration model; {better} gets a better one"
