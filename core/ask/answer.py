"""The result of a question: passages, the answer, counts and timings. Values only.

Their fields are those of the JSON objects of `ask` and `find`.
"""

from dataclasses import asdict, dataclass
from typing import Any

from longctx.core.ask.follow_up import Exchange
from longctx.core.ask.gather import Passage
from longctx.core.ask.quoting import Quote
from longctx.core.ask.sentence import Sentence
from longctx.core.ask.server.messages import Sent
from longctx.core.contracts.policy import Spent
from longctx.core.decode.policies import Decoding
from longctx.core.retrieve.hit import SCHEMA_VERSION

INTERRUPTED = "interrupted"  # what ended an answer


@dataclass(frozen=True)
class Found:
    """What was gathered for a question.

    Attributes:
        question: the user's words.
        found: whether the documents seem to answer the question: "yes", "unsure" or "no".
        evidence: the share of the question's words, weighted by rarity, that occur together in one
            place; None: none of its words count.
        documents: names of the documents that were searched.
        passages: every contiguous run of gathered tokens, best first.
        tokens: counts: document, gathered, question, answer, dropped.
        timings: seconds: load_s (once); gather_s, first_token_s and total_s since the question.
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
class Possible:
    """Another answer that the passages may give.

    Attributes:
        quote: where it stands.
        likely: how likely it is right, from 0 to 1.
    """

    quote: Quote
    likely: float


@dataclass(frozen=True)
class Answer(Found):
    """What was gathered, and the model's answer.

    Attributes:
        answer: its text.
        stop: what ended it: "end" (the model), "length", "stop string", or "interrupted" (Ctrl-C;
            the answer is the text until then). A server may have a word of its own.
        policy: how it was decoded: the policy's `name`, and its options; "server": not here.
        attended_per_step: entries that a token attended to, mean over tokens, layers and key/value
            heads; None: another server's model answered.
        refreshes: steps that attended to everything to choose again, mean over the layers; None:
            the policy has no such steps.
        held: the most tokens held for a layer and key/value head; None: as above.
        reassigned: the answer continued beyond the model's window, at reassigned positions.
        narrowed: fewer kept tokens were selected than usual, to leave room in the window for the
            answer.
        tokens_per_s: speed after the first token; None: no token follows it, or the reader answers.
        quote: where the answer stands, where the reader points at it; None: a model wrote it, or
            the passages have no answer.
        sentence: the sentence that answers, of what the answer is based on; None: none has the
            answer or a word of the question in it.
        continues: earlier questions and answers that it was asked with.
        sent: what was sent to another server, whose model answered; None: nothing was.
        likely: how likely the answer is right, from 0 to 1, where the reader points at it; None: it
            is not known.
        also_possible: other answers that the passages may give, the likeliest first, where the
            reader points.
    """

    answer: str
    stop: str
    policy: dict[str, Any]
    attended_per_step: float | None
    refreshes: float | None
    held: int | None
    reassigned: bool
    narrowed: bool
    tokens_per_s: float | None
    quote: Quote | None = None
    sentence: Sentence | None = None
    continues: tuple[Exchange, ...] = ()
    sent: Sent | None = None
    likely: float | None = None
    also_possible: tuple[Possible, ...] = ()

    def __str__(self) -> str:
        return self.answer

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `ask`."""
        values = super().as_dict()
        if self.sentence is not None:
            values["sentence"] = self.sentence.as_dict()
        return values

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
