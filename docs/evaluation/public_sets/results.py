"""Results of a system: those of a run, the set's own stored answers, or a file of answers."""

import json
from pathlib import Path

from longctx.core.measure.journal import RESULTS, SETTINGS
from public_sets.items import BadSet, PublicSet, Record

Results = dict[str, Record]  # by the names of questions


def of_run(folder: Path, found: PublicSet) -> tuple[Results, Record]:
    """The results of a run, also of one that goes on or was stopped; and its settings.

    Raises:
        BadSet: there is none, it is damaged, or it is of another set or of other members.
    """
    try:
        settings = json.loads((folder / SETTINGS).read_text("utf-8"))
        lines = (folder / RESULTS).read_bytes().split(b"\n")[:-1]  # a line cut off is dropped
        results = {row["name"]: row["result"] for row in map(json.loads, lines)}
    except FileNotFoundError as error:
        raise BadSet(f"{folder} has no results: {error.filename} is not there") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadSet(f"the results in {folder} are damaged: {error}") from error
    if (settings["set"], settings["digest"]) != (found.name, found.digest):
        raise BadSet(f"{folder} has results of another set, or of other members of it")
    return results, settings


def of_file(path: Path, found: PublicSet) -> Results:
    """Answers that someone stored: JSON lines with `answer`, and `name` or `question`.

    Raises:
        BadSet: a line has no answer, or belongs to no question of the set or to several.
    """
    by_text: dict[str, list[str]] = {}
    for question in found.questions:
        by_text.setdefault(question.text, []).append(question.name)
    names, results = {question.name for question in found.questions}, {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            answer = row["answer"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadSet(f"{path}, line {number}: no JSON object with an answer") from error
        known = [row["name"]] if "name" in row else by_text.get(row.get("question", ""), [])
        if len(known) != 1 or known[0] not in names:
            raise BadSet(f"{path}, line {number}: it belongs to {len(known)} questions; name one")
        results[known[0]] = {"answer": answer or ""}
    return results
