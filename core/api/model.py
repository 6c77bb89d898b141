"""`longctx.Model`: a model in memory, for many documents and questions."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from longctx.core.api.defaults import OWN, usual_answerer, usual_model
from longctx.core.api.running import Running
from longctx.core.common.collection import no_collection
from longctx.core.common.units import parse_bytes

if TYPE_CHECKING:
    from longctx.core.engine.choice import Setup
    from longctx.core.store.facts import Facts


class Model:
    """One model in memory for many documents; and the one that answers, if that is another.

    It is loaded when it is first needed, or by `load`, and stays until `close`, at most as long as
    the context of a `with`. Questions of several threads take turns.

    Args:
        name: "tiny", "small", a folder in Hugging Face format, a GGUF file, or a hub name; None:
            the one that read a document, and for new ones the usual one.
        answers: the model that answers from the passages that are gathered, or "own": the one that
            read the document; None: the usual one, "small" where "tiny" has read it and its weights
            are on this computer.
        profile, answer_profile: a profile's name or YAML file, for each of both.
        method: the reading method of new documents; of one that was read, the way to ask it.
        device: "auto", "cpu", "mps", "cuda" or "cuda:N".
        dtype: "auto", "bf16", "fp16" or "fp32".
        threads: CPU threads; None: as PyTorch chooses.
        devices: several devices with commas between, such as "cuda:0,cuda:1", over which the
            model's layers are split, or "all": every GPU; None: only `device`.
        max_memory: bytes of weights that each of these may hold, or a text such as "40GB"; None:
            any number.
        decode: the decode policy, `NAME` or `NAME:OPTION=VALUE,...`; None: the profile's.
        answer_with: the address of a server of the chat completions protocol, whose model answers
            in place of one here: the passages that are gathered are sent there, and the question.
            Nothing is sent anywhere without it. A key comes from LONGCTX_SERVER_KEY.
        server_model: that model, as the server names it; None: the only one that it has.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        answers: str | None = None,
        profile: str | None = None,
        answer_profile: str | None = None,
        method: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        decode: str | None = None,
        answer_with: str | None = None,
        server_model: str | None = None,
        devices: str | None = None,
        max_memory: int | str | None = None,
    ):
        self.name, self.answers = _expanded(name), _expanded(answers)
        self.profile, self.answer_profile = _expanded(profile), _expanded(answer_profile)
        self.method, self.decode = method, decode
        self.device, self.dtype, self.threads = device, dtype, threads
        self.answer_with, self.server_model = answer_with, server_model
        self.devices = devices
        self.max_memory = parse_bytes(max_memory) if isinstance(max_memory, str) else max_memory
        self._running = Running()

    def __repr__(self) -> str:
        answers = f", answers={self.answers!r}" if self.answers else ""
        answers += f", answer_with={self.answer_with!r}" if self.answer_with else ""
        return f"longctx.Model({self.name!r}{answers}, device={self.device!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def load(self) -> Self:
        """Loads the weights now rather than at the first question.

        Raises:
            UsageError: there is no such model, profile or device.
            LongctxError: it does not fit in memory, or does not run exactly.
        """
        with self._running.turn():
            with no_collection():
                from longctx.core.engine.choice import Setup
                from longctx.core.engine.setup import prepare
            name, answers = self.name or usual_model(self.device), self.answers
            if self.answer_with is not None:
                answers = OWN  # no second model is wanted here
            setup = Setup(name, self.profile, self.method, **self._where())
            engines = [prepare(setup)]
            if answers is None or answers == OWN:
                answers = _beside(name) if answers is self.name is None else None
            if answers is not None:
                engines.append(prepare(Setup(answers, self.answer_profile, **self._where())))
            for engine in engines:
                _ = engine.decoder
        return self

    def close(self) -> None:
        """Lets go of the weights and of all documents opened with them; they are loaded anew."""
        self._running.close()

    def _where(self) -> dict[str, Any]:
        own = ("device", "dtype", "threads", "devices", "max_memory")
        return {name: getattr(self, name) for name in own}

    def _asks(self, manifest: "Facts", gather_by: str | None, finding: bool) -> "Setup":
        """How a document that was read is asked, or searched."""
        from longctx.core.engine.choice import Setup

        setup = Setup(self.name, self.profile, self.method, **self._where())
        if finding:
            return setup
        own = {"decode": self.decode, "answer_profile": self.answer_profile}
        if self.answer_with is not None or self.server_model is not None:
            elsewhere = {"answer_with": self.answer_with, "server_model": self.server_model}
            named = None if self.answers == OWN else self.answers
            return replace(setup, answer_model=named, **elsewhere, **own)
        answers = usual_answerer(
            manifest,
            named=self.answers,
            as_usual=self.name is self.method is self.profile is None,
            gather_by=gather_by,
        )
        return replace(setup, answer_model=answers, **own)


def running(model: Model) -> Running:
    """What documents share of a model in memory; for `core/api` alone."""
    return model._running


def asks(model: Model, manifest: "Facts", gather_by: str | None, finding: bool) -> "Setup":
    """How a model asks a document that was read, or searches it; for `core/api` alone."""
    return model._asks(manifest, gather_by, finding)


def _beside(name: str) -> str | None:
    """The model that usually answers from what another has read; None: that one itself."""
    from longctx.core.api.defaults import BUNDLED
    from longctx.core.model import small

    return small.NAME if name == BUNDLED and small.find_base() else None


def _expanded(path: str | os.PathLike[str] | None) -> str | None:
    """A name, or a path with `~` expanded."""
    return None if path is None else os.path.expanduser(os.fspath(path))
