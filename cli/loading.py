"""From a command's options to a model ready to run, without the libraries' noise.

Transformers reads the environment when imported, so it is set before; hence nothing here imports
core at module level.
"""

import gc
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.cli import progress, render
from longctx.cli.run import current

DEFAULT = "LONGCTX_DEFAULT_MODEL"
BUNDLED = "tiny"
OWN = "own"  # as --answer-model: the one that read the document
GATHERED, METHOD = "embeddings", "method"  # a group of shards, and a gather source

if TYPE_CHECKING:
    from longctx.core.ask.session import Session
    from longctx.core.engine.choice import Setup
    from longctx.core.store.document import Document
    from longctx.core.store.manifest import Manifest


def make_setup(**choices: Any) -> "Setup":
    """The user's choices about the model; makes transformers quiet and keeps it offline.

    Args:
        **choices: fields of `Setup`.
    """
    choices = expanded(choices)
    with progress.status("starting"):
        _silence(*named_models(choices))
        # Importing makes a million lasting objects; garbage collection among them costs a tenth.
        gc.disable()
        from longctx.core.engine.choice import Setup

        gc.enable()

    return Setup(**choices)


def usual_model(device: str) -> str:
    """The model that reads new documents: the bundled one on a CPU, elsewhere `small`.

    On a CPU the bundled model reads far faster and finds as much, and `small` may answer from what
    it has read (docs/benchmarks/accuracy.md, "Pairs"). Where the weights of `small` are not on this
    computer, the bundled model reads everywhere. LONGCTX_DEFAULT_MODEL names another.

    Args:
        device: as the user names it.
    """
    from longctx.core.model import small

    if named := os.environ.get(DEFAULT):
        return named
    if device == "auto":
        from longctx.core.common.device import choose_device

        device = choose_device()
    return BUNDLED if device == "cpu" or not small.find_base() else small.NAME


def with_answerer(
    choices: dict[str, Any], manifest: "Manifest", gather_by: str | None
) -> dict[str, Any]:
    """The user's choices, with the model that answers where none is named.

    `small` answers from passages of what the bundled model has read, if its weights are here. The
    model that read a document answers itself where its method attends to what was kept, or by its
    own rule (`--gather-by method`), and where the user names a model, or `own`.

    Args:
        choices: fields of `Setup`.
        manifest: of the document, or one of several.
        gather_by: the gather source that the user names.
    """
    from longctx.core.model import small

    named = choices["answer_model"]
    if named is not None:
        return {**choices, "answer_model": None if named == OWN else named}
    gathers = manifest.is_bare or any(shard.group == GATHERED for shard in manifest.shards)
    as_usual = choices["model"] is choices["method"] is choices["profile"] is None
    if not (gathers and as_usual and gather_by != METHOD and manifest.model["name"] == BUNDLED):
        return choices
    return {**choices, "answer_model": small.NAME if small.find_base() else None}


def choose_document(
    library: Path, doc: str | None, partial: bool = False, needed: Collection[str] | None = None
) -> "Document":
    """The document that the user named, or the latest, which is then announced.

    Takes no time, so that a wrong name is reported before a model is loaded.

    Raises:
        LongctxError: there is no such library or document, or it is damaged.
    """
    from longctx.core.store.library import Library

    store = Library.open(library)
    if doc is None:
        document = store.document(store.latest(), partial, needed)
        render.note(f"document: {document.manifest.name} (the latest)")
        return document
    return store.document(store.folder_named(doc), partial, needed)


@contextmanager
def open_session(
    library: Path, document: "Document", partial: bool = False, **choices: Any
) -> "Iterator[Session]":
    """Opens a document with its model, and tells people what they should know.

    The files of both are read from the start, while the model's libraries are imported.

    Args:
        library: the library's folder.
        document: from `choose_document`.
        partial: for an unfinished document, use what its last checkpoint holds.
        **choices: fields of `Setup`.

    Raises:
        LongctxError: as `Session`.
    """
    from longctx.core.common import cores
    from longctx.core.common.read_ahead import ReadAhead
    from longctx.core.common.regular_files import open_regular
    from longctx.core.model.files import weights_to_load
    from longctx.core.store.confined import Confined

    cores.note()
    doc, models = document.manifest.name, named_models(choices)
    folder = document.manifest.folder  # two documents of an older library may have one name
    with ReadAhead() as ahead:
        go_offline(*models)
        answers = models[1] or models[0] or document.manifest.model["name"]
        ahead.warm(weights_to_load(answers), open_regular)
        ahead.warm(document.read_whole(), Confined.open)
        setup = make_setup(**choices)
        from longctx.core.ask.session import Session

        with progress.status(f"opening {doc}"):
            session = Session(library, folder, setup, partial)
    with session:
        manifest = session.document.manifest
        if manifest.status != "complete":
            render.note(f"{doc} is not finished: only its first {manifest.tokens:,} tokens count")
        for source in session.changed:
            name = render.one_line(source)
            render.note(f"{name} has changed since it was read; answers are from what was read")
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


def _silence(*models: str | None) -> None:
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
