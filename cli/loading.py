"""From a command's options to a model ready to run, without the libraries' noise.

Transformers reads the environment when imported, so it is set before; hence nothing here imports
core at module level.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from longctx.cli import progress, render
from longctx.cli.run import current
from longctx.core.common.collection import no_collection

if TYPE_CHECKING:
    from longctx.core.ask.session import Session
    from longctx.core.engine.choice import Setup
    from longctx.core.store.document import Document as Stored
    from longctx.core.store.library import Library as Store


def make_setup(**choices: Any) -> "Setup":
    """The user's choices about the model; makes transformers quiet and keeps it offline.

    Args:
        **choices: fields of `Setup`.
    """
    choices = expanded(choices)
    with progress.status("starting"):
        silence(*named_models(choices))

        with no_collection():
            from longctx.core.engine.choice import Setup

    return Setup(**choices)


@contextmanager
def open_session(document: "Stored", library: "Store", **choices: Any) -> "Iterator[Session]":
    """Opens a document for a measurement, and tells people what they should know.

    Args:
        document: it.
        library: where it is.
        **choices: fields of `Setup`.

    Raises:
        LongctxError: as `Session`.
    """
    from longctx.core.api.opening import Chosen, open_session
    from longctx.core.common import cores
    from longctx.core.engine.choice import Setup
    from longctx.core.store.facts import Facts

    cores.note()
    choices = expanded(choices)
    silence(*named_models(choices))
    with progress.status(f"opening {document.manifest.name}"):
        chosen = Chosen(library, Facts.of(document.manifest))
        session = cast("Session", open_session(chosen, Setup(**choices), None, render.note))
    with session:
        yield session


MODELS = ("model", "answer_model")  # of which one searches, and one may answer


def expanded(choices: dict[str, Any]) -> dict[str, Any]:
    """The user's choices about the model, with `~` expanded."""
    paths = (*MODELS, "profile", "answer_profile")
    return {
        key: os.path.expanduser(value) if key in paths and value else value
        for key, value in choices.items()
    }


def named_models(choices: dict[str, Any]) -> list[str | None]:
    """The model that searches and the one that answers, as the user names them, `~` expanded."""
    known = expanded(choices)
    return [known.get(key) for key in MODELS]


def go_offline(*models: str | None) -> None:
    """Keeps transformers offline, unless a model may be available only online."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if not any(map(_is_hub_name, models)):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")


def silence(*models: str | None) -> None:
    """Makes transformers quiet when it is imported, and keeps it offline, as `go_offline`."""
    go_offline(*models)
    from longctx.core.common import libraries

    libraries.when_imported(_quieted)


def _quieted(transformers: Any) -> None:
    logging = transformers.utils.logging
    logging.disable_progress_bar()
    logging.disable_default_handler()
    logging.enable_propagation()  # to where this run's log goes, if anywhere
    logged = current().verbose or current().log_file or current().report
    (logging.set_verbosity_warning if logged else logging.set_verbosity_error)()


def _is_hub_name(model: str | None) -> bool:
    """Whether it may be available only online: owner/model, and no such folder."""
    return model is not None and model.count("/") == 1 and not Path(model).exists()
