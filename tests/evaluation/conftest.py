"""Makes the package of docs/evaluation/public.py importable, and small sets in the sets' forms."""

import json
import lzma
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "docs" / "evaluation"))

STATEMENTS = {
    "Alder": "Revenue of Alder was $1,250 for the quarter. Alder rents a mill at Kelso.\n",
    "Birch": "Net loss of Birch was $77,410 in March. Birch repairs clocks.\n",
}
LOCATIONS = [
    ("Alder", "What was the revenue of Alder?", "$1,250."),
    ("Birch", "What was the net loss of Birch?", "$77,410."),
    ("Birch", "What does Birch repair?", "Clocks."),
]
UNSAID = [("Birch", "How many people does Birch employ?", "The text does not say.")]


def _lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def lara_folder(tmp_path) -> Path:
    """Two statements, four questions and the answers of one model, as LaRA has them."""
    folder = tmp_path / "lara"
    files = {f"documents/financial/{name}.txt": text for name, text in STATEMENTS.items()}
    for kind in ("financial", "paper", "book"):
        for task in ("location", "comp", "reasoning", "hallu"):
            rows = {"location": LOCATIONS, "hallu": UNSAID}.get(task, [])
            rows = rows if kind == "financial" else []
            asked = [{"file": f"{n}.txt", "question": q, "answer": a} for n, q, a in rows]
            files[f"questions/{kind}_{task}.jsonl"] = _lines(asked)
            said = [{"question": q, "prediction": a} for _, q, a in rows]
            files[f"answers/model/full_{kind}_{task}.jsonl"] = _lines(said)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


@pytest.fixture
def packed(tmp_path):
    """Packs a folder as the sets come: a .tar.xz whose paths begin with the folder's name."""

    def pack(folder: Path) -> Path:
        path = tmp_path / f"{folder.name}.tar.xz"
        with tarfile.open(path, "w:xz") as archive:
            archive.add(folder, folder.name)
        return path

    return pack


@pytest.fixture
def locomo_file(tmp_path) -> Path:
    """Two conversations of two sessions, with keys that are right, odd and wrong."""
    turns = [("Ann", "I saw a heron at the pond."), ("Bo", "I bought a red canoe.")]
    more = [("Ann", "The canoe leaks."), ("Bo", "Then I will paint it with tar.")]

    def session(number: int, said: list[tuple[str, str]]) -> list[dict]:
        return [
            {"speaker": name, "dia_id": f"D{number}:{order}", "text": text}
            for order, (name, text) in enumerate(said, 1)
        ]

    talk = {"session_1_date_time": "1 pm on 8 May, 2023", "session_1": session(1, turns)}
    talk |= {"session_2_date_time": "2 pm on 9 May, 2023", "session_2": session(2, more)}
    asked = [
        {"question": "Who saw a heron?", "answer": "Ann", "evidence": ["D1:1"], "category": 4},
        {
            "question": "What of the canoe?",
            "answer": "x",
            "evidence": ["D1:2;D2:01"],
            "category": 1,
        },
        {
            "question": "What of tar?",
            "adversarial_answer": "x",
            "evidence": ["D9:9"],
            "category": 5,
        },
    ]
    both = [{"sample_id": name, "conversation": talk, "qa": asked} for name in ("c1", "c2")]
    path = tmp_path / "locomo10.json.xz"
    path.write_bytes(lzma.compress(json.dumps(both).encode()))
    return path
