"""What a person should know before trusting an answer or a search, as notes beside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from longctx.cli.render import note
from longctx.cli.text import counted
from longctx.core.common import pasting

if TYPE_CHECKING:
    from longctx.core.ask.answer import Answer

NAMED = 20  # documents that are named where some were left out; --json names all


def warn_of_search(values: dict[str, Any]) -> None:
    """What a person should know before trusting a search, from its JSON object."""
    if not values["passages"]:
        note("nothing was found")
    else:
        _warn_of_doubt(values["found"], values["documents"])
        _warn_of_quoted(values["question"], values["passages"])
    _warn_of_state(values["documents"], values["state"])


def _warn_of_doubt(found: str, documents: Sequence[str], remedy: str = "") -> None:
    if found == "no":
        who = "the documents seem" if len(documents) > 1 else "the document seems"
        few = "too few of the question's words occur together anywhere"
        note(f"{who} not to say this: {few}{remedy}")


def _warn_of_pointed(answer: "Answer", anyway: bool) -> None:
    """What to know of an answer that the reader points at."""
    known = (answer.state.get("read") or {}).get("language_known")
    if answer.quote is not None and known is False:
        note("the reader knows English alone: this is the sentence that fits best, not the answer")
    elif answer.found == "unsure":
        note("unsure: the passage may not answer this; read it")
    elif answer.found == "no":
        remedy = "" if anyway else "; --anyway shows the likeliest words all the same"
        note(f"no passage that was read seems to answer this{remedy}")


def _warn_of_quoted(query: str, passages: Sequence[dict[str, Any]]) -> None:
    """Says that what was found is only near to the text in quotes, where nothing has it."""
    from longctx.core.passages.matching import Query

    if Query(query).quoted and not any(passage["exact"] for passage in passages):
        note('no passage with the exact text in "..." was found: these are the nearest')


def _warn_of_state(documents: Sequence[str], state: dict[str, Any]) -> None:
    """Warns of what was left out of the documents, and of which."""
    if state["without_vectors"]:
        names = ", ".join(state["without_vectors"])
        note(f"chosen by words alone: the passages of {names} have no vectors")
    for name in state["counted_again"]:
        told = f"`longctx ingest PATH... {pasting.option('--name', name)} --replace` writes it"
        note(f"the stored word index of {name} is damaged and was counted again; {told}")
    left_out = state.get("left_out")
    if left_out:
        asked = f"{counted(len(documents), 'document')} asked, {left_out:,} left out"
        names = state["not_asked"]
        if left_out > NAMED >= len(documents):  # the few say more than some of the many
            asked = f"{len(documents):,} of {len(documents) + left_out:,} documents asked"
            names = documents
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        note(f"{asked}: {', '.join(names[:NAMED])}{more}")


def warn_of_answer(answer: "Answer", anyway: bool) -> None:
    """What to know before trusting an answer: whether the text has it, and how it was decoded."""
    if answer.policy["name"] == "point":
        _warn_of_pointed(answer, anyway)
    else:
        if answer.found == "unsure":
            note("unsure: only some of the question's words occur together; read the passages")
        remedy = "" if anyway else "; --anyway asks the model all the same"
        _warn_of_doubt(answer.found, answer.documents, remedy)
    _warn_of_state(answer.documents, answer.state)
    if answer.tokens["dropped"]:
        note(f"the model's window had no room for {answer.tokens['dropped']:,} gathered tokens")
    if answer.reassigned:
        note("the answer went beyond the model's window: its tokens were given new positions")
    if answer.narrowed:
        note("fewer tokens were selected than usual, for the answer to have room in the window")
