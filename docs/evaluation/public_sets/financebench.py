"""FinanceBench (Islam et al., 2023): filings as PDF; the page of an answer, and the figure.

The first half of the questions, in the order of the file, may be used to choose.
"""

from public_sets.items import DEVELOPMENT, HELD, BadSet, Evidence, PublicSet, Question
from public_sets.members import Members
from public_sets.rule import LONG, SHORT

FILE, FOLDER = "questions.jsonl", "pdfs"
BRIEF = 12  # words of a right answer; of a longer one, more words of an answer count
_ASIDE = "The answer here assumes"  # begins a remark on the year, after the answer


def read(members: Members) -> PublicSet:
    """The set; pages are numbered from 1, as they are cited.

    Raises:
        BadSet: a filing that a question is about is not there, or a question lacks a field.
    """
    rows = members.lines(FILE)
    questions, documents = [], {}
    for number, row in enumerate(rows, 1):
        try:
            document = row["doc_name"]
            evidence = {
                Evidence(f"{one['doc_name']}.pdf", f"p. {one['evidence_page_num'] + 1}")
                for one in row["evidence"]
            }
            text, right = row["question"], row["answer"].split(_ASIDE)[0].strip()
        except KeyError as error:
            raise BadSet(f"{FILE} in {members.origin}, line {number}: no {error}") from error
        path = f"{FOLDER}/{document}.pdf"
        if path not in members.files:
            raise BadSet(f"{members.origin} is incomplete: it has no {path}")
        documents[document] = {f"{document}.pdf": members.files[path]}
        questions.append(
            Question(
                name=row["financebench_id"],
                document=document,
                part=row["question_type"],
                half=DEVELOPMENT if number <= len(rows) // 2 else HELD,
                text=text,
                right=right,
                words=LONG if len(right.split()) > BRIEF else SHORT,
                evidence=tuple(sorted(evidence, key=lambda one: one.key)),
            )
        )
    return PublicSet("financebench", members.digest, documents, questions)
