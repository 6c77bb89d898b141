"""`--report`: one JSON object on a whole run, in a file that appears only when complete.

Written at the end of every run, even one that fails or is interrupted; `contents` gives its fields.
"""

import json
from pathlib import Path
from typing import Any

from longctx.cli.run import Run
from longctx.core.common.distribution import version
from longctx.core.common.outputs import Output

SCHEMA_VERSION = 1
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "triton")
ASKS = 2  # the number of results from which they become a list


def versions() -> dict[str, str | None]:
    """The versions of Python and of the packages that affect results; None: not installed."""
    import platform

    own = {"python": platform.python_version(), "longctx": version()}
    return own | {name: version(name) for name in PACKAGES}


def output(path: Path) -> Output:
    """Where a report goes."""
    return Output(path.expanduser(), "the report ", "Give --report another file.")


def write(path: Path, run: Run, code: int) -> None:
    """Writes the report of a run that ends with an exit code, replacing an older one.

    Raises:
        LongctxError: it cannot be written.
        BrokenPipeError: it goes to standard output, which nobody reads.
    """
    text = json.dumps(contents(run, code), indent=1, default=str, allow_nan=False) + "\n"
    output(path).write(text)


def contents(run: Run, code: int) -> dict[str, Any]:
    """The fields of a report."""
    import platform

    facts = dict(run.facts)
    return {
        "schema_version": SCHEMA_VERSION,
        "command": run.command,
        "arguments": run.arguments,
        "version": version(),
        "versions": versions(),
        "platform": {"system": platform.platform(), "machine": platform.machine()},
        "device": facts.pop("device", None),
        "model": facts.pop("model", None),
        "facts": facts,
        "result": _result(run),
        "timings": {"total_s": round(run.seconds, 3), **run.stages},
        "notes": run.notes,
        "warnings": run.warnings,
        "error": run.error,
        "exit_code": code,
    }


def _result(run: Run) -> dict[str, Any] | None:
    """The object that `--json` prints; if it prints several, all of them under `answers`."""
    if len(run.results) < ASKS:
        return run.results[0] if run.results else None
    return {"answers": run.results}
