"""Options that name several things: given several times, or once with commas between them."""

from collections.abc import Iterable


def names(given: Iterable[str]) -> tuple[str, ...]:
    """All names, without those that come again.

    A comma stands between names, and also between a decode policy's options: what follows one and
    has a value but no name (`recycled:budget=2048,stride=25`) belongs to the name before it.
    """
    found: list[str] = []
    for part in (part.strip() for text in given for part in text.split(",")):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        elif part:
            found.append(part)
    return tuple(dict.fromkeys(found))


def tokens(given: Iterable[str]) -> tuple[int, ...]:
    """All numbers of tokens, without those that come again.

    Raises:
        UsageError: something that is none.
    """
    from longctx.core.common.units import parse_tokens

    return tuple(dict.fromkeys(parse_tokens(name) for name in names(given)))
