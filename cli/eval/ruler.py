"""`longctx eval ruler`: RULER's thirteen tasks, on documents of chosen lengths."""

from pathlib import Path
from typing import Annotated

from longctx.cli import measuring, options
from longctx.cli.eval import running
from longctx.cli.loading import make_setup
from longctx.cli.measuring import option
from longctx.core.api.defaults import usual_model

EXAMPLES = """\
  longctx eval ruler --lengths 4k
  longctx eval ruler --lengths 4k,32k,128K --tasks niah_multikey_1,vt --samples 50
  longctx eval ruler --lengths 32k --qa dev-v1.1.json --out ruler-32k --json > report.json
"""


def run(
    tasks: Annotated[
        str,
        option(
            "--tasks",
            "NAME,...",
            "RULER's names: niah_single_1 to 3, niah_multikey_1 to 3, niah_multivalue, "
            "niah_multiquery, vt, cwe, fwe, qa_1, qa_2; by default all for which there are files.",
        ),
    ] = "all",
    lengths: measuring.Lengths = "4k",
    samples: measuring.Samples = 10,
    seed: measuring.Seed = 0,
    qa: Annotated[
        Path | None,
        option(
            "--qa",
            "FILE",
            "Questions for qa_1 (SQuAD in RULER): SQuAD's JSON, or JSON lines with context, "
            "question and answers; without it qa_1 is skipped.",
        ),
    ] = None,
    qa2: Annotated[
        Path | None,
        option(
            "--qa2",
            "FILE",
            "Questions for qa_2 (HotpotQA in RULER) in the same forms; without it qa_2 is skipped.",
        ),
    ] = None,
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
    """Runs RULER's tasks: needles, variables, word counts, questions.

    Each sample is a document of its own, filled up to the length. A score is the share of required
    items that the answer names; for qa tasks, whether it names any right answer. docs/evaluation.md
    lists the differences from the published benchmark.
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
    from longctx.core.measure.eval.evaluation import Evaluation
    from longctx.core.measure.eval.ruler.making import Materials, sample_words
    from longctx.core.measure.eval.ruler.squad import read_squad
    from longctx.core.measure.eval.ruler.tasks import NAMES, QUESTIONS
    from longctx.core.measure.eval.ruler.tasks import tasks as ruler_tasks
    from longctx.core.measure.prose import read_prose
    from longctx.core.measure.runner import How

    paths = {"qa_1": qa, "qa_2": qa2}
    files = {name: read_squad(path) for name, path in paths.items() if path is not None}
    prose = read_prose(haystack)
    made = ruler_tasks(Materials(prose, sample_words()), files)
    absent = {name: f"no {flag} was given" for name, flag in QUESTIONS.items() if name not in made}
    running.evaluate(
        Evaluation(
            suite="ruler",
            tasks=running.chosen(tasks, made, NAMES, absent),
            prose=prose.text,
            files={QUESTIONS[name]: path for name, path in paths.items() if path is not None},
            lengths=measuring.lengths(lengths),
            samples=samples,
            seed=seed,
        ),
        absent if tasks == "all" else {},
        setup,
        How(gather, decode, gather_by=gather_by),
        out,
        json,
    )
