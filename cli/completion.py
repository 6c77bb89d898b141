"""Shell completion of names: documents, methods, profiles and so on.

It runs while somebody types, so nothing here imports model libraries, and on any error it offers
nothing. Typer itself completes commands, options and files.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from longctx.cli import settings
from longctx.core.common.errors import LongctxError
from longctx.core.common.registry import Registry

METHODS = Registry("longctx.core.methods", "method")
POLICIES = Registry("longctx.core.decode.policies", "decode policy", "+")


def documents(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the library's documents, unfinished ones included."""
    from longctx.core.store.library import Library

    try:
        library = Library.open(settings.library_path(_library(ctx)))
        return _beginning(incomplete, {facts.name for facts in library.facts()})
    except (LongctxError, OSError):
        return []


def models(incomplete: str) -> list[str]:
    """The bundled model, and the models whose profiles come with the package."""
    from longctx.core.profile.profile import shipped

    return _beginning(incomplete, {name for profile in shipped() for name in profile.models})


def shelved(incomplete: str) -> list[str]:
    """The package's models, and converted files."""
    from longctx.core.model.shelf import shelved

    return _beginning(incomplete, (model.name for model in shelved()))


def pulled(incomplete: str) -> list[str]:
    """The models whose weights can be pulled."""
    from longctx.core.model.published import PUBLISHED

    return _beginning(incomplete, PUBLISHED)


def profiles(incomplete: str) -> list[str]:
    """Names of the profiles that come with the package."""
    from longctx.core.profile.profile import shipped

    return _beginning(incomplete, (profile.name for profile in shipped()))


def methods(incomplete: str) -> list[str]:
    """Reading methods."""
    return _beginning(incomplete, METHODS.names())


def ways_to_ask(incomplete: str) -> list[str]:
    """The ways to ask a document that was read with --keep-kv."""
    return _beginning(incomplete, ("reform", "reattention"))


def policies(incomplete: str) -> list[str]:
    """Decode policies."""
    return _beginning(incomplete, POLICIES.names())


def gathered_by(incomplete: str) -> list[str]:
    """Gather sources."""
    from longctx.core.retrieve import gather_by

    return _beginning(incomplete, gather_by.names())


def measures(incomplete: str) -> list[str]:
    """The measures by which `calibrate` chooses heads."""
    return _beginning(incomplete, ("maxsim", "mnr"))


def _library(ctx: typer.Context) -> Path | None:
    """The library's folder from the options, the environment or the config file."""
    given = ctx.params.get("library")
    if given is not None:
        return Path(given)
    program: Any = ctx.find_root().command
    values: dict[str, Any] = settings.defaults(program.commands)
    for name in ctx.command_path.split()[1:]:
        values = values.get(name, {})
    chosen = values.get("library")
    return None if chosen is None else Path(chosen)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
