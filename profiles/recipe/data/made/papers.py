"""Papers: mails, letters, chats, diaries, minutes, contracts, recipes and instructions.

Each is made of scenes, which people tell one another or write down, and of idle talk between them.
"""

from functools import cache
from pathlib import Path

from longctx.profiles.recipe.data.made.pages import Page
from longctx.profiles.recipe.data.made.scenes import Scene, read_scenes
from longctx.profiles.recipe.data.made.values import MadeValues
from longctx.profiles.recipe.data.made.wordings import Wording, read_wordings
from longctx.profiles.recipe.data.made.writing import Letters, Lists, Talk, Writing

HERE = Path(__file__).parent
FILES = ("talk.txt", "records.txt", "cooking.txt", "handling.txt")
SHARES: dict[tuple[type[Writing], str], float] = {
    (Letters, "talk.txt"): 0.4,
    (Talk, "talk.txt"): 0.25,
    (Lists, "records.txt"): 0.2,
    (Lists, "cooking.txt"): 0.06,
    (Lists, "handling.txt"): 0.09,
}
PLAYED = 10  # scenes that no paper has, for questions without an answer


@cache
def scenes() -> dict[str, list[Scene]]:
    """The scenes of each file."""
    return {name: read_scenes(HERE / name) for name in FILES}


@cache
def wordings() -> dict[str, list[Wording]]:
    """How scenes and messages are asked for."""
    told = {scene.name: list(scene.wordings) for part in scenes().values() for scene in part}
    return told | read_wordings(HERE / "messages.txt")


def page(values: MadeValues) -> Page:
    """A paper of some length."""
    rng = values.rng
    kind, file = rng.choices([*SHARES], [*SHARES.values()])[0]
    known = scenes()[file]
    known = rng.sample(known, min(len(known), rng.randint(6, 16)))
    paper = kind(values, known)
    paper.write(int(1500 * 8 ** rng.random()))
    other = kind(values, known)
    other.write(2500)
    return Page("mail", paper.lines, paper.records, other.records)
