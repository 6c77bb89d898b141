"""Which documents `ask` asks, and how they are opened: named ones, a given text, those before."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import typer

from longctx.cli import exchanges, given_text, interface, other_server, progress, render
from longctx.cli.answers import Answers
from longctx.cli.exchanges import LastAnswer
from longctx.cli.given_text import GivenText
from longctx.cli.interface import GIVEN
from longctx.cli.text import counted
from longctx.core.ask.follow_up import Exchange
from longctx.core.common import cores
from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.api.asking import Models, Wishes
    from longctx.core.api.document import Document
    from longctx.core.api.documents import Documents
    from longctx.core.api.library import Library

SAMPLED = ("max_new_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")
NOT_WITH_TEXT = ("docs", "everything", "method", "partial")


class Asked:
    """The documents of one run of `ask`, as its options say.

    Args:
        context: the options.

    Raises:
        UsageError: options contradict one another.
    """

    def __init__(self, context: typer.Context):
        self._context, self._given = context, other_server.fitting(context)
        self._require_fit()

    def library(self) -> "AbstractContextManager[Library]":
        """The user's library, with the models that the options name."""
        given = self._given
        return interface.opened(
            given["library"],
            given["model"],
            answers=given["answer_model"],
            profile=given["profile"],
            answer_profile=given["answer_profile"],
            method=given["method"],
            device=given["device"],
            devices=given["devices"],
            max_memory=given["max_memory"],
            dtype=given["dtype"],
            threads=given["threads"],
            decode=given["decode"],
            answer_with=given["answer_with"],
            server_model=given["server_model"],
        )

    def wishes(self, wishes: "Wishes") -> "Wishes":
        """What is asked for; where a server answers, without settings that are for models here."""
        if self._given["answer_with"] is None:
            return wishes
        dropped: Wishes = {"decode": None, "quote": None, "top_k": None}
        return {**wishes, **dropped, "min_p": None, "repetition_penalty": None}

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

    def given_text(self, library: "Library") -> AbstractContextManager[GivenText]:
        """Reads what --text names; see `given_text.reading`."""
        given = self._given
        return given_text.reading(given["texts"], given["keep"], library, given["json"])

    def before(self) -> LastAnswer | None:
        """The question before, with --continue.

        Raises:
            UsageError: none is kept.
        """
        return exchanges.last_answer() if self._given["continues"] else None

    def first(
        self, library: "Library", text: GivenText | None, before: LastAnswer | None
    ) -> "Document | Documents":
        """The documents that are asked first: the text, those named, those before, or the latest.

        Raises:
            LongctxError: there is no such document.
        """
        if text is not None:
            return text.document
        docs, everything = self._given["docs"], self._given["everything"]
        if before is not None and not everything and not self._is_typed("docs"):
            exchanges.require_library(before, library.path)
            docs = [*before.documents]
        return self._choose(library, docs, everything)

    def named(self, library: "Library", names: list[str]) -> "Document | Documents":
        """Documents of the user's library by their names.

        Raises:
            LongctxError: there is no such document.
        """
        return self._choose(library, names, everything=False)

    def _choose(
        self, library: "Library", docs: list[str] | None, everything: bool
    ) -> "Document | Documents":
        how = self._given["partial"], self._given["max_docs"]
        return interface.choose(self._context, library, docs, everything, *how)

    def open(self, asked: "Document | Documents") -> "Models":
        """Opens documents with their model, and tells people what they should know."""
        from longctx.core.api.asking import named_way

        given, names = self._given, asked.names
        told = names[0] if len(names) == 1 else counted(len(names), "document")
        cores.note()
        answer_by = named_way(given["answer_by"], given["quote"])
        with progress.status(f"opening {told}"):
            models = asked.open(gather_by=given["gather_by"], answer_by=answer_by)
        if models.points:
            self._refuse_sampling()
        return models

    def _refuse_sampling(self) -> None:
        """Refuses what the reader, which writes nothing, cannot do.

        Raises:
            UsageError: an option of sampling is given.
        """
        for name in SAMPLED:
            if self._given[name] is not None:
                flag = f"--{name.replace('_', '-')}"
                why = "the reader points at an answer and writes nothing"
                remedy = "Leave it out, or add --answer-by decode."
                raise UsageError(f"cannot take {flag}", why, remedy)

    def keep(self, answers: Answers, asked: "Document | Documents", library: "Library") -> None:
        """Keeps the last answer for --continue, unless it is of a text that is not kept."""
        told = answers.last
        if told is None or self._given["json"] or not self._given["history"]:
            return
        if asked.library is library:
            where = str(library.path.absolute())
            exchanges.keep(LastAnswer(where, tuple(told.documents), answers.exchanges()))


def after(exchange: Exchange) -> None:
    """Says which question one is put behind."""
    render.note(f'(after "{render.one_line(exchange.question)}")')
