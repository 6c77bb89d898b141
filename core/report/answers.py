"""Answers as a page: each with its sentence, the strip of its documents, passages in context."""

from collections.abc import Sequence
from dataclasses import dataclass

from longctx.core.ask.answer import Answer
from longctx.core.ask.place import Passage
from longctx.core.ask.sentence import Sentence
from longctx.core.report.excerpts import Excerpt, Segment, excerpt, source_of
from longctx.core.report.html import Html, Parts, element
from longctx.core.report.page import page
from longctx.core.report.strip import Strip, strip
from longctx.core.report.strip_picture import Tick, strip_picture
from longctx.core.report.tables import facts
from longctx.core.retrieve.ranked import Ranked
from longctx.core.store.document import Document

MOST = 20  # passages of an answer, best first: what a method kept can be thousands
FOUND = {
    "yes": "The documents seem to answer this",
    "unsure": "The documents may not answer this",
    "no": "The documents do not seem to answer this",
}


@dataclass(frozen=True)
class Shown:
    """An answer with what a page shows beside it; it needs no open document any more.

    Attributes:
        answer: what was answered.
        passages: the best of its passages with their surroundings.
        strip: where on the documents the question's words and meaning lie; None: it is not known.
        ticks: the bytes of the strip at which these passages begin.
    """

    answer: Answer
    passages: tuple[tuple[Passage, Excerpt], ...]
    strip: Strip | None
    ticks: tuple[int, ...]


def shown(answer: Answer, documents: Sequence[Document], ranked: Ranked | None) -> Shown:
    """What a page shows of an answer.

    Args:
        answer: the answer.
        documents: open, those that were asked, in their order.
        ranked: their windows with the scores by which passages were chosen; None: there are none.

    Raises:
        StateMismatch: a document is damaged.
    """
    named = {document.manifest.name: document for document in documents}
    passages = tuple(
        (passage, excerpt(named[passage.document], passage, answer.sentence))
        for passage in answer.passages[:MOST]
    )
    drawn = None if ranked is None else strip(ranked, documents)
    starts = {} if drawn is None else {(p.document, p.source): p.start for p in drawn.parts}
    ticks = (
        starts.get((one.document, source_of(named[one.document], one)), 0) + one.start
        for one, _ in passages
    )
    return Shown(answer, passages, drawn, tuple(ticks) if drawn else ())


def answers_page(answers: Sequence[Shown]) -> str:
    """The page of one answer or several."""
    if len(answers) == 1:
        title = answers[0].answer.question
        return page(title, _answer(answers[0], 1, element("h1", title)))
    title = f"{len(answers):,} questions"
    sections = (
        _answer(one, number, element("h2", one.answer.question))
        for number, one in enumerate(answers, 1)
    )
    return page(title, element("h1", title), _contents(answers), sections)


def _contents(answers: Sequence[Shown]) -> Html:
    lines = (
        element("li", element("a", one.answer.question, href=f"#q{number}"))
        for number, one in enumerate(answers, 1)
    )
    return element("nav", element("ol", lines))


def _answer(one: Shown, number: int, heading: Html) -> Html:
    answer = one.answer
    names = len(answer.documents) > 1
    before = [
        element("p", f"after: {exchange.question} ({exchange.answer})", class_="soft")
        for exchange in answer.continues
    ]
    parts: Parts = [
        heading,
        before,
        element("p", answer.answer or "(no answer)", class_="answer"),
        element("p", "interrupted: the answer is not whole", class_="soft")
        if answer.interrupted
        else None,
        _sentence(answer.sentence, names),
        element("p", f"{FOUND.get(answer.found, answer.found)}.", class_="soft"),
        _strip(one, number),
        [_passage(one, number, at, names) for at in range(len(one.passages))],
        _more(len(answer.passages) - len(one.passages)),
        element("details", element("summary", "How it was answered"), facts(_facts(answer))),
    ]
    return element("section", parts, id=f"q{number}")


def _sentence(sentence: Sentence | None, names: bool) -> Html | None:
    if sentence is None:
        return None
    text, end, parts = sentence.line_text, 0, list[Parts]()
    for low, high in sentence.marks:
        parts += [text[end:low], element("mark", text[low:high])]
        end = high
    cited = element("p", _cite(sentence, names), class_="soft")
    return element("blockquote", element("p", parts, text[end:]), cited)


def _cite(place: Passage | Sentence, names: bool) -> str:
    return f"{place.document}: " * names + f"{place.source}:{place.place}"


def _strip(one: Shown, number: int) -> Html | None:
    if one.strip is None or not one.strip.bins:
        return None
    ticks = [
        Tick(byte, f"#q{number}-{at}", f"{passage.source}:{passage.place}")
        for at, (byte, (passage, _)) in enumerate(zip(one.ticks, one.passages, strict=True), 1)
    ]
    names = ", ".join(dict.fromkeys(part.name for part in one.strip.parts[:8]))
    more = f" and {len(one.strip.parts) - 8:,} more" if len(one.strip.parts) > 8 else ""
    told = (
        f"{names}{more}, from beginning to end: how well each place fits the question; below, the "
        "passages that follow"
    )
    return element("figure", element("figcaption", told), strip_picture(one.strip, ticks, told))


def _passage(one: Shown, number: int, at: int, names: bool) -> Html:
    passage, text = one.passages[at]
    caption = element("figcaption", f"{at + 1}. {_cite(passage, names)}")
    lines = element(
        "pre",
        _left_out(text.before, "\n"),
        [_segment(segment) for segment in text.segments],
        _left_out(text.after, ""),
    )
    return element("figure", caption, lines, id=f"q{number}-{at + 1}")


def _left_out(count: int, end: str) -> Html | None:
    if not count:
        return None
    return element("span", f"[{count:,} characters of this passage]{end}", class_="around")


def _segment(segment: Segment) -> Parts:
    if segment.marked:
        return element("mark", segment.text, class_="strong")
    if segment.answers:
        return element("mark", segment.text)
    if segment.best:
        return element("mark", segment.text, class_="line")
    return segment.text if segment.inside else element("span", segment.text, class_="around")


def _more(count: int) -> Html | None:
    if count < 1:
        return None
    many = "1 more passage was" if count == 1 else f"{count:,} more passages were"
    return element("p", f"{many} gathered.", class_="soft")


def _facts(answer: Answer) -> list[tuple[str, str]]:
    state, tokens = answer.state, answer.tokens
    told = [
        ("documents", ", ".join(answer.documents)),
        ("read by", f"{state['model']}, method {state['method']}"),
        (
            "gathered",
            f"{tokens['gathered']:,} of {tokens['document']:,} tokens by {state['gathered_by']}",
        ),
        ("answered by", str(state.get("answer_model", state["model"]))),
        ("ended by", answer.stop),
        ("time", f"{answer.timings['total_s']:.2f} s"),
    ]
    if answer.sent is not None:
        places = len(answer.sent.passages)
        told.append(
            (
                "sent",
                f"{places:,} passage{'s' * (places != 1)}, "
                f"{answer.sent.characters:,} characters in all, to {answer.sent.to}",
            )
        )
    if changed := state.get("changed_sources"):
        told.append(("changed since", ", ".join(changed)))
    return told
