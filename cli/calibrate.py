"""`longctx calibrate`: a profile for a model: the heads that find what a question needs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longctx.cli import (
    amounts,
    calibrate_tables,
    completion,
    options,
    progress,
    render,
    standard_output,
)
from longctx.cli.eval.pace import Pace
from longctx.cli.loading import make_setup
from longctx.cli.measuring import Seed, option
from longctx.cli.run import current
from longctx.core.common.outputs import STANDARD

if TYPE_CHECKING:
    from longctx.core.measure.calibrate.calibration_plan import CalibrationPlan
    from longctx.core.measure.journal import Tell

EXAMPLES = """\
  longctx calibrate tiny --quick
  longctx calibrate ~/models/my-llama --out my-llama.yaml
  longctx calibrate owner/model --samples 100 --json > heads.json
  longctx ingest book.txt --model ~/models/my-llama --profile my-llama.yaml
"""


def run(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=completion.models,
            help="Model: 'tiny', a folder in Hugging Face format, or a hub name (owner/model).",
        ),
    ],
    quick: Annotated[
        bool,
        options.flag(
            "--quick",
            "A quick run: 8 samples of each task and fewer of the rest; minutes on a CPU with the "
            "bundled model. Off by default.",
        ),
    ] = False,
    samples: Annotated[
        int | None,
        option(
            "--samples",
            "N",
            "Texts for each of the two tasks that rank heads; by default 250.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out",
            "PROFILE",
            "Profile to write, a .yaml file, or `-` for standard output; by default one named "
            "after the model, in the current folder. Tables, the heat map and finished "
            "results go beside it in a folder NAME.calibration: the same command resumes after a "
            "stop, also with more samples.",
        ),
    ] = None,
    length: Annotated[
        str,
        option(
            "--length",
            "L",
            "Tokens of a text: 8000, 8k (= 8,000), 8K (= 8,192); by default 8k.",
            callback=amounts.of("tokens"),
        ),
    ] = "8k",
    seed: Seed = 0,
    rank_by: Annotated[
        str,
        typer.Option(
            "--rank-by",
            metavar="MEASURE",
            show_default=False,
            autocompletion=completion.measures,
            help="How REFORM's heads are chosen: maxsim (the rank of the answer's windows by late "
            "interaction, the rule of --gather-by maxsim) or mnr (the mean normalised rank "
            "of its tokens, as in REFORM); by default maxsim. Both are measured, so changing "
            "this takes no time.",
        ),
    ] = "maxsim",
    profile: options.ProfileName = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Finds a model's heads, and writes a profile.

    Finds the heads of REFORM and Ltri-LLM by hiding sentences in the package's own prose. Every
    head is ranked by how well its states find what a question needs (by late interaction and by
    REFORM's own rule), and by how often it attends to what is being copied into an answer.
    Ltri-LLM's thresholds come from a random search (docs/calibration.md).
    """
    setup = make_setup(model=model, profile=profile, device=device, dtype=dtype, threads=threads)
    from longctx.core.common.units import parse_tokens
    from longctx.core.measure.calibrate.calibration import run as calibrate
    from longctx.core.measure.calibrate.calibration_plan import FULL, QUICK, CalibrationPlan

    amounts = QUICK if quick else FULL
    wanted = CalibrationPlan(
        out=_out(model, out),
        printed=out == STANDARD,
        amounts=amounts if samples is None else replace(amounts, samples=samples),
        length=parse_tokens(length),
        seed=seed,
        rank_by=rank_by,
    )
    to_itself = standard_output.given_to("--out -", current()) if wanted.printed else nullcontext()
    with to_itself:
        with _kept(wanted), _told() as tell:
            found = calibrate(setup, wanted, tell)
        if not render.result(found.as_dict(), json):
            calibrate_tables.show(found)
    if not found.retrieval_heads:
        has = "keeps those it had" if found.heads_stay else "has none"
        render.note(f"no retrieval head was found: the profile {has} for the method ltri")


def _out(model: str, out: Path | None) -> Path:
    """The profile's path: as given, or named after the model in the working folder."""
    if out is not None and out != STANDARD:
        return out.expanduser()
    return Path(f"{Path(model).expanduser().resolve().name}.yaml")


@contextmanager
def _told() -> "Iterator[Tell]":
    """Shows the start of the run, then its progress."""
    pace = Pace(first_s=0)
    with ExitStack() as starting:
        starting.enter_context(progress.status("starting"))

        def tell(*told: Any) -> None:
            starting.close()
            pace.tell(*told)

        yield tell


@contextmanager
def _kept(wanted: "CalibrationPlan") -> Iterator[None]:
    """After Ctrl-C, says how to resume, if there are finished results."""
    from longctx.core.measure.journal import has_finished

    try:
        yield
    except KeyboardInterrupt:
        if has_finished(wanted.folder):
            render.note(f"What is finished is in {wanted.folder}. The same command goes on")
        raise
