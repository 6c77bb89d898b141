"""The passages of a document with their words, as tables: made from its text, and checked.

A document is cut into passages of about 128 tokens (`core/passages/cutting.py`). A table covers one
run of 65,536 tokens, and each can be made without the others: the cutting starts again at the first
end of a sentence or line in each run. `docs/format.md` lists its tensors under the group "words".
Knows no scores.
"""

import codecs
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from longctx.core.common.errors import StateMismatch
from longctx.core.passages import cutting
from longctx.core.passages.sentences import ends
from longctx.core.passages.snippet import Snippet
from longctx.core.store.document import Document
from longctx.core.store.manifest import Manifest
from longctx.core.store.shards import AGAIN
from longctx.core.store.word_files import FILE_TOKENS, SHIFT
from longctx.core.tokens.names import LONGEST
from longctx.core.tokens.terms import counted, cut, has_break, split

MOST = 255  # the highest count of a word in a passage
_AHEAD = 4 * LONGEST + 8  # bytes after a passage that the rest of a word can take
_PART = 3  # characters that the bytes of a partial one can decode to
_AROUND = 64  # tokens on each side of a run that help to find the ends of its sentences
_BACK = 64  # passages before a table searched for the start of letters without a break

Table = dict[str, np.ndarray]


class Part(NamedTuple):
    """Tokens [first, last) of one source, which are cut into passages by themselves."""

    source: int
    first: int
    last: int


