"""`longctx ask`: answers from a document's state: one question, many with one load, or a prompt."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import options, render
from longctx.cli.interrupt import INTERRUPTED
from longctx.cli.loading import BUNDLED, with_answerer
from longctx.cli.questions import from_file, from_stdin
from longctx.cli.settings import library_path
from longctx.cli.text import counted
from longctx.cli.together import choose_documents, first_manifest, open_documents
from longctx.core.common.errors import UsageError
from longctx.core.profile.sampling import Sampling
from longctx.core.profile.wording import require_text
from longctx.core.retrieve.gather_by import check

if TYPE_CHECKING:
    from longctx.core.ask.answer import Answer
    from longctx.core.ask.gather import Passage
    from longctx.core.ask.sentence import Sentence

    Ask = Callable[..., Answer]

EXAMPLES = """\
  longctx ask "Who kept the lighthouse?"
  longctx ask "When did it burn?" --doc log --json
  longctx ask "List the keepers" --temperature 0.7 --seed 1 --stop "The end"
  longctx ask "Who kept the lighthouse?" --doc book --doc letters
  longctx ask "Who kept the lighthouse?" --answer-model ~/models/Qwen2.5-1.5B-Instruct
  longctx ask --questions questions.txt > answers.jsonl
  longctx ask
"""
SOURCES = 5  # passages shown after an answer


def run(
    context: typer.Context,
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="QUESTION",
            help="The question; `-` reads one a line from standard input; without one, a prompt "
            "opens.",
            show_default=False,
        ),
    ] = None,
    docs: options.Documents = None,
    everything: options.AllDocuments = False,
    max_docs: options.MaxDocs = 16,
    library: options.LibraryDir = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.AskWith = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    answer_model: options.AnswerModel = None,
    answer_profile: options.AnswerProfile = None,
    gather: options.Gather = None,
    passages: options.Passages = None,
    gather_by: options.GatherBy = None,
    max_new_tokens: Annotated[
        int | None,
        options.setting(
            "--max-new-tokens",
            "Longest answer in tokens; by default the profile's number.",
            metavar="N",
        ),
    ] = None,
    decode: options.Decode = None,
    quote: Annotated[
        bool | None,
        options.setting(
            "--quote/--no-quote",
            "Answer with an exact stretch of the gathered passages, the likeliest one under the "
            "model, or with 'not in the text' where that is likelier; by default the profile's "
            "choice, or free answers. Sampling options have no effect then.",
        ),
    ] = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    sources: Annotated[
        bool,
        options.setting(
            "--sources/--no-sources",
            "Show the sentence that answers and the best passages after the answer; on by default.",
        ),
    ] = True,
    questions: Annotated[
        Path | None,
        typer.Option(
            "--questions",
            metavar="FILE",
            help="File of questions: plain text (one a line), .jsonl or .yaml; one JSON line of "
            "output for each.",
        ),
    ] = None,
    partial: options.Partial = False,
    json: options.Json = False,
) -> None:
    """Answers questions from one document or several, and cites them.

    The answer comes as it is generated, then the sentence that answers, as `file:line: "sentence"`,
    then the other best passages as `file:line` and text. Everything else goes to standard error.
    Several questions (`-` or --questions) share one load and give one JSON object a line. Without a
    question, a prompt opens that keeps everything loaded; Ctrl-D ends it.
    """
    many = _questions(question, questions)
    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=tuple(stop) if stop else None,
    )
    if gather_by is not None:
        check(gather_by)
    place = library_path(library)
    chosen = choose_documents(context, place, docs, everything, partial)
    setup = {
        "model": model,
        "profile": profile,
        "method": method,
        "decode": decode,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "answer_model": answer_model,
        "answer_profile": answer_profile,
    }
    setup = with_answerer(setup, first_manifest(chosen), gather_by)
    with open_documents(place, chosen, partial, max_docs, gather_by, **setup) as session:
        if answer_model is model is None and session.engine.answering.files.name == BUNDLED:
            render.note(_how_to_do_better())

        def ask(words: str, on_text: Callable[[str], None] = lambda text: None) -> "Answer":
            how = {"gather_by": gather_by, "passages": passages, "quote": quote}
            return session.ask(words, gather, sampling, on_text, **how)

        def answer(words: str) -> int:
            return _answer_json(ask, words) if json else _answer(ask, words, sources)

        if many is not None:
            raise typer.Exit(_answer_lines(ask, many))
        if question is not None:
            raise typer.Exit(answer(question))
        _converse(answer)


def _how_to_do_better() -> str:
    """What to say of the bundled model, and which command changes that."""
    from longctx.core.model import small

    better = f"--answer-model {small.NAME}" if small.find_base() else f"`{small.PULL}`"
    return f"the answer is by tiny, a small demonstration model; {better} gets a better one"


def _questions(question: str | None, file: Path | None) -> Iterable[str] | None:
    """Many questions, or None for a single one or the prompt.

    Raises:
        UsageError: there is no source of questions, or there are two.
    """
    if question is not None:
        require_text(question)
    if file is not None:
        if question is not None:
            raise UsageError("cannot take both a question and --questions", "", "Give one of them.")
        return from_file(file.expanduser())
    if question == "-":
        return from_stdin()
    if question is None and not render.can_ask():
        raise UsageError(
            "no question",
            "there is no terminal to ask for one",
            "Give one, `-` to read them from standard input, or --questions FILE.",
        )
    return None


def _answer(ask: "Ask", question: str, sources: bool) -> int:
    """Prints an answer as it is decoded, then its passages.

    Returns:
        The exit code: that of an interruption if Ctrl-C ended the answer, else 0.
    """
    answer = ask(question, on_text=render.stream)
    render.line("")
    render.result(answer.as_dict(), json=False)
    code = _code(answer)
    if code:
        render.note(f"interrupted after {counted(answer.tokens['answer'], 'token')}")
        return code
    render.warn_of_answer(answer)
    if sources:
        _cite(answer)
    return 0


def _cite(answer: "Answer") -> None:
    """Prints the sentence that answers, then the best passages that show more than that."""
    names, first = len(answer.documents) > 1, answer.sentence
    if first is not None:
        render.line("")
        render.sentence(first, name=names)
    others = [passage for passage in answer.passages[:SOURCES] if not _repeats(passage, first)]
    if others:
        render.line("")
        render.passages(others, scores=False, names=names)


def _repeats(passage: "Passage", sentence: "Sentence | None") -> bool:
    """Whether the line by which a passage is shown is part of a sentence that is already."""
    if sentence is None or passage.start >= sentence.end or passage.end <= sentence.start:
        return False
    if (passage.document, passage.source) != (sentence.document, sentence.source):
        return False
    line = " ".join(passage.best_text.split()).lstrip("> ")
    return line in " ".join(sentence.line_text.split())


def _answer_json(ask: "Ask", question: str) -> int:
    """Prints an answer as JSON, even if Ctrl-C ended it; returns as `_answer`."""
    answer = ask(question)
    render.result(answer.as_dict(), json=True)
    return _code(answer)


def _code(answer: "Answer") -> int:
    return INTERRUPTED if answer.interrupted else 0


def _answer_lines(ask: "Ask", questions: Iterable[str]) -> int:
    """One JSON object a line; a question that cannot be asked gives its error instead.

    Returns:
        The exit code: that of the last such error, or 0; Ctrl-C ends the whole run.
    """
    code = 0
    for question in questions:
        try:
            if _answer_json(ask, question):
                return INTERRUPTED
        except UsageError as error:
            code = error.exit_code
            failure = {"code": code, "message": str(error)}
            render.result({"question": question, "error": failure}, json=True)
    return code


def _converse(answer: Callable[[str], int]) -> None:
    """Asks for questions at the terminal until Ctrl-D, or Ctrl-C at the prompt."""
    with suppress(ImportError):  # line editing and history, where the platform has it
        import readline  # noqa: F401 (importing it is enough)
    for question in _typed():
        try:
            answer(question)
        except UsageError as error:
            render.error(f"error: {error}")
        except KeyboardInterrupt:  # ends the answer, not the conversation
            render.note("interrupted")


def _typed() -> Iterator[str]:
    while True:
        try:
            words = _input("? ")
        except EOFError:
            render.note("")
            return
        if words.strip():
            yield words


def _input(prompt: str) -> str:
    # input() writes its prompt to standard output, where only answers belong if it is a file.
    if sys.stdout.isatty():
        return input(prompt)
    render.prompt(prompt)
    return input()
