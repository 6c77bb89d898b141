"""What the program's exit codes mean, for its help and docs/exit-codes.md."""

from longctx.cli.interrupt import INTERRUPTED, TERMINATED
from longctx.core.common.errors import (
    Locked,
    NoAnswer,
    NotFound,
    StateMismatch,
    UnreadableInput,
    UsageError,
)

DONE, FAILED = 0, 1

EXIT_CODES = {
    DONE: "done",
    FAILED: "failed",
    UsageError.exit_code: "wrong usage",
    UnreadableInput.exit_code: "part of the input could not be read as text",
    NotFound.exit_code: "no such library or document",
    Locked.exit_code: "another process is using the document",
    StateMismatch.exit_code: "the state is damaged, or of another model or format",
    NoAnswer.exit_code: "another server gave no answer",
    INTERRUPTED: "interrupted",
    TERMINATED: "terminated",
}
