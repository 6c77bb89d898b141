"""Which documents a question is asked of, beside bm25s."""

import hashlib

import pytest
import torch
from bm25s import BM25
from small_documents import HEADER
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve import document_selection, lexical
from longctx.core.retrieve.document_selection import Terms, best_documents
from longctx.core.store.document import Document
from longctx.core.store.library import Library

VOCABULARY = {str(number): number for number in range(12)}


@pytest.fixture
def document_of(tmp_path):
    """Writes a document of these token ids, a byte each."""

    def make(name: str, ids: list[int]) -> Document:
        library = Library.open(tmp_path / "library", create=True)
        data = b"x" * len(ids)
        with library.writer(name, HEADER, shard_rows=8) as writer:
            writer.begin_source("x.txt")
            writer.add_bytes(data)
            starts = torch.arange(len(ids))
            writer.append("tokens", {"ids": torch.tensor(ids).int(), "starts": starts})
            writer.end_source(len(ids), hashlib.sha256(data).hexdigest(), "utf-8", 0)
            writer.complete({"none": torch.zeros(0)})
        return library.document(name)

    return make


def by_bm25s(texts: list[list[int]], question: list[int]) -> list[float]:
    """The score of each text's best passage of `PASSAGE` tokens, as bm25s has it."""
    size = document_selection.PASSAGE
    cut = [[text[i : i + size] for i in range(0, len(text), size)] for text in texts]
    index = BM25(k1=lexical.K1, b=lexical.B, method="lucene")
    corpus = [passage for passages in cut for passage in passages]
    index.index((corpus, VOCABULARY), show_progress=False)
    scores = iter(index.get_scores_from_ids(question).tolist())
    return [max(next(scores) for _ in passages) for passages in cut]


@pytest.mark.parametrize("seed", range(4))
def test_documents_rank_as_by_their_best_passage_of_bm25s(document_of, monkeypatch, seed):
    monkeypatch.setattr(document_selection, "PASSAGE", 6)
    generator = torch.Generator().manual_seed(seed)
    texts = [
        torch.randint(0, 12, (size,), generator=generator).tolist()
        for size in (5, 6, 7, 30, 31, 40, 11, 12)
    ]
    documents = [document_of(f"d{number}", text) for number, text in enumerate(texts)]
    numbered = torch.full((12,), -1)
    numbered[torch.tensor([3, 7, 8])] = torch.arange(3)
    scores = by_bm25s(texts, [3, 7, 8])
    assert len({round(score, 4) for score in scores}) > 5
    ranked = sorted(range(len(texts)), key=lambda i: (-round(scores[i], 5), i))
    for count in range(1, 9):
        assert best_documents(iter(documents), numbered, count) == sorted(ranked[:count])


def test_without_a_word_in_common_the_first_documents_are_asked(document_of):
    documents = [document_of(f"d{number}", [1, 2, 3]) for number in range(3)]
    assert best_documents(documents, torch.full((12,), -1), 2) == [0, 1]


def test_tokens_that_the_model_does_not_have(document_of):
    with pytest.raises(StateMismatch, match="'bad' is damaged"):
        best_documents([document_of("bad", [1, 99])], torch.full((12,), -1), 1)


def test_terms_are_the_texts_of_tokens_without_case_and_spaces():
    vocabulary = ["<s>", "boat", "Ġboat", "ĠBoat", "Ċ", ",", "Ġkeeper", "Ã", "©", "Ġ7"]
    backend = Tokenizer(models.WordLevel({text: i for i, text in enumerate(vocabulary)}, "<s>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>"])
    terms = Terms(backend, 12)  # the model has two more than the tokenizer
    numbered = terms.numbered(torch.tensor([0, 3, 5, 9, 1, 8]))
    assert numbered.tolist() == [-1, 0, 0, 0, -1, -1, -1, -1, 2, 1, -1, -1]
