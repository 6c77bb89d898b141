"""`longctx.Library`: a folder of documents, to be read into, asked, listed and deleted from."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from longctx.core.api.asking import Searching, Wishes
from longctx.core.api.defaults import library_folder
from longctx.core.api.document import Document
from longctx.core.api.documents import Documents
from longctx.core.api.ingesting import Ingesting, named
from longctx.core.api.model import Model
from longctx.core.api.opening import MAX_DOCS, Chosen
from longctx.core.api.stream import AnswerStream
from longctx.core.api.told import listed
from longctx.core.ask import candidates
from longctx.core.common.collection import no_collection
from longctx.core.common.errors import NotFound
from longctx.core.store.library import Library as Store

if TYPE_CHECKING:
    from longctx.core.api.passages import Findings
    from longctx.core.ask.answer import Answer
    from longctx.core.store.facts import Facts

TOGETHER = 4  # choices of several documents that are remembered


class Library(Ingesting):
    """A folder of documents.

    Threads may share it. It prints nothing; what people should know goes to `on_note`.

    Args:
        path: the folder; None: LONGCTX_LIBRARY, or one in the user's data folder. It is made when
            something is first read into it.
        model: the model for everything that names none, which whoever made it closes; None, or
            what it is to be called: the library makes one of its own, and closes it.
        on_note: gets sentences such as "book.txt has changed since it was read; ...".

    Attributes:
        path: the folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        model: Model | str | None = None,
        *,
        on_note: Callable[[str], None] | None = None,
    ):
        self.path = library_folder() if path is None else Path(path).expanduser()
        self._note = on_note or (lambda text: None)
        self._lock = threading.RLock()  # of what follows; never held while a model works
        self._named: dict[str | None, Model] = {}
        self._documents: dict[tuple[str, bool, bool], Document] = {}
        self._together: list[Documents] = []  # the latest last
        self._given = model if isinstance(model, Model) else None
        self._usual = None if isinstance(model, Model) else model

    def __repr__(self) -> str:
        return f"longctx.Library({str(self.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of its documents, and of the models that it made."""
        with self._lock:
            opened = [*self._documents.values(), *self._together]
            models = [*self._named.values()]
            self._documents, self._together, self._named = {}, [], {}
        for each in (*opened, *models):
            each.close()

    @property
    def model(self) -> Model:
        """The model for everything that names none."""
        return self._model(None)

    def require(self) -> Self:
        """Refuses a library that is not there; otherwise it is made when it is read into.

        Raises:
            NotFound: there is none yet.
            LongctxError: it cannot be opened.
        """
        self._store()
        return self

    def _store(self) -> Store:
        """What is on disk.

        Raises:
            NotFound: there is no library yet.
            LongctxError: it cannot be opened.
        """
        return Store.open(self.path)

    def documents(self) -> list[Document]:
        """All documents, as `longctx list` shows them; unfinished and damaged ones too.

        There is none while there is no library.

        Raises:
            LongctxError: the library cannot be read.
        """
        if not self.path.exists():
            return []
        return [self._document(known) for known in self._store().facts()]

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents())

    def __len__(self) -> int:
        return len(self.documents())

    def __contains__(self, name: object) -> bool:
        if isinstance(name, Document):
            return name.library.path == self.path and name.folder in self._folders()
        if not isinstance(name, str):
            return False
        with suppress(NotFound):
            return self._store().folder_named(name) in self._folders()
        return False

    def __getitem__(self, name: str) -> Document:
        """A document by its name, even if it is unfinished or damaged.

        Args:
            name: its name, its folder's, or a file that it was made of.

        Raises:
            NotFound: there is none.
            UsageError: several documents are meant.
        """
        store = self._store()
        folder = store.folder_named(name)
        for known in store.facts():
            if known.folder == folder:
                return self._document(known)
        return self.document(name)

    def document(self, name: str | None = None, partial: bool = False) -> Document:
        """A document that can be asked.

        Args:
            name: its name, its folder's, or a file that it was made of; None: the latest.
            partial: of an unfinished document, what its last checkpoint holds.

        Raises:
            NotFound: there is none, or it is not finished.
            UsageError: several documents are meant.
            Locked: another process is writing it.
            StateMismatch: it is damaged.
        """
        from longctx.core.store.shards import FOR_WORDS

        store = self._store()
        folder = store.latest() if name is None else store.folder_named(name)
        manifest = store.document(folder, partial, FOR_WORDS).manifest
        if name is None:
            self._note(f"document: {manifest.name} (the latest)")
        return self._document(store.known(folder, manifest), partial)

    def together(
        self, *names: str | Document, partial: bool = False, max_docs: int = MAX_DOCS
    ) -> Document | Documents:
        """Several documents, to be asked together; a single one, if only one can be.

        Args:
            names: the documents; none: all that can be asked, and `on_note` hears which cannot.
            partial: as of `document`.
            max_docs: the most documents that a question is encoded for.

        Raises:
            LongctxError: as `document`; or there is none.
            StateMismatch: one was read with another model than the first.
        """
        from longctx.core.store.shards import FOR_WORDS

        store, called = self._store(), [named(name) for name in names]
        if len({*called}) == 1:
            return self.document(called[0], partial)
        chosen = (
            candidates.of_names(store, called, partial, FOR_WORDS)
            if called
            else candidates.of_all(store, partial)
        )
        for name, why in chosen.skipped.items():
            self._note(f"{name} is left out: it {why}")
        if len(chosen.manifests) == 1:
            return self.document(chosen.manifests[0].folder, partial)
        asked = Chosen(store, chosen, partial, max_docs)
        with self._lock:
            known = [each for each in self._together if each._is_of(asked)]
            found = known[0] if known else Documents(self, asked, self._model, self._note)
            others = [each for each in self._together if each is not found]
            self._together = [*others[1 - TOGETHER :], found]
        for old in others[: 1 - TOGETHER]:
            old.close()
        return found

    @overload
    def ask(
        self,
        question: str,
        documents: Sequence[str | Document] | None = None,
        *,
        stream: Literal[False] = False,
        **wishes: Unpack[Wishes],
    ) -> "Answer": ...

    @overload
    def ask(
        self,
        question: str,
        documents: Sequence[str | Document] | None = None,
        *,
        stream: Literal[True],
        **wishes: Unpack[Wishes],
    ) -> AnswerStream: ...

    def ask(
        self,
        question: str,
        documents: Sequence[str | Document] | None = None,
        *,
        stream: bool = False,
        **wishes: Unpack[Wishes],
    ) -> "Answer | AnswerStream":
        """Answers a question from several documents.

        Args:
            question: the user's words.
            documents: names, or documents; None: all.
            stream, wishes: as of `Document.ask`.

        Raises:
            LongctxError: as `together` and `Document.ask`.
        """
        asked = self.together(*documents or ())
        return (
            asked.ask(question, stream=True, **wishes) if stream else asked.ask(question, **wishes)
        )

    def find(
        self,
        query: str = "",
        documents: Sequence[str | Document] | None = None,
        **wishes: Unpack[Searching],
    ) -> "Findings":
        """The best passages of several documents; see `Document.find`.

        Args:
            query: what to look for.
            documents: names, or documents; None: all.
            wishes: as of `Document.find`.

        Raises:
            LongctxError: as `together` and `Document.find`.
        """
        return self.together(*documents or ()).find(query, **wishes)

    def remove(self, *names: str | Document) -> None:
        """Deletes documents, finished or not; none, unless all are there and not in use elsewhere.

        Raises:
            NotFound: there is none of a name.
            Locked: another process uses or writes one.
        """
        store = self._store()
        folders = [store.folder_named(named(name)) for name in names]
        self._let_go(folders)
        store.remove(*folders)

    def folder_named(self, name: str) -> str:
        """The name of the folder of the document that is meant; it may be half deleted.

        Args:
            name: as of `library[name]`.

        Raises:
            NotFound: there is none.
            UsageError: several documents are meant.
        """
        return self._store().folder_named(name)

    def _default(self) -> str:
        """The folder's name of the document that is asked where none is named; empty: none."""
        with suppress(NotFound):
            return self._store().latest()
        return ""

    def summaries(self) -> list[dict[str, Any]]:
        """The documents as `longctx list --json` lists them."""
        if not self.path.exists():
            return []
        with no_collection():
            store = self._store()
            known, default = store.facts_and_latest()
            told = [
                listed(facts, store.encoded(facts.folder) if facts.is_draft else None)
                for facts in known
            ]
        for facts, each in zip(known, told, strict=True):
            each["default"] = facts.folder == default
            if each["default"]:
                default = ""  # not a replacement that is still being read
        return told

    def _let_go(self, folders: Sequence[str]) -> None:
        """Closes documents, so that they can be replaced or deleted.

        Args:
            folders: the names of their folders.
        """
        gone = {*folders}
        with self._lock:
            documents = [key for key in self._documents if key[0] in gone]
            opened = [self._documents.pop(key) for key in documents]
            together = [each for each in self._together if each._has(gone)]
            self._together = [each for each in self._together if not each._has(gone)]
        for each in (*opened, *together):
            each.close()

    def _model(self, model: Model | str | None) -> Model:
        """The model that is named; the library's own are made once."""
        if isinstance(model, Model):
            return model
        if model is None and self._given is not None:
            return self._given
        name = self._usual if model is None else model
        with self._lock:
            return self._named.setdefault(name, Model(name))

    def _document(self, known: "Facts", partial: bool = False) -> Document:
        """What is known of a document as one: the one given before, unless it has changed."""
        key = known.folder, known.status == "complete", partial
        with self._lock:
            before = self._documents.get(key)
            if before is not None and before._is_of(known):
                return before
            made = Document(self, known, self._model, self._note, partial)
            self._documents[key] = made
        if before is not None:
            before.close()
        return made

    def _folders(self) -> set[str]:
        return {folder.name for folder in self._store().folders()}
