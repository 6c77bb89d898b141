"""LaRA (Li et al., 2025): statements, papers and novels, and questions whose answer they lack.

The first half of the statements, in the order of their names, may be used to choose; all else is
held.
"""

import re
from collections.abc import Iterator

from public_sets.items import DEVELOPMENT, HELD, BadSet, PublicSet, Question, Record
from public_sets.members import Members
from public_sets.rule import LONG, SHORT

KINDS = ("financial", "paper", "book")
TASKS = ("location", "comp", "reasoning", "hallu")
LONGER = ("comp", "reasoning")  # tasks of which more words of an answer count
_STORED = re.compile(r"answers/([^/]+)/(full|rag)_(book|paper|financial)_(\w+)\.jsonl")


def read(members: Members) -> PublicSet:
    """The set.

    Raises:
        BadSet: a member is not there, or has no question where one must be.
    """
    documents: dict[str, dict[str, bytes]] = {}
    for path, data in sorted(members.files.items()):
        if path.startswith("documents/"):
            _, kind, file = path.split("/", 2)
            documents[f"{kind} {file.rpartition('.')[0]}"] = {file: data}
    statements = [name for name in documents if name.startswith("financial ")]
    chosen = {*statements[: len(statements) // 2]}
    questions = [
        Question(
            name=f"{kind} {task} {number}",
            document=(document := f"{kind} {row['file'].rpartition('.')[0]}"),
            part=f"{kind} {task}",
            half=DEVELOPMENT if document in chosen else HELD,
            text=row["question"],
            right=row["answer"],
            words=LONG if task in LONGER else SHORT,
            answerable=task != "hallu",
        )
        for kind in KINDS
        for task in TASKS
        for number, row in enumerate(_rows(members, f"questions/{kind}_{task}.jsonl"), 1)
    ]
    for question in questions:
        if question.document not in documents:
            raise BadSet(f"{members.origin} is incomplete: no document of {question.name}")
    return PublicSet("lara", members.digest, documents, questions)


def _rows(members: Members, name: str) -> Iterator[Record]:
    for number, row in enumerate(members.lines(name), 1):
        if not all(isinstance(row.get(key), str) for key in ("file", "question", "answer")):
            raise BadSet(f"{name} in {members.origin}, line {number}: no file, question or answer")
        yield row


def stored(members: Members, found: PublicSet) -> dict[str, dict[str, Record]]:
    """The answers that the set itself has, by model and way, then by question.

    Raises:
        BadSet: an answer is missing, or belongs to another question.
    """
    questions = {question.name: question for question in found.questions}
    answers: dict[str, dict[str, Record]] = {}
    for path in sorted(members.files):
        if not (match := _STORED.fullmatch(path)):
            continue
        model, way, kind, task = match.groups()
        rows = members.lines(path)
        wanted = [name for name, q in questions.items() if q.part == f"{kind} {task}"]
        if len(rows) != len(wanted):
            raise BadSet(f"{path} has {len(rows)} answers to {len(wanted)} questions")
        of_model = answers.setdefault(f"{model} {way}", {})
        for name, row in zip(wanted, rows, strict=True):
            if row.get("question") != questions[name].text:
                raise BadSet(f"{path}: an answer to another question than {name}")
            of_model[name] = {"answer": row.get("prediction") or ""}
    return answers
