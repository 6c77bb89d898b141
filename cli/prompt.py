"""The prompt that `ask` opens: questions and commands, line by line, with all that is loaded."""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from longctx.cli import interrupt, render
from longctx.cli.answers import Answers, cite
from longctx.cli.asked import Asked, after
from longctx.cli.find import tell
from longctx.cli.history import History
from longctx.cli.prompt_completion import Completer
from longctx.cli.text import counted
from longctx.core.ask.follow_up import Exchange, refers_back
from longctx.core.common.errors import LongctxError, NoAnswer, UsageError

if TYPE_CHECKING:
    from longctx.core.api.document import Document
    from longctx.core.api.documents import Documents
    from longctx.core.api.library import Library

HELP = """\
Anything else is a question. One with "he", "it" or "they" and no name before that, or
that begins with "and", or has at most three words, is put behind the question before.

  /continue QUESTION  put any question behind the one before
  /doc NAME ...       ask another document, or several; without a name, list them
  /find WORDS         show passages with these words, without an answer
  /sources            show all passages of the last answer
  /sources on|off     show the best passages after each answer, or no more
  /help               this text
  /quit               leave; so do exit, quit, Ctrl-D, and Ctrl-C twice

Tab completes commands, and names of documents behind /doc."""
LEAVING = ("exit", "quit", "/exit", "/quit")
SIGN = "? "
NAMES = 5  # of several documents that are named in the banner
FOUND = 10  # passages that /find shows
_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


class Prompt:
    """Questions and commands at a terminal, until the user leaves.

    Args:
        library: the user's.
        asked: chooses and opens documents.
        answers: how questions are asked and answers printed.
        before: earlier questions, which the first one may refer to.
        history: the lines typed.
    """

    def __init__(
        self,
        library: "Library",
        asked: Asked,
        answers: Answers,
        before: Sequence[Exchange],
        history: History,
    ):
        self._library = library
        self._asked, self._answers = asked, answers
        self._before, self._history = before, history
        self._commands = {
            "help": lambda words: render.reply(HELP),
            "doc": self._doc,
            "find": self._find,
            "sources": self._sources,
            "continue": self._continue,
        }
        history.completes(Completer([*self._commands, "quit"], self._document_names))

    def run(self, chosen: "Document | Documents") -> None:
        """Asks for lines, and does what they say, until the user leaves.

        Args:
            chosen: the documents to ask first.
        """
        self._open(chosen)
        self._greet()
        for line in self._lines():
            try:
                self._do(line)
            except (UsageError, NoAnswer) as error:
                render.error(f"error: {error}")
            except KeyboardInterrupt as error:  # ends the answer, not the conversation
                if interrupt.code_of(error) == interrupt.TERMINATED:
                    raise
                render.note("interrupted")

    def _lines(self) -> Iterator[str]:
        """What is typed; Ctrl-C clears the line, and where it is empty the second one ends it."""
        pressed = False
        while True:
            try:
                interrupt.go_on()
                line = _input(SIGN).strip()
            except EOFError:
                render.reply("")
                return
            except UnicodeDecodeError:
                render.error("error: the line is not UTF-8 text. Check the terminal's encoding.")
                continue
            except KeyboardInterrupt as error:
                if interrupt.code_of(error) == interrupt.TERMINATED:
                    raise
                render.reply("")
                if pressed and not self._history.typed():
                    interrupt.go_on()
                    return
                pressed = True
                render.note("Ctrl-C again, Ctrl-D or /quit ends it")
                continue
            pressed = False
            if not line:
                continue
            self._history.keep()
            if line.lower() in LEAVING:
                return
            yield line

    def _do(self, line: str) -> None:
        """Does what a line says.

        Raises:
            UsageError: there is no such command, or the question cannot be asked.
        """
        command = _COMMAND.fullmatch(line)
        if command is None:
            self._ask(line, refers_back(line))
            return
        name, words = command[1], (command[2] or "").strip()
        if name not in self._commands:
            raise UsageError(f"there is no command '/{name}'", "", "/help lists them.")
        self._commands[name](words)

    def _ask(self, question: str, continues: bool) -> None:
        before = self._answers.exchanges() or self._before
        if continues and before:
            after(before[-1])
        self._answers.one(self._chosen, question, before if continues else ())
        self._asked.keep(self._answers, self._chosen, self._library)

    def _continue(self, words: str) -> None:
        if not (self._answers.exchanges() or self._before):
            raise UsageError("there is no question before", "", "Ask one first.")
        if not words:
            raise UsageError("no question", "", "Write it behind /continue.")
        self._ask(words, continues=True)

    def _find(self, words: str) -> None:
        if not words:
            raise UsageError("no words to look for", "", "Write them behind /find.")
        by = self._answers.asked.get("gather_by")
        found = self._chosen.find(words, k=FOUND, gather_by=by)
        tell(found, files=False, around=0, json=self._answers.json)

    def _sources(self, words: str) -> None:
        if words in ("on", "off"):
            self._answers.sources = words == "on"
            return
        if words:
            raise UsageError(
                f"cannot take {words!r}", "", "Write /sources, and on or off or nothing."
            )
        if self._answers.last is None:
            raise UsageError("there is no answer yet", "", "Ask something first.")
        cite(self._answers.last, None)

    def _doc(self, words: str) -> None:
        """Asks other documents from now on, or lists them; where that fails, the old ones stay."""
        if not words:
            self._list()
            return
        try:
            names = shlex.split(words)
        except ValueError as error:
            raise UsageError(
                f"cannot read {words!r}", str(error), "Close the quotation."
            ) from error
        before = self._chosen
        try:
            chosen = self._asked.named(self._library, names)
            before.close()  # two models may not have room
            try:
                self._open(chosen)
            except BaseException:  # Ctrl-C too
                self._open(before)
                raise
        except LongctxError as error:
            render.error(f"error: {error}")
            return
        self._answers.last, self._before = None, ()
        self._greet()

    def _open(self, chosen: "Document | Documents") -> None:
        self._models = self._asked.open(chosen)
        self._chosen = chosen

    def _list(self) -> None:
        """The documents of the library, those that are asked with a star."""
        for document in self._library.documents():
            star = "*" if document.name in self._chosen.names else " "
            more = "" if document.status == "complete" else f", {document.status}"
            name = render.one_line(document.name)
            render.reply(f"{star} {name}: {counted(document.tokens, 'token')}{more}")

    def _document_names(self) -> list[str]:
        """Names of the library's documents."""
        return [document.name for document in self._library.documents()]

    def _greet(self) -> None:
        """The banner: what is asked, and which models do it."""
        asked, models = self._chosen.names, self._models
        reads, answers = models.searches, models.answers
        names = ", ".join(map(render.one_line, asked[:NAMES]))
        names += f" and {len(asked) - NAMES:,} more" if len(asked) > NAMES else ""
        tokens = counted(self._chosen.tokens, "token")
        by = f"read by {reads}" + (f", {answers} answers" if answers != reads else "")
        render.note(f"{names}: {tokens}, {by}")
        render.note("/help lists the commands, Ctrl-D ends it")


def _input(sign: str) -> str:
    # input() writes its prompt to standard output, where only answers belong if it is a file.
    if sys.stdout.isatty():
        return input(sign)
    render.prompt(sign)
    return input()
