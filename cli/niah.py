"""`longctx niah`: the self-test: is a needle found at every depth of a haystack?"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import options, render
from longctx.cli.loading import make_setup

if TYPE_CHECKING:
    from longctx.core.ingest import Progress
    from longctx.core.niah import Report, Trial

    Tell = Callable[[float, Progress], None]

EXAMPLES = """\
  longctx niah
  longctx niah --length 128K --depths 11
  longctx niah --length 1M --model ~/models/Qwen2.5-7B --json > report.json
"""
MISSED = 1  # exit code


def run(
    length: Annotated[
        str,
        typer.Option(
            "--length",
            metavar="L",
            show_default=False,
            help="Tokens of a haystack: 16000, 16k (= 16,000), 16K (= 16,384), 1M (= 1,048,576); "
            "by default 16k.",
        ),
    ] = "16k",
    depths: Annotated[
        int,
        typer.Option(
            "--depths",
            metavar="N",
            show_default=False,
            help="Depths, evenly spaced from start to end; each has a haystack of its own; by "
            "default 5.",
        ),
    ] = 5,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.Method = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    gather: options.Gather = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            show_default=False,
            help="Decides the needles and the order of the prose; by default 0.",
        ),
    ] = 0,
    json: options.Json = False,
) -> None:
    """Tests whether facts are found at every depth of a long text.

    A pass key and a number are hidden in prose of exactly so many tokens, which is ingested into a
    library of its own and asked like any document. `answered` means that the answer names the
    right number and no other; `gathered` that the whole needle was in the gathered text. The exit
    code is 1 when a question is not answered.
    """
    setup = make_setup(
        model=model, profile=profile, method=method, device=device, dtype=dtype, threads=threads
    )
    from longctx.core.niah import run as run_niah
    from longctx.core.units import parse_tokens

    tokens = parse_tokens(length)
    asked = f"{tokens:,} tokens" if length.isdigit() else f"{length} = {tokens:,} tokens"
    with _progress(asked) as on_progress:
        report = run_niah(setup, tokens, depths, gather, seed, on_progress)
    if json:
        render.print_json(report.as_dict())
    else:
        _show(report, asked)
    if not report.passed:
        raise typer.Exit(MISSED)


@contextmanager
def _progress(asked: str) -> "Iterator[Tell]":
    """Shows the progress of one haystack after another."""
    with ExitStack() as shown:
        current: tuple[float, Callable[[Progress], None]] | None = None

        def tell(depth: float, state: "Progress") -> None:
            nonlocal current
            if current is None or current[0] != depth:
                shown.close()
                render.note(f"depth {depth:.2f} of {asked}")
                current = depth, shown.enter_context(render.progress())
            current[1](state)

        yield tell


def _show(report: "Report", asked: str) -> None:
    answered, gathered = report.counts("answered"), report.counts("gathered")
    kinds = list(answered)
    trials = sorted(report.trials, key=lambda trial: kinds.index(trial.kind))
    headers = ("kind", "depth", "token", "expected", "answer", "answered", "gathered")
    render.table(headers, map(_cells, trials), right=("depth", "token"))
    render.line("")
    counts = "{} of {} answered, {} of {} gathered"
    render.facts(
        [
            *((kind, counts.format(*answered[kind], *gathered[kind])) for kind in kinds),
            ("length", asked),
            ("haystacks", f"{len(report.depths)}, each read once for its {len(kinds)} needles"),
            ("speed", f"{report.tokens_per_s:,.0f} tokens/s"),
            ("model", f"{report.model}, method {report.method}, seed {report.seed}"),
        ]
    )


def _cells(trial: "Trial") -> tuple[str, ...]:
    return (
        trial.kind,
        f"{trial.depth:.2f}",
        f"{trial.token:,}",
        trial.expected,
        trial.answer,
        "yes" if trial.answered else "NO",
        "yes" if trial.gathered else "NO",
    )
