"""The options that commands share, each defined once: flag, environment variable, help text.

An option with an environment variable is a setting: the user's config file can set it too, under
the name of its flag. One without is for a single run. A registry's entries are listed without
importing any of its files.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from longctx.cli import amounts, completion
from longctx.cli.program import note_json
from longctx.core.retrieve import gather_by


def told(summaries: dict[str, str]) -> list[str]:
    """A registry's entries, each with its summary."""
    return [f"{name} ({summary})" for name, summary in summaries.items()]


def either(things: list[str]) -> str:
    """Alternatives, worded for a sentence."""
    return f"{', '.join(things[:-1])} or {things[-1]}"


def setting(flag: str, help_text: str, **more: Any) -> typer.models.OptionInfo:
    """An option that also has an environment variable, named after its flag.

    Args:
        flag: `--name`, or `--name/--no-name`.
        help_text: one sentence with the default and the unit.
        **more: passed on to `typer.Option`.
    """
    name = flag.split("/")[0].removeprefix("--").upper().replace("-", "_")
    return typer.Option(flag, envvar=f"LONGCTX_{name}", help=help_text, show_default=False, **more)


def flag(name: str, help_text: str) -> typer.models.OptionInfo:
    """An option without a value, for this run only."""
    return typer.Option(name, help=help_text, show_default=False)


