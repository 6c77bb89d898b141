"""`longctx eval babilong`: the facts of a bAbI story, spread through prose."""

from pathlib import Path
from typing import Annotated

import typer

from longctx.cli import measuring, options
from longctx.cli.eval import running
from longctx.cli.loading import make_setup
from longctx.cli.measuring import option
from longctx.core.api.defaults import usual_model

EXAMPLES = """\
  longctx eval babilong tasks/qa1_single-supporting-fact_test.txt
  longctx eval babilong tasks/qa*_test.txt --tasks qa1,qa2,qa5 --lengths 4k,32k --samples 50
  longctx eval babilong tasks/qa*_test.txt --haystack books/ --out babilong --json > report.json
"""


def run(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Stories in the format of the bAbI tasks; a task each."
        ),
    ],
    tasks: Annotated[
        str,
        option(
            "--tasks",
            "NAME,...",
            "Which of the files' tasks, by what their names begin with: qa1, qa2, ...; by "
            "default all.",
        ),
    ] = "all",
    lengths: measuring.Lengths = "4k",
    samples: measuring.Samples = 10,
    seed: measuring.Seed = 0,
    haystack: measuring.Haystack = None,
    out: measuring.Out = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.Method = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    gather: options.Gather = None,
    gather_by: options.GatherBy = None,
    decode: options.Decode = None,
    json: options.Json = False,
) -> None:
    """Runs BABILong: facts of bAbI stories among prose.

    Each sample is a document of its own, filled up to the length: facts in order, spread at random
    places. An answer is right if its first sentence has the right label and no other label of the
    task; of a path, all labels in order.
    """
    setup = make_setup(
        model=model or usual_model(),
        profile=profile,
        method=method,
        decode=decode,
        device=device,
        dtype=dtype,
        threads=threads,
    )
    from longctx.core.measure.eval.babilong import read_all, task
    from longctx.core.measure.eval.evaluation import Evaluation
    from longctx.core.measure.prose import read_prose
    from longctx.core.measure.runner import How

    prose = read_prose(haystack)
    made = {name: task(babi, prose) for name, babi in read_all(files).items()}
    running.evaluate(
        Evaluation(
            suite="babilong",
            tasks=running.chosen(tasks, made, tuple(made), {}),
            prose=prose.text,
            files={path.name: path for path in files},
            lengths=measuring.lengths(lengths),
            samples=samples,
            seed=seed,
        ),
        {},
        setup,
        How(gather, decode, gather_by=gather_by),
        out,
        json,
    )
