"""LoCoMo (Maharana et al., 2024): ten long conversations; which turns hold an answer's evidence.

A conversation is a document, a session a section of it, a turn a paragraph; or, as `locomo-files`,
a session a folder and a turn a file. The first half of the conversations may be used to choose.
"""

import json
import re
from collections.abc import Callable

from public_sets.items import DEVELOPMENT, HELD, BadSet, Evidence, PublicSet, Question, Record
from public_sets.members import Members

FILE = "locomo10.json"
PARTS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_ID = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")

Turns = dict[str, Evidence]  # by their ids, such as `D3:7`


def read(members: Members) -> PublicSet:
    """The set, with a Markdown file for each conversation.

    Raises:
        BadSet: a conversation is not there, or has none of the parts that it must have.
    """
    return _read(members, "locomo", _as_sections)


def read_files(members: Members) -> PublicSet:
    """The set, with a folder for each conversation and a file for each turn.

    Raises:
        BadSet: as `read`.
    """
    return _read(members, "locomo-files", _as_files)


def _read(
    members: Members, name: str, laid: Callable[[str, Record], tuple[dict[str, bytes], Turns]]
) -> PublicSet:
    try:
        conversations = json.loads(members.text(FILE))
    except ValueError as error:
        raise BadSet(f"{FILE} in {members.origin} is damaged: {error}") from error
    documents: dict[str, dict[str, bytes]] = {}
    questions: list[Question] = []
    remarks: list[str] = []
    for number, one in enumerate(conversations):
        try:
            document, conversation, asked = one["sample_id"], one["conversation"], one["qa"]
        except (KeyError, TypeError) as error:
            raise BadSet(
                f"{FILE} in {members.origin}: conversation {number + 1} has no {error}"
            ) from error
        documents[document], turns = laid(document, conversation)
        half = DEVELOPMENT if number < len(conversations) // 2 else HELD
        for order, row in enumerate(asked, 1):
            evidence, remark = _evidence(row["evidence"], turns)
            if remark:
                remarks.append(f"{document} question {order}: {remark}")
            questions.append(
                Question(
                    name=f"{document} {order}",
                    document=document,
                    part=PARTS[row["category"]],
                    half=half,
                    text=row["question"],
                    right=str(row.get("answer", "")),
                    answerable="answer" in row,
                    evidence=evidence,
                )
            )
    return PublicSet(name, members.digest, documents, questions, remarks)


def _evidence(keys: list[str], turns: Turns) -> tuple[tuple[Evidence, ...], str]:
    """The turns that keys name, and what is wrong with the keys; none where one names no turn."""
    found: dict[str, Evidence] = {}
    for key in keys:
        named = [f"D{int(session)}:{int(turn)}" for session, turn in _ID.findall(key)]
        if not named or any(one not in turns for one in named):
            return (), f"the key {key!r} names no turn; the question is left out"
        found |= {one: turns[one] for one in named}
    if not keys:
        return (), "it has no key; the question is left out"
    odd = [key for key in keys if key not in turns]
    return tuple(found.values()), f"{', '.join(map(repr, odd))} is read as {[*found]}" * bool(odd)


def _sessions(conversation: Record) -> list[tuple[int, str, list[Record]]]:
    """Numbers, dates and turns of the sessions, in order."""
    names = [match for name in conversation if (match := _SESSION.fullmatch(name))]
    return [
        (int(name[1]), conversation[f"{name[0]}_date_time"], conversation[name[0]])
        for name in sorted(names, key=lambda name: int(name[1]))
        if conversation[name[0]]
    ]


def _said(turn: Record) -> str:
    """A turn on one line; a picture is what its caption says."""
    picture = f" [shares a picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {' '.join(turn['text'].split())}{picture}"


def _as_sections(document: str, conversation: Record) -> tuple[dict[str, bytes], Turns]:
    file, text, turns = f"{document}.md", b"", {}
    for number, date, said in _sessions(conversation):
        text += f"## Session {number}, {date}\n\n".encode()
        for turn in said:
            line = _said(turn).encode()
            end = len(text) + len(line)
            turns[turn["dia_id"]] = Evidence(file, turn["dia_id"], len(text), end)
            text += line + b"\n\n"
    return {file: text}, turns


def _as_files(document: str, conversation: Record) -> tuple[dict[str, bytes], Turns]:
    files, turns = {}, {}
    for number, date, said in _sessions(conversation):
        folder = f"{document}/session-{number:02} {date.replace(':', '.')}"
        for order, turn in enumerate(said, 1):
            line = _said(turn).encode()
            file = f"{folder}/turn-{order:03}.txt"
            files[file] = line + b"\n"
            turns[turn["dia_id"]] = Evidence(file, turn["dia_id"], 0, len(line))
    return files, turns
