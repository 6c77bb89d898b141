"""This run of the program: the values of the common options, and the results so far.

There is one at a time; printing and reporting code asks `current`. Imports nothing of ours and
nothing heavy, since it exists before the command line is read.
"""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

FLAG, VARIABLE, FILE = 3, 2, 1  # where an option's value came from; the greatest takes precedence


class Form(StrEnum):
    """How progress is shown."""

    BAR = "bar"
    JSON = "json"
    NONE = "none"


@dataclass
class Run:
    """How this run prints, and what it will report.

    Attributes:
        json: results and errors as JSON objects.
        debug: errors with a traceback.
        quiet: nothing but the result and errors.
        verbose: 0, or 1 for what is done, or 2 for all details.
        log_file: where the full log goes.
        report: where the report goes.
        progress: how progress is shown; None: as `quiet` says.
        command, arguments: what was run, once known.
        results: the objects that `--json` prints.
        notes: messages to people beside the result.
        warnings: warnings of other libraries.
        facts, stages: the log's machine-readable facts; seconds by stage.
        error: code and message.
    """

    json: bool = False
    debug: bool = False
    quiet: bool = False
    verbose: int = 0
    log_file: Path | None = None
    report: Path | None = None
    progress: Form | None = None
    command: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    _ranks: dict[str, int] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def choose(self, name: str, value: Any, rank: int) -> None:
        """Notes an option's value, unless a value of higher rank is already noted.

        It can come from before or after the command, the environment, or the config file.
        """
        if rank >= self._ranks.get(name, 0):
            self._ranks[name] = rank
            setattr(self, name, value)

    @property
    def form(self) -> Form:
        """How progress is shown."""
        return self.progress or (Form.NONE if self.quiet else Form.BAR)

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began


_run = Run()


def current() -> Run:
    """The current run."""
    return _run


def start(run: Run) -> Run:
    """Makes a run the current one."""
    global _run
    _run = run
    return run
