"""What holds for every reading method, from text to an answer, on a small random model."""

import dataclasses
import os
from functools import cached_property
from pathlib import Path

import pytest
import torch

from longctx.core import methods
from longctx.core.ask.answering import Question
from longctx.core.ask.session import Session
from longctx.core.engine.choice import Setup
from longctx.core.ingest.append import append
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.ingest.plan import plan
from longctx.core.retrieve.gather_by import METHOD
from longctx.core.store.library import Library

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(60)]
TEXT = "\n".join(f"{line} — café, 漢字 🙂" for line in LINES).encode()
LONG, SHORT = 900, 330  # bytes; the shorter one fits the model's window, with a question
INSIDE = "a boat came home"  # with the question fewer tokens than any window of the tests' profile
QUESTION = "boat?"
EVERY_CHUNK = Cadence.given(1, None)


class Stopped(BaseException):
    """As Ctrl-C, at a place of our choice."""


def cases() -> list[tuple[str, str | None]]:
    """Every method, also with int8 keys and values where it has the choice."""
    named = [(name, None) for name in methods.names()]
    return named + [(n, "int8") for n, _ in named if methods.load(n).Options.kv_dtype is not None]


class Reading:
    """A document that is read with a method; the whole of it once for all checks.

    Args:
        folder: where readings of other methods may lie too; they share a library.
        setup: of the model.
        method, kv_dtype: as in `Setup`.
    """

    def __init__(self, folder: Path, setup: Setup, method: str, kv_dtype: str | None = None):
        self.setup = dataclasses.replace(setup, method=method, kv_dtype=kv_dtype)
        self.method, self.name = method, f"{method}-{kv_dtype}"
        self.folder, self.library = folder / self.name, folder / "library"
        self.folder.mkdir(exist_ok=True)
        all_wanted = methods.load(method).Method.gather is None
        self.data = TEXT[: SHORT if all_wanted else LONG]

    def file(self, data: bytes, name: str = "app.log") -> str:
        """A file with these bytes; when it was written, the manifest tells."""
        path = self.folder / name
        path.write_bytes(data)
        os.utime(path, (1e9, 1e9))
        return str(path)

    @cached_property
    def whole(self):
        """What is told of reading all of it at once."""
        return ingest(self.library, [self.file(self.data)], self.setup, name=self.name)

    def require_same(self, library: Path) -> None:
        """The document that was read in parts is, byte for byte, the whole one."""
        assert self.whole.status == "complete"
        parts, whole = (_files(path, self.name) for path in (library, self.library))
        assert parts == whole
        assert "manifest.json" in parts

    # --- what is checked ---

    def stops_and_goes_on(self) -> None:
        """Stopped twice and gone on with, it ends with the same bytes."""
        library, source = self.folder / "stopped", [self.file(self.data)]
        for place in (20, 100):

            def stop(progress, place=place):
                if progress.tokens >= place:
                    raise Stopped

            given = {"cadence": EVERY_CHUNK, "on_progress": stop}
            with pytest.raises(Stopped):
                ingest(library, source, self.setup, self.name, **given)
        report = ingest(library, source, self.setup, self.name)
        assert 0 < report.reused_tokens < report.tokens
        self.require_same(library)

    def appends(self) -> None:
        """What is added to it, a byte or many chunks, is read as if it had always been there."""
        library = self.folder / "appended"
        ingest(library, [self.file(self.data[:250])], self.setup, name=self.name)
        for end in (251, len(self.data)):
            done = append(Job(library, [self.file(self.data[:end])], self.setup, self.name))
            assert done.status == "complete"
        self.require_same(library)
        Library.open(library).document(self.name).verify()

    def is_as_planned(self) -> None:
        """It takes what was planned."""
        planned = plan(Job(self.library, [self.file(self.data)], self.setup, self.name))
        assert (planned.tokens, planned.bytes) == (self.whole.tokens, self.whole.bytes)
        assert planned.disk_bytes == pytest.approx(self.whole.state_bytes, rel=0.1, abs=2000)
        assert planned.fits

    def asked(self) -> dict:
        """An answer in this process, and the same once more."""
        assert self.whole.status == "complete"
        with Session(self.library, self.name, self.setup_to_ask) as session:
            first, again = (session.ask(QUESTION).as_dict() for _ in range(2))
        require_same_answer(first, again)
        return first

    @property
    def setup_to_ask(self) -> Setup:
        """The document itself says how it was read."""
        return dataclasses.replace(self.setup, method=None, kv_dtype=None)

    def hidden_inside(self) -> torch.Tensor:
        """What the model makes of a question (1, E) about a document that is in view whole."""
        library = self.folder / "short"
        ingest(library, [self.file(INSIDE.encode(), "short.txt")], self.setup)
        with Session(library, None, self.setup_to_ask) as session:
            question = Question(*session.engine.prompt.question(QUESTION), 8)
            return session._way("", METHOD).begin(question, lambda: None).hidden

    def is_full_attention_inside(self) -> None:
        """A document inside every window is asked as by the model itself.

        What is kept in another form than it is computed in may lose some of it.
        """
        full = Reading(self.folder, self.setup, "full")
        expected, found = full.hidden_inside(), self.hidden_inside()
        exact = self.setup.kv_dtype is None
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if exact else 0.1)


def require_same_answer(one: dict, other: dict) -> None:
    """Two answers of which only the times may differ."""
    for key in ("answer", "passages", "tokens", "attended_per_step"):
        assert one[key] == other[key], key


def _files(library: Path, name: str) -> dict[str, bytes]:
    folder = library / "documents" / Library.open(library).folder_named(name)
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
