"""The result of a question: passages, the answer, and what it took. Values only.

Their fields are those of the JSON objects of `ask` and `find`.
"""

from dataclasses import asdict, dataclass
from typing import Any

from longctx.core.ask.gather import Passage
from longctx.core.contracts.policy import Spent
from longctx.core.decode.policies import Decoding
from longctx.core.retrieve.finding import SCHEMA_VERSION

INTERRUPTED = "interrupted"  # what ended an answer


@dataclass(frozen=True)
class Found:
    """What was gathered for a question.

    Attributes:
        question: the user's words.
        found: whether the documents seem to say what is asked: "yes", "unsure" or "no".
        evidence: the share of the question's words, weighed by how rare they are, that stands
            together in one place; None: it has no words that count.
        documents: names of the documents that were searched.
        passages: every contiguous run of gathered tokens, best first.
        tokens: counts: document, gathered, question, answer, dropped.
        timings: seconds: load_s (once), and since the question gather_s, first_token_s, total_s.
        state: what was reused and what was checked.
    """

    question: str
    found: str
    evidence: float | None
    documents: list[str]
    passages: list[Passage]
    tokens: dict[str, int]
    timings: dict[str, float]
    state: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `find`."""
        values = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        values["passages"] = [passage.as_dict() for passage in self.passages]
        return values


@dataclass(frozen=True)
class Answer(Found):
    """What was gathered, and the model's answer from it.

    Attributes:
        answer: its text.
        stop: what ended it: "end" (the model), "length", "stop string", or "interrupted" (Ctrl-C:
            it is what came before).
        policy: how it was decoded: the policy's `name`, and its options.
        attended_per_step: entries that a token attended to, mean over tokens, layers and key/value
            heads.
        refreshes: steps that attended to everything to choose anew, mean over the layers; None:
            the policy knows no such steps.
        held: most tokens that were held for a layer and key/value head.
        reassigned: the answer went on beyond the model's window, at positions given anew.
        narrowed: of all that was kept fewer tokens were selected than usual, so that the answer's
            had room in the window.
        tokens_per_s: of the tokens after the first; None: there is none.
    """

    answer: str
    stop: str
    policy: dict[str, Any]
    attended_per_step: float
    refreshes: float | None
    held: int
    reassigned: bool
    narrowed: bool
    tokens_per_s: float | None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.stop == INTERRUPTED


def decoded(decoding: Decoding, spent: Spent) -> dict[str, Any]:
    """What an `Answer` says of its decode policy."""
    values = asdict(spent)
    attended, refreshes = values.pop("attended"), values.pop("refreshes")
    return {
        "policy": {"name": decoding.name, **asdict(decoding.options)},
        "attended_per_step": round(attended, 2),
        "refreshes": None if refreshes is None else round(refreshes, 2),
        **values,
    }