LibraryDir = Annotated[
    Path | None,
    setting(
        "--library",
        "Folder that holds the documents; by default one in the user's data folder.",
        metavar="DIR",
    ),
]
Model = Annotated[
    str | None,
    setting(
        "--model",
        "Model that reads documents and searches them: 'tiny', a folder in Hugging Face format, a "
        "GGUF file, or a hub name (owner/model). It also answers, unless --answer-model names "
        "another. By default the one that read the document, which no other can use: with another, "
        "ingest it again. A new document is read by the bundled 'tiny'; a larger model reads more "
        "slowly (`longctx ingest --dry-run`).",
        metavar="MODEL",
        autocompletion=completion.models,
    ),
]
ModelName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The model, as `longctx model list` names it.",
        autocompletion=completion.shelved,
    ),
]
ProfileName = Annotated[
    str | None,
    setting(
        "--profile",
        "Profile: a name from `longctx profiles` or a YAML file; by default the one made for the "
        "model, else none: heads and sizes are then chosen by rule.",
        metavar="NAME|FILE",
        autocompletion=completion.profiles,
    ),
]
AnswerModel = Annotated[
    str | None,
    setting(
        "--answer-model",
        "Model that answers from the text that is gathered, named as for --model, or 'own': the "
        "one that read the document.",
        metavar="MODEL",
        autocompletion=completion.models,
    ),
]
AnswerProfile = Annotated[
    str | None,
    setting(
        "--answer-profile",
        "Profile of --answer-model, named as for --profile; by default the one made for it.",
        metavar="NAME|FILE",
        autocompletion=completion.profiles,
    ),
]
AnswerWith = Annotated[
    str | None,
    typer.Option(
        "--answer-with",
        metavar="URL",
        show_default=False,
        help="Let another server's model answer (ollama, llama.cpp, vLLM, any of OpenAI's chat "
        "completions protocol): the gathered passages and the question are sent there, and a line "
        "says which before. For this run only; by default nothing leaves this computer.",
    ),
]
ServerModel = Annotated[
    str | None,
    typer.Option(
        "--server-model",
        metavar="NAME",
        show_default=False,
        help="The model of --answer-with, as that server names it; by default its only one.",
    ),
]
Method = Annotated[
    str | None,
    setting(
        "--method",
        f"Reading method: {either(completion.METHODS.names())} (README.md). By default the "
        "profile's.",
        metavar="METHOD",
        autocompletion=completion.methods,
    ),
]
AskWith = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="METHOD",
        show_default=False,
        autocompletion=completion.ways_to_ask,
        help="How to ask a document that was read with --keep-kv: reform gathers and recomputes, "
        "reattention attends to everything that was kept; by default reform.",
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(
        "--kv-dtype",
        metavar="DTYPE",
        show_default=False,
        help="Number format of stored keys and values, for methods that keep them: auto (as "
        "computed), bf16 or int8; by default the profile's, or auto.",
    ),
]
Device = Annotated[
    str,
    setting(
        "--device",
        "Where to compute: auto, cpu, mps, cuda or cuda:N; by default auto: a GPU if there is one.",
        metavar="DEVICE",
    ),
]
Devices = Annotated[
    str | None,
    setting(
        "--devices",
        "Split the model's layers over several devices: cuda:0,cuda:1 or all; chunks are read "
        "through them one behind the other. By default one device.",
        metavar="DEVICES",
    ),
]
MaxMemory = Annotated[
    str | None,
    setting(
        "--max-memory",
        "Most memory for weights on each of --devices (40GB); by default any.",
        metavar="SIZE",
        callback=amounts.of("bytes"),
    ),
]
Dtype = Annotated[
    str,
    setting(
        "--dtype",
        "Number format: auto, bf16, fp16 or fp32 (or bfloat16, float16, float32); by default auto: "
        "bf16 where the device is fast at it, else fp32.",
        metavar="DTYPE",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="PRECISION",
        show_default=False,
        help="Numbers that a chunk's matrix products are computed with while reading: full (as "
        "--dtype says) or fp8, on NVIDIA GPUs of compute capability 8.9 or more; by default full.",
    ),
]
Threads = Annotated[
    int | None,
    setting(
        "--threads",
        "CPU threads; by default PyTorch's choice, but `find` and `ask` use no more than cores are "
        "idle.",
        metavar="N",
    ),
]
Documents = Annotated[
    list[str] | None,
    setting(
        "--doc",
        "Document to search; may be given several times, for documents of one model; by default "
        "the one that was completed last.",
        metavar="NAME",
        autocompletion=completion.documents,
    ),
]
AllDocuments = Annotated[
    bool,
    flag("--all", "Search all documents of the library; off by default."),
]
MaxDocs = Annotated[
    int,
    setting(
        "--max-docs",
        "Most documents that a question is encoded for; of more, those whose passages share its "
        "words are selected. By default 16.",
        metavar="N",
        min=1,
    ),
]
Gather = Annotated[
    int | None,
    setting(
        "--gather",
        "Tokens to gather for each question, of all documents together; by default the profile's "
        "number.",
        metavar="N",
        min=1,
    ),
]
Passages = Annotated[
    int | None,
    setting(
        "--passages",
        "Most passages to answer from, of those that fit --gather; by default all, and 32 for the "
        "reader (64 on a GPU).",
        metavar="N",
        min=1,
    ),
]
GatherBy = Annotated[
    str | None,
    setting(
        "--gather-by",
        f"What passages are chosen by: {either(told(gather_by.summaries()))}. By default the "
        f"profile's, or {gather_by.USUAL}; what is asked by attending to all that was kept is so "
        "without it.",
        metavar="NAME",
        autocompletion=completion.gathered_by,
    ),
]
AnswerBy = Annotated[
    str | None,
    setting(
        "--answer-by",
        "How: point (the reader that comes with longctx points at a stretch of the passages) or "
        "decode (a model reads the passages and writes). By default point where the bundled model "
        "read the documents, else decode; --model, --answer-model, --answer-with and options of "
        "sampling decode.",
        metavar="NAME",
    ),
]
Decode = Annotated[
    str | None,
    setting(
        "--decode",
        "What each token of the answer attends to: "
        f"{either(told(completion.POLICIES.summaries()))}; with options as NAME:OPTION=VALUE,... "
        "(docs/decoding.md). By default the profile's, or dense.",
        metavar="POLICY",
        autocompletion=completion.policies,
    ),
]
Temperature = Annotated[
    float | None,
    setting(
        "--temperature",
        "Sampling temperature; 0 always takes the most likely token. By default the profile's, or "
        "0.",
        metavar="T",
    ),
]
TopP = Annotated[
    float | None,
    setting(
        "--top-p",
        "Probability mass to sample from when the temperature is above 0; by default the "
        "profile's, or 1.",
        metavar="P",
    ),
]
TopK = Annotated[
    int | None,
    setting(
        "--top-k",
        "Number of tokens to sample from when the temperature is above 0; by default the "
        "profile's, or all.",
        metavar="N",
    ),
]
MinP = Annotated[
    float | None,
    setting(
        "--min-p",
        "Lowest probability to sample, as a share of the most likely token's, when the "
        "temperature is above 0; by default the profile's, or 0.",
        metavar="P",
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    setting(
        "--repetition-penalty",
        "Above 1, tokens that already occurred in passages, question or answer become less "
        "likely; by default the profile's, or 1.",
        metavar="R",
    ),
]
Seed = Annotated[
    int | None,
    setting(
        "--seed",
        "Seed that makes a sampled answer repeatable; by default the profile's, or none.",
        metavar="N",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        help="Text before which the answer ends; may be given several times. By default the "
        "profile's.",
        show_default=False,
    ),
]
Partial = Annotated[
    bool,
    setting(
        "--partial",
        "Also use a document whose reading was stopped, up to its last checkpoint; off by default.",
    ),
]
DocumentName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The document, as `list` names it.",
        autocompletion=completion.documents,
    ),
]
DocumentNames = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME",
        help="The documents, as `list` names them.",
        autocompletion=completion.documents,
    ),
]
MaxSize = Annotated[
    str | None,
    setting(
        "--max-size",
        "Largest size of the library on disk, such as 500MB or 20GB; what would exceed it is "
        "refused at the start. By default only the disk limits it.",
        metavar="SIZE",
        callback=amounts.of("bytes"),
    ),
]
Shared = Annotated[
    bool,
    flag(
        "--shared",
        "If this creates the library, let others read it, as far as the umask allows; by default "
        "only its owner can. An existing library keeps the mode of its folder.",
    ),
]
Vectors = Annotated[
    bool,
    setting(
        "--vectors/--no-vectors",
        "Also keep a vector for each passage, so that questions in other words find it; off: "
        "searched by words alone, and read faster. On by default; a document that is there goes on "
        "as it was read.",
    ),
]
Hidden = Annotated[
    bool,
    setting(
        "--hidden",
        "Also read hidden files in folders and archives (a name in their path begins with a dot), "
        "except .git; off by default.",
    ),
]
NoIgnore = Annotated[
    bool,
    setting("--no-ignore", "Also read files that .gitignore excludes; off by default."),
]
Raw = Annotated[
    bool,
    setting(
        "--raw",
        "Read HTML, notebooks, JSON lines and other formats as the text they are written in; off "
        "by default.",
    ),
]
MaxUnpacked = Annotated[
    str | None,
    setting(
        "--max-unpacked",
        "Largest unpacked size of one compressed file or archive, such as 500MB or 20GB; by "
        "default 4GB, and at most 500 times the file's own size.",
        metavar="SIZE",
        callback=amounts.of("bytes"),
    ),
]
ParserMemory = Annotated[
    str | None,
    setting(
        "--max-parser-memory",
        "Memory limit for parsing one file that is not plain text (PDF, book, page, archive), "
        "such as 500MB or 4GB; by default 2GB.",
        metavar="SIZE",
        callback=amounts.of("bytes"),
    ),
]
ParserTime = Annotated[
    str | None,
    setting(
        "--max-parser-time",
        "Time limit for parsing one such file, such as 90s or 10min; by default 2min, and 2 "
        "seconds more for each MB of it.",
        metavar="TIME",
        callback=amounts.of("seconds"),
    ),
]
Json = Annotated[
    bool,
    setting(
        "--json",
        "Print one JSON object on standard output instead of text; off by default.",
        callback=note_json,
        is_eager=True,
    ),
]
