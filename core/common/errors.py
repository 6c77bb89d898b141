"""All errors that longctx raises on purpose.

    LongctxError         1    the command failed
    ├── UsageError       2    the command, an option or a profile is wrong
    ├── UnreadableInput  3    a source, or part of it, cannot be read as text
    ├── NotFound        10    no such library or document
    ├── Locked          11    another process is using the document
    ├── StateMismatch   13    the state is damaged, or of another model or format
    └── NoAnswer        14    another server gave no answer

The number is the exit code. The command line catches the base class in one place.
"""


class LongctxError(Exception):
    """A failure with the four things a person needs: what, which value, why, what to do.

    Args:
        what: what failed, with the value in question ("cannot read 'a.txt'").
        why: the reason; may be empty if `what` says it all.
        remedy: what to do about it, as a sentence.
    """

    exit_code = 1

    def __init__(self, what: str, why: str | None = "", remedy: str = ""):
        self.what, self.why, self.remedy = what, why or "", remedy
        message = f"{what}: {why}" if why else what
        super().__init__(f"{message}. {remedy}" if remedy else message)

    @property
    def reason(self) -> str:
        """What failed and why, without the remedy."""
        return f"{self.what}: {self.why}" if self.why else self.what


class UsageError(LongctxError):
    """The command, an option or a profile is wrong; nothing was done."""

    exit_code = 2


class UnreadableInput(LongctxError):
    """A source, or part of the input, cannot be read as text."""

    exit_code = 3


class NotFound(LongctxError):
    """No such library or document."""

    exit_code = 10


class Locked(LongctxError):
    """Another process is using the document."""

    exit_code = 11


class NoAnswer(LongctxError):
    """Another server, which was to answer, gave no answer."""

    exit_code = 14


class StateMismatch(LongctxError):
    """The state on disk is damaged, or belongs to another model or format.

    Args:
        what, why, remedy: as of every error.
        document: the folder's name of the document that is damaged; empty: it is not known, or
            none is.
    """

    exit_code = 13

    def __init__(self, what: str, why: str | None = "", remedy: str = "", document: str = ""):
        super().__init__(what, why, remedy)
        self.document = document


# An error in plain values: its exit code, what, why and remedy. Pickle would call the class with
# the whole message alone.
Parts = tuple[int, str, str, str]


def parts_of(error: LongctxError) -> Parts:
    """An error in plain values, for another process."""
    return error.exit_code, error.what, error.why, error.remedy


def of_parts(parts: Parts) -> LongctxError:
    """The error that another process told: of the class above that has its exit code."""
    code, what, why, remedy = parts
    kinds = (UsageError, UnreadableInput, NotFound, Locked, NoAnswer, StateMismatch)
    return {kind.exit_code: kind for kind in kinds}.get(code, LongctxError)(what, why, remedy)
