"""What several readers of one command have to do, whoever they are: processes or actors.

The largest file is first, so that none is left alone at the end. What a dead reader had goes to the
next one, which goes on from the checkpoint. A file that another command reads is looked at again
for a while: it may be done by then, or its reader may have died on another host.
"""

import time
from collections import Counter, deque
from dataclasses import replace

from longctx.core.common.errors import Locked, LongctxError
from longctx.core.ingest.job import Job, Observer, Progress
from longctx.core.ingest.many import Each, Failed, Outcome, named_sources
from longctx.core.ingest.overall import Tally
from longctx.core.store.claims import STALE

KILLS = 3  # readers that may die over one document before it counts as failed
PATIENCE = 2 * STALE  # seconds for which a file that another command reads is tried again
PAUSE = 2.0  # seconds between two tries


class Docket:
    """The files that are to be read, in order, and what becomes of each.

    Args:
        job: what is read and how.
        retry: how often a file that failed is tried again.
        observer: hears about progress, and about each file with text.
        result: filled as files are done.

    Raises:
        as `named_sources`.
    """

    def __init__(self, job: Job, retry: int, observer: Observer, result: Each):
        named = named_sources(job.paths, job.rules, job.shard)
        sizes = {name: source.expected_size or 0 for name, source in named.items()}
        self._names = deque(sorted(sizes, key=lambda name: (-sizes[name], name)))
        self._sources = {name: source.name for name, source in named.items()}
        self._retry, self._observer, self.result = retry, observer, result
        self._deaths, self._failures = Counter[str](), Counter[str]()
        self._later: dict[str, float] = {}  # locked elsewhere: when they are tried again
        self._locked_since: dict[str, float] = {}
        self._tally = Tally(sizes)

    def __len__(self) -> int:
        """Files that nobody reads now."""
        return len(self._names) + len(self._later)

    def next(self) -> str | None:
        """The name of the document that is to be read next; None: none is, now."""
        now = time.monotonic()
        for name in [name for name, due in self._later.items() if due <= now]:
            del self._later[name]
            self._names.append(name)
        return self._names.popleft() if self._names else None

    def heard(self, name: str, told: Progress) -> None:
        """Passes on how far a document is."""
        self._observer.progress(self._tally.with_all(name, told), document=name)

    def died(self, name: str, how: str) -> None:
        """The reader of a document has died: another one gets it, but not for ever."""
        self._deaths[name] += 1
        if self._deaths[name] < KILLS:
            self._names.appendleft(name)
        else:
            why = f"the process that read it ended {KILLS} times ({how})"
            self._record(name, Failed(self._sources[name], LongctxError.exit_code, why))

    def failed(self, name: str, why: str, code: int = LongctxError.exit_code) -> None:
        """As `done`, of a document that could not be read; its reader goes on.

        Args:
            name: of the document.
            why: in words.
            code: the exit code for this error.
        """
        self.done(name, Failed(self._sources[name], code, why))

    def done(self, name: str, outcome: Outcome) -> None:
        """Takes what became of a document, or puts it back to be tried again."""
        if isinstance(outcome, Failed):
            now = time.monotonic()
            if outcome.code == Locked.exit_code:
                if now - self._locked_since.setdefault(name, now) < PATIENCE:
                    self._later[name] = now + PAUSE
                    return
            elif self._failures[name] < self._retry:
                self._failures[name] += 1
                self._names.append(name)
                return
        self._record(name, outcome)

    def _record(self, name: str, outcome: Outcome) -> None:
        self._tally.done(name, outcome)
        self.result.add(outcome)
        if not isinstance(outcome, str):
            self._observer.done(outcome)


def for_readers(job: Job) -> Job:
    """The job as a reader in another process gets it: an engine stays where it is."""
    return replace(job, engine=None)
