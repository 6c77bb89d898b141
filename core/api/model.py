"""`longctx.Model`: a model in memory, for many documents and questions."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from longctx.core.api.defaults import OWN, usual_model
from longctx.core.api.running import Running
from longctx.core.common.collection import no_collection
from longctx.core.common.units import parse_bytes

if TYPE_CHECKING:
    from longctx.core.engine.choice import Setup


class Model:
    """One model in memory for many documents; and the one that answers, if that is another.

    It is loaded when it is first needed, or by `load`, and stays until `close`, at most as long as
    the context of a `with`. Questions of several threads take turns.

    Args:
        name: "tiny", a folder in Hugging Face format, a GGUF file, or a hub name; None: the one
            that read a document, and for new ones the usual one.
        answers: the model that answers from the passages that are gathered; None or "own": the one
            that read the document.
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
            name = self.name or usual_model()
            engines = [prepare(Setup(name, self.profile, self.method, **self._where()))]
            if self._answerer() is not None and self.answer_with is None:
                setup = Setup(self._answerer(), self.answer_profile, **self._where())
                engines.append(prepare(setup))
            for engine in engines:
                _ = engine.decoder
        return self

    def close(self) -> None:
        """Lets go of the weights and of all documents opened with them; they are loaded anew."""
        self._running.close()

    def _where(self) -> dict[str, Any]:
        own = ("device", "dtype", "threads", "devices", "max_memory")
        return {name: getattr(self, name) for name in own}

    def _answerer(self) -> str | None:
        """The model that answers; None: the one that read the document."""
        return None if self.answers == OWN else self.answers

    def _asks(self, finding: bool) -> "Setup":
        """How a document that was read is asked, or searched."""
        from longctx.core.engine.choice import Setup

        setup = Setup(self.name, self.profile, self.method, **self._where())
        if finding:
            return setup
        return replace(
            setup,
            answer_model=self._answerer(),
            answer_profile=self.answer_profile,
            answer_with=self.answer_with,
            server_model=self.server_model,
            decode=self.decode,
        )


def running(model: Model) -> Running:
    """What documents share of a model in memory; for `core/api` alone."""
    return model._running


def asks(model: Model, finding: bool) -> "Setup":
    """How a model asks a document that was read, or searches it; for `core/api` alone."""
    return model._asks(finding)


def _expanded(path: str | os.PathLike[str] | None) -> str | None:
    """A name, or a path with `~` expanded."""
    return None if path is None else os.path.expanduser(os.fspath(path))
