"""`longctx ask`: answers from a document's state: one question, many with one load, or a prompt."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from longctx.cli import options, pages, render, standard_input
from longctx.cli.answers import Answers
from longctx.cli.asked import Asked, after
from longctx.cli.given_text import STANDARD_INPUT
from longctx.cli.history import History
from longctx.cli.prompt import Prompt
from longctx.cli.questions import from_file, from_stdin
from longctx.core.common.errors import UsageError
from longctx.core.profile.wording import require_text
from longctx.core.retrieve.gather_by import check

EXAMPLES = """\
  longctx ask "Who kept the lighthouse?"
  longctx ask "When did it burn?" --doc log --json
  longctx ask "List the keepers" --temperature 0.7 --seed 1 --stop "The end"
  longctx ask "Who kept the lighthouse?" --doc book --doc letters
  longctx ask "Who kept the lighthouse?" --answer-model ~/models/Qwen2.5-1.5B-Instruct
  longctx ask "Who kept the lighthouse?" --answer-with http://localhost:11434 --server-model qwen3
  longctx ask "Who kept the lighthouse?" --html answer.html
  longctx ask --continue "And who kept it before?"
  cat notes.txt | longctx ask "What is still to be done?" --text -
  longctx ask --questions questions.txt > answers.jsonl
  longctx ask
"""


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
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            metavar="FILE",
            show_default=False,
            help="Text to read and ask in place of a document, and not to keep: a file, a folder "
            "or a pattern; `-` is standard input. May be given several times.",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="NAME",
            show_default=False,
            help="Keep what --text reads as a document of this name, or title in any script; by "
            "default it is deleted at the end.",
        ),
    ] = None,
    continues: Annotated[
        bool,
        typer.Option(
            "--continue",
            "-c",
            show_default=False,
            help="Put the question behind the one before, which it refers to, and ask the same "
            "documents unless others are named; off by default.",
        ),
    ] = False,
    max_docs: options.MaxDocs = 16,
    library: options.LibraryDir = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.AskWith = None,
    device: options.Device = "auto",
    devices: options.Devices = None,
    max_memory: options.MaxMemory = None,
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    answer_model: options.AnswerModel = None,
    answer_profile: options.AnswerProfile = None,
    answer_with: options.AnswerWith = None,
    server_model: options.ServerModel = None,
    gather: options.Gather = None,
    passages: options.Passages = None,
    gather_by: options.GatherBy = None,
    answer_by: options.AnswerBy = None,
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
            "The answer is an exact stretch of the text, as the reader always gives it: the same "
            "as --answer-by point. --no-quote is --answer-by decode.",
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
    anyway: Annotated[
        bool,
        options.setting(
            "--anyway",
            "Print the model's answer also where the text seems to have none (`found` is no), in "
            "place of 'not in the text', and the nearest sentence after these words; off by "
            "default, always with --json.",
        ),
    ] = False,
    questions: Annotated[
        Path | None,
        typer.Option(
            "--questions",
            metavar="FILE",
            help="File of questions: plain text (one a line), .jsonl or .yaml; one JSON line of "
            "output for each.",
        ),
    ] = None,
    history: Annotated[
        bool,
        options.setting(
            "--history/--no-history",
            "Keep the lines typed at the prompt, and the last answer for --continue, in the user's "
            "state folder; on by default at a terminal, never with --json.",
        ),
    ] = True,
    partial: options.Partial = False,
    html: Annotated[Path | None, pages.option("the answers and their passages")] = None,
    json: options.Json = False,
) -> None:
    """Answers questions from one document or several, and cites them.

    The answer comes as it is generated, then the sentence that answers, as `file:line: "sentence"`,
    then the other best passages as `file:line` and text. Everything else goes to standard error.
    Several questions (`-` or --questions) share one load and give one JSON object a line. Without a
    question, a prompt opens that keeps everything loaded; `/help` there lists its commands, Ctrl-D
    ends it.
    """
    many = _questions(question, questions, texts or [])
    answers = Answers(
        asked={
            "gather": gather,
            "passages": passages,
            "gather_by": gather_by,
            "answer_by": answer_by,
            "quote": quote,
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "seed": seed,
            "stop": tuple(stop or ()),
            "anyway": anyway or json or many is not None,
        },
        json=json,
        sources=sources,
    )
    if gather_by is not None:
        check(gather_by)
    asked = Asked(context)
    answers.asked = asked.wishes(answers.asked)
    with ExitStack() as held:
        answers.shown = held.enter_context(pages.of_answers(html))
        last, opened = asked.before(), held.enter_context(asked.library())
        text = held.enter_context(asked.given_text(opened)) if texts else None
        chosen = asked.first(opened, text, last)
        before = last.exchanges if last else ()
        if question is None and many is None:
            typed = History(history and not json)
            Prompt(opened, asked, answers, before, typed).run(chosen)
            raise typer.Exit(text.code if text else 0)
        asked.open(chosen)
        if STANDARD_INPUT not in (question, *(texts or ())) and standard_input.waits():
            render.note("a text waits on standard input and is not read; --text - asks about it")
        if many is not None:
            code = answers.many(chosen, many)
        else:
            assert question is not None  # else there is a prompt
            if before:
                after(before[-1])
            code = answers.one(chosen, question, before)
            asked.keep(answers, chosen, opened)
        raise typer.Exit(code or (text.code if text else 0))


def _questions(question: str | None, file: Path | None, texts: list[str]) -> Iterable[str] | None:
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
    if question == STANDARD_INPUT:
        if STANDARD_INPUT in texts:
            why = "standard input cannot be both the text and the questions"
            raise UsageError("cannot take `-` with --text -", why, "Give a question or a file.")
        return from_stdin()
    if question is None and not render.can_ask():
        raise UsageError(
            "no question",
            "there is no terminal to ask for one",
            "Give one (with --text - for a text that comes in), `-` to read questions from "
            "standard input, or --questions FILE.",
        )
    return None
