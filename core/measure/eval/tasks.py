"""The tasks that methods are compared on, by name: needles, and RULER's that need no file."""

from functools import cache

from longctx.core.common.errors import UsageError
from longctx.core.measure.case import Task
from longctx.core.measure.eval.ruler.making import Materials, sample_words
from longctx.core.measure.eval.ruler.tasks import tasks as ruler_tasks
from longctx.core.measure.niah.task import task as needles
from longctx.core.measure.niah.variants import names
from longctx.core.measure.prose import read_prose

USUAL = "niah"


@cache
def known() -> dict[str, Task]:
    """All tasks by name; `niah` is pass keys and numbers, `niah-NAME` another variant."""
    hidden = [needles(name) for name in (None, *names())]
    made = ruler_tasks(Materials(read_prose(None), sample_words()), {})
    return {task.name: task for task in hidden} | made


def find(name: str) -> Task:
    """The task of a name.

    Raises:
        UsageError: there is none, naming those there are.
    """
    if name not in known():
        raise UsageError(f"unknown task {name!r}", "", f"Known: {', '.join(sorted(known()))}.")
    return known()[name]
