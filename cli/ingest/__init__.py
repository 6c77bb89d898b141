"""`longctx ingest`: reads a document once and keeps its state."""

from functools import partial
from typing import Annotated

import typer

from longctx.cli import amounts, completion, interface, options, progress
from longctx.cli.ingest import observe, results
from longctx.cli.ingest.given import require_fit, says_how_to_read, understood
from longctx.cli.ingest.stop import stoppable

EXAMPLES = """\
  longctx ingest book.txt
  longctx ingest part1.txt part2.pdf --name novel
  longctx ingest src/ "docs/**/*.md" --name project
  longctx ingest src/ --name code
  longctx ingest letters/ --each
  longctx ingest letters/ --each --workers 4 --threads 1
  longctx ingest /shared/letters --each --ray auto --library /shared/library
  zcat log.gz | longctx ingest - --name log
  longctx ingest book.txt --model ~/models/Qwen2.5-7B --dry-run
  longctx ingest book.txt --keep-kv --kv-dtype int8
  longctx ingest --append novel part3.txt
  longctx ingest app.log --follow
"""


def run(
    ctx: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Files, folders, archives or patterns (docs/**/*.md) to read; `-` is standard "
            "input.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of the document, in any script; by default that of the first file or "
            "folder.",
            metavar="NAME",
        ),
    ] = None,
    append: Annotated[
        str | None,
        typer.Option(
            "--append",
            autocompletion=completion.documents,
            help="Extend this document, as if all had been read at once: by the growth of its "
            "last source, if the first PATH is that file or begins with its bytes; other "
            "files become further parts.",
            metavar="NAME",
        ),
    ] = None,
    follow: Annotated[
        bool,
        options.flag(
            "--follow",
            "Follow the last PATH, a growing log, until Ctrl-C: new text is appended when it "
            "fills a chunk, or after ten seconds; off by default.",
        ),
    ] = False,
    each: Annotated[
        bool,
        options.flag(
            "--each",
            "Make one document of every file, named after its path, and continue past failures; "
            "off by default.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        options.setting(
            "--workers",
            "With --each: processes that read at the same time, each with a model of its own and, "
            "of several --devices, one device; by default 1, and with --ray as many as there is "
            "room for.",
            metavar="N",
            min=1,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="With --each: a Ray cluster reads, by one process for each GPU, or for --threads "
            "cores: 'auto' is the one of this host, 'local' one that is started here, else "
            "HOST:PORT. Its hosts share files and library; needs the package ray.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="With --each: read only the I-th of N parts of the files, for N commands, on "
            "several machines too, that share the work; by default all.",
        ),
    ] = None,
    retry: Annotated[
        int,
        typer.Option(
            "--retry",
            metavar="N",
            min=0,
            show_default=False,
            help="With --each: how often a file that failed is tried again; by default 0.",
        ),
    ] = 0,
    units: Annotated[
        bool | None,
        options.flag(
            "--units/--no-units",
            "Read each file by itself, as if no other came before it: the same command then reads "
            "only what is new or changed (of a short folder everything), and drops what is gone; "
            "by default where a PATH is a folder, and as the document was read.",
        ),
    ] = None,
    vectors: options.Vectors = True,
    hidden: options.Hidden = False,
    no_ignore: options.NoIgnore = False,
    raw: options.Raw = False,
    max_unpacked: options.MaxUnpacked = None,
    max_parser_memory: options.ParserMemory = None,
    max_parser_time: options.ParserTime = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.Method = None,
    keep_kv: Annotated[
        bool,
        options.flag(
            "--keep-kv",
            "Read with ReAttention and also keep the keys and values of every token: larger and "
            "slower, but can be asked in either way; off by default.",
        ),
    ] = False,
    kv_dtype: options.KvDtype = None,
    library: options.LibraryDir = None,
    shared: options.Shared = False,
    device: options.Device = "auto",
    devices: options.Devices = None,
    max_memory: options.MaxMemory = None,
    dtype: options.Dtype = "auto",
    precision: options.Precision = None,
    threads: options.Threads = None,
    replace: Annotated[
        bool,
        options.flag(
            "--replace",
            "Replace a document of this name, and begin anew where a reading of something else "
            "was begun; off by default.",
        ),
    ] = False,
    checkpoint: Annotated[
        str | None,
        options.setting(
            "--checkpoint",
            "How often to write a checkpoint: a number of tokens (64k) or a time (90s); by "
            "default 256K tokens or 60s, whichever comes first.",
            metavar="TOKENS|TIME",
            callback=amounts.of("tokens_or_seconds"),
        ),
    ] = None,
    max_size: options.MaxSize = None,
    dry_run: Annotated[
        bool,
        options.flag("--dry-run", "Estimate tokens, disk, memory and time, and store nothing."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Reads a document once and keeps its state.

    Several files become one document. In folders, .gitignore files are respected, and non-text
    files are skipped and listed; docs/sources.md lists the formats. Text is read as a stream, so
    only the disk limits its length. Progress is shown on standard error; the result goes to
    standard output. Ctrl-C and `kill` save what was read. The same command resumes a reading that
    was stopped, also by force, from its last checkpoint.

    A document can be asked while it is appended to: it stays as it was until the longer one is
    whole. New text is read with the document's own settings and number format. A source that
    changed in any way but growing is refused, and so is a changed one that was unpacked or
    converted. Of a folder that changed, the same command reads what is new (see --units).
    """
    require_fit(ctx, paths)
    where = {"device": device, "devices": devices, "max_memory": max_memory}
    where |= {"dtype": dtype, "threads": threads}
    choices = {"profile": profile, "method": method, **where}
    with stoppable(json) as stop, interface.opened(library, model, **choices) as opened:
        how = understood(ctx, opened)
        into = {"name": name, "replace": replace, "units": units}
        if dry_run:
            with progress.status("measuring"):
                planned = opened.plan(*paths, **into, **how)
            show = partial(results.show_plan, planned)
        elif each:
            share = {"workers": workers, "shard": shard, "retry": retry, "ray": ray}
            many = observe.read_each(opened, paths, stop, json, replace=replace, **share, **how)
            show = partial(results.show_many, many)
        elif follow:
            wanted = says_how_to_read(ctx)
            done = observe.follow(opened, paths, stop, name=name, as_wanted=wanted, **how)
            show = partial(results.show, done)
        else:
            done = observe.read(opened, paths, stop, append=append, **into, **how)
            show = partial(results.show, done)
    show(json)