def count_tables(manifest: Manifest) -> int:
    """How many tables a document makes; 0: it has no tokens."""
    return -(-manifest.tokens // FILE_TOKENS)


def word_tables(document: Document, first_file: int = 0) -> Iterator[Table]:
    """The tables of a document in order, made from its text, one in memory at a time.

    A word belongs to the passage in which it begins.

    Args:
        document: open.
        first_file: the table to begin with.

    Yields:
        terms uint8 (bytes,), heads int32 (V + 1,), passages int32 (N,), counts uint8 (N,),
        lengths int32 (P,), sources int32 (P,), tokens int64 (P,), bytes int64 (P,): see
        `docs/format.md`.

    Raises:
        StateMismatch: the document's text or tokens are damaged.
    """
    for number in range(first_file, count_tables(document.manifest)):
        yield _table(document, number)


def passage_texts(document: Document, number: int) -> list[str]:
    """The text of each passage of one table's run, in order, cut between words.

    Raises:
        StateMismatch: the document's text or tokens are damaged.
    """
    parts = _parts(document, number)
    return [text for part in parts for text in _texts(document, part, _cut(document, part))]


def read_table(document: Document, number: int) -> Table:
    """A stored table, after checking everything that a search relies on.

    Args:
        document: open.
        number: the table's, from 0.

    Raises:
        StateMismatch: it is missing, damaged, or belongs to another document.
    """
    table = document.words(number)
    try:
        _check_postings(table, len(table["tokens"]))
        check_passages(table, document, number)
    except ValueError as exc:
        name = document.manifest.name
        raise StateMismatch(f"file {number} of the words of '{name}' is damaged", str(exc)) from exc
    return table


def _check_postings(table: Table, count: int) -> None:
    """ValueError unless the postings are consistent, for `count` passages."""
    terms, heads, passages, counts = (
        table[key] for key in ("terms", "heads", "passages", "counts")
    )
    text = terms.tobytes()
    text.decode("utf-8")
    if len(heads) != text.count(b"\n") + 1 or (text and not text.endswith(b"\n")):
        raise ValueError("its terms are not as many as are counted")
    if heads[0] != 0 or heads[-1] != len(passages) or (np.diff(heads) < 0).any():
        raise ValueError("its heads do not ascend to the number of its postings")
    if len(counts) != len(passages) or not counts.all():
        raise ValueError("its counts are not those of its postings")
    if len(passages) and not 0 <= passages.min() <= passages.max() < count:
        raise ValueError("it counts words of passages that it does not have")
    ascending = np.diff(passages) > 0
    ascending[heads[1:-1][(heads[1:-1] > 0) & (heads[1:-1] < len(passages))] - 1] = True
    if not ascending.all():
        raise ValueError("the passages of a term do not ascend")


def check_passages(table: Table, document: Document, number: int | None = None) -> None:
    """ValueError unless passages are what they can be in a document.

    Args:
        table: of `word_tables`, at least what it says of passages.
        document: open.
        number: the table's; None: it has all passages of the document.

    Raises:
        StateMismatch: the document's tokens are damaged.
    """
    manifest, (sources, tokens) = document.manifest, (table["sources"], table["tokens"])
    if any(len(table[key]) != len(tokens) for key in ("sources", "bytes", "lengths")):
        raise ValueError("its columns of passages are not of one length")
    if (table["lengths"] < 0).any():
        raise ValueError("a passage has fewer words than none")
    firsts = np.array([source.first_token for source in manifest.sources], np.int64)
    sizes = np.array([source.tokens for source in manifest.sources], np.int64)
    first, last = (0, manifest.tokens) if number is None else _run(manifest, number)
    if len(tokens) and not (first <= tokens[0] and tokens[-1] < last + SHIFT):
        raise ValueError("its passages are not of its tokens")
    if (np.diff(tokens) <= 0).any() or ((sources < 0) | (sources >= len(firsts))).any():
        raise ValueError("its passages do not follow one another")
    if ((tokens < firsts[sources]) | (tokens >= (firsts + sizes)[sources])).any():
        raise ValueError("a passage is not in its source")
    begun = firsts[(sizes > 0) & (firsts >= first) & (firsts < last)]
    if not np.isin(begun, tokens).all():
        raise ValueError("a source begins inside a passage")
    if not np.array_equal(document.array_take("tokens", tokens, "starts"), table["bytes"]):
        raise ValueError("its passages do not stand in their sources")


def _run(manifest: Manifest, number: int) -> tuple[int, int]:
    """The first token of a table's run and the one after its last."""
    return number * FILE_TOKENS, min((number + 1) * FILE_TOKENS, manifest.tokens)


def _table(document: Document, number: int) -> Table:
    """The table of one run of tokens."""
    sources: list[int] = []
    tokens: list[int] = []
    texts: list[str] = []
    for part in _parts(document, number):
        starts = _cut(document, part)
        sources += [part.source] * len(starts)
        tokens += starts
        texts += _texts(document, part, starts)
    first = np.array(tokens, np.int64)
    terms, heads, posted, counts, lengths = _counted(texts, document.manifest.language)
    return {
        **{
            "terms": terms,
            "heads": heads,
            "passages": posted,
            "counts": counts,
            "lengths": lengths,
        },
        "sources": np.array(sources, np.int32),
        "tokens": first,
        "bytes": document.array_take("tokens", first, "starts"),
    }


def _parts(document: Document, number: int) -> Iterator[Part]:
    """What a table covers of each source."""
    low, high = _run(document.manifest, number)
    for place, source in enumerate(document.manifest.sources):
        end = source.first_token + source.tokens
        if source.first_token < high and end > low:
            first = _shifted(document, place, max(low, source.first_token))
            last = end if end <= high else _shifted(document, place, high)
            if first < last:
                yield Part(place, first, last)


def _shifted(document: Document, number: int, token: int) -> int:
    """Where the cutting starts again: at the first end of a sentence or line from a token on."""
    source = document.manifest.sources[number]
    last = min(token + SHIFT, source.first_token + source.tokens)
    if token == source.first_token:
        return token
    text, places, before = _around(document, number, token, last)
    found = ends(text, int(places[before]), int(places[before + last - token]))
    later = np.searchsorted(places, found) - before
    return token + int(next((one for one in later if 0 <= one < last - token), last - token))


def _cut(document: Document, part: Part) -> list[int]:
    """The first token of each passage of a part."""
    text, places, before = _around(document, *part)
    own = places[before : before + part.last - part.first + 1]
    return [part.first + start for start in cutting.cut(text, own)]


def _around(document: Document, number: int, first: int, last: int) -> tuple[str, np.ndarray, int]:
    """Tokens [first, last) of a source with some tokens on both sides.

    Returns:
        Their text; the character in which each token begins, and the end; and how many of these
        tokens come before the first.
    """
    source = document.manifest.sources[number]
    low = max(source.first_token, first - _AROUND)
    high = min(source.first_token + source.tokens, last + _AROUND)
    starts = document.array_take("tokens", np.arange(low, high), "starts")
    _, begin, end = document.span(low, high)
    _require_order(document, [*starts.tolist(), end])
    snippet = Snippet.of(document, number, begin, end)
    places = np.append(starts, end) - snippet.start
    if len(snippet.text) != len(snippet.raw):  # else a character is a byte
        places = np.searchsorted(snippet.places - snippet.start, places, side="right") - 1
    return snippet.text, places, first - low


def _require_order(document: Document, starts: list[int]) -> None:
    if any(start > end for start, end in pairwise(starts)):
        name, folder = document.manifest.name, document.manifest.folder
        why = "the tokens of a source do not follow one another"
        raise StateMismatch(f"'{name}' is damaged", why, AGAIN, folder)


def _texts(document: Document, part: Part, tokens: list[int]) -> list[str]:
    """The text of each passage of a part, cut between words."""
    _, begin, end = document.span(part.first, part.last)
    starts = document.array_take("tokens", np.array(tokens), "starts").tolist()
    before = _before(document, part, begin)
    text, places = _decoded(document, part.source, [before, *starts, end])
    cuts = [0]
    for place in places:
        cuts.append(cut(text, place, cuts[-1]))
    return split(text, cuts[1:])


def _decoded(document: Document, number: int, bounds: list[int]) -> tuple[str, list[int]]:
    """The text of a source from the first of `bounds` to some words after the last.

    Returns:
        The text, and the other bounds' places in it; a character across a bound is before it.
    """
    source = document.manifest.sources[number]
    ahead = min(bounds[-1] + _AHEAD, max(source.size, bounds[-1]))
    try:
        raw = document.text(number, bounds[0], ahead)
        if any(start > end for start, end in pairwise(bounds)):
            raise ValueError("the tokens of a source do not follow one another")
    except ValueError as exc:
        name, folder = document.manifest.name, document.manifest.folder
        raise StateMismatch(f"'{name}' is damaged", str(exc), AGAIN, folder) from exc
    decoder = codecs.getincrementaldecoder(source.codec)("replace")
    parts, places, count = [], [], 0
    for start, end in pairwise(bound - bounds[0] for bound in bounds):
        parts.append(decoder.decode(raw[start:end]))
        count += len(parts[-1])
        places.append(count + bool(decoder.getstate()[0]))
    parts.append(decoder.decode(raw[bounds[-1] - bounds[0] :], final=True))
    return "".join(parts), places


def _before(document: Document, part: Part, here: int) -> int:
    """A byte of the source before a part's first, `here`, from which its words are cut correctly.

    It is the first byte of an earlier token of the source such that a word across `here` begins
    after it, or of the token so many tokens before as _BACK passages have.
    """
    source, back = document.manifest.sources[part.source], 1
    while part.first > source.first_token:
        earlier = max(source.first_token, part.first - back * cutting.SIZES.usual)
        [start] = document.array_take("tokens", np.array([earlier]), "starts").tolist()
        text, places = _decoded(document, part.source, [start, here])
        # If it begins within a character, the rest of that looks like a break.
        done = earlier == source.first_token or back == _BACK
        if done or has_break(text[_PART : places[0]]):
            return start
        back *= 2
    return here


def _counted(texts: list[str], language: str) -> tuple[np.ndarray, ...]:
    """terms, heads, passages, counts and lengths of a table, from its passages' texts."""
    found = counted(texts, language)
    stems = sorted(found.vocab, key=str.encode)
    rank = np.empty(len(stems), np.int64)  # of each stem's number
    rank[[found.vocab[stem] for stem in stems]] = np.arange(len(stems))
    keys = rank[found.ids] * len(texts) + found.texts
    keys, counts = np.unique(keys, return_counts=True)
    stem, passage = np.divmod(keys, max(1, len(texts)))
    terms = bytearray("".join(f"{stem}\n" for stem in stems).encode())
    return (
        np.frombuffer(terms, np.uint8),
        np.searchsorted(stem, np.arange(len(stems) + 1)).astype(np.int32),
        passage.astype(np.int32),
        np.minimum(counts, MOST).astype(np.uint8),
        np.bincount(found.texts, minlength=len(texts)).astype(np.int32),
    )
