"""Chunk and budget of any method, as the user wants them measured."""

from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import MethodOptions

Size = tuple[int | None, int | None]  # chunk and budget, as a user gives them


def sized(
    options: MethodOptions, chunk: int | None = None, budget: int | None = None
) -> MethodOptions:
    """The same options with another chunk and budget; ends that do not fit are made shorter.

    Args:
        options: of any method that reads in chunks.
        chunk, budget: tokens; None: as the other one, or as they are.

    Raises:
        UsageError: the method has no budget, or they do not fit one another.
    """
    try:
        return options.with_reading(options.reading.sized(chunk, budget))
    except ValueError as error:
        raise UsageError(
            f"cannot read with chunk {chunk} and budget {budget}", str(error), "Use other sizes."
        ) from error
