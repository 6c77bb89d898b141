"""The marks of a document: which page or line of the original each piece of text comes from.

They are rows of the group "marks", which only documents with converted sources have; see
docs/format.md. Knows nothing of source formats.
"""

from longctx.core.store.document import Document


def marks_of(document: Document, source: int, first: int = 0) -> list[tuple[int, int]]:
    """The marks of a source from its byte `first` on: (byte of the source, number), ascending.

    Raises:
        StateMismatch: the document is damaged.
    """
    import torch

    known, found = document.manifest.sources[source], []
    ends = torch.tensor([known.text_start + first, known.text_start + known.size])
    for _, rows in document.rows("marks") if document.has_marks else ():
        some = slice(*torch.searchsorted(rows["starts"], ends).tolist())
        starts = rows["starts"][some] - known.text_start
        found += zip(starts.tolist(), rows["numbers"][some].tolist(), strict=True)
    return found


def marks_before(document: Document, end: int) -> int:
    """How many marks are in the first `end` bytes of the text of all sources.

    Raises:
        StateMismatch: the document is damaged.
    """
    import torch

    parts = document.rows("marks", ("starts",)) if document.has_marks else ()
    return sum(int(torch.searchsorted(rows["starts"], end)) for _, rows in parts)
