"""Options that take an amount with a unit: a wrong one is told with the option that has it.

The check is a callback that keeps the text, which whoever uses the amount reads again.
"""

from collections.abc import Callable
from typing import Any

import typer


def of(kind: str, commas: bool = False) -> Callable[..., Any]:
    """The callback of an option.

    Args:
        kind: what it takes, as one of the functions `parse_...` of `core/common/units.py` says.
        commas: whether a text may hold several, with commas between.
    """

    def check(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        from longctx.core.common import units
        from longctx.core.common.errors import UsageError

        option: Any = param  # of a class that Typer's own hints leave out
        texts = [value] if isinstance(value, str) else value or ()
        parts = [part.strip() for text in texts for part in (text.split(",") if commas else [text])]
        for part in filter(None, parts):
            try:
                getattr(units, f"parse_{kind}")(part)
            except UsageError as error:
                why = f"{part!r} {error.why.removeprefix('it ')}. {error.remedy}"
                raise typer.BadParameter(why, ctx=ctx, param=option) from None
        return value

    return check
