"""What tokens may be gathered by: its names, what it needs, and the mixture of two scores."""

import sys

import pytest
import torch

from longctx.cli import options
from longctx.core import scoring
from longctx.core.errors import LongctxError, UsageError
from longctx.core.gather import top_tokens
from longctx.core.memory import Scores
from longctx.core.scoring import Sought, bm25, hybrid


class Index:
    """Stands for the words of a document."""

    def __init__(self, *values: float):
        self.values, self.asked = torch.tensor(values), []

    def scores(self, words: str) -> Scores:
        self.asked.append(words)
        return Scores(self.values, self.values)


def sought(raw: list[float], pooled: list[float], words: list[float]) -> Sought:
    own = Scores(torch.tensor(raw), torch.tensor(pooled))
    return Sought("who?", lambda: own, Index(*words))


def test_the_folder_is_the_registry():
    assert scoring.names() == ["method", "bm25", "hybrid"]
    assert scoring.load("hybrid") is hybrid.scores
    for refused in ("nope", "", "__init__", "Method"):
        with pytest.raises(UsageError, match=r"cannot gather by '.*Known: method, bm25, hybrid\."):
            scoring.require(refused)


def test_the_help_names_all():
    (setting,) = options.GatherBy.__metadata__
    assert all(f"{name} (" in setting.help for name in scoring.names())


@pytest.mark.parametrize("library", scoring.EXTRA)
def test_without_the_extra_only_the_method_s_scores_are_there(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    scoring.require("method")
    for name in ("bm25", "hybrid"):
        said = rf"gather by '{name}': {library} cannot .*pip install 'longctx\[bm25\]', or use "
        with pytest.raises(UsageError, match=said + "--gather-by method"):
            scoring.load(name)
        scoring.check(name)  # a profile may still name it


def test_bm25_is_the_index_s_and_asks_for_no_other_scores():
    index = Index(1.0, 2.0)
    found = bm25.scores(Sought("who?", lambda: pytest.fail("asked"), index))
    assert found.pooled.tolist() == [1.0, 2.0]
    assert index.asked == ["who?"]


def test_hybrid_by_hand():
    found = hybrid.scores(sought([1, 2, 5, 3], [2, 5, 5, 4], [0, 0, 6, 6]))
    # Pooled: mean 4, variance (4 + 1 + 1 + 0) / 4; words: mean 3, deviation 3.
    deviation = 1.5**0.5
    pooled = [-2 / deviation - 1, 1 / deviation - 1, 1 / deviation + 1, 1]
    raw = [-3 / deviation - 1, -2 / deviation - 1, 1 / deviation + 1, -1 / deviation + 1]
    assert torch.allclose(found.pooled, torch.tensor(pooled).double() / 2)
    assert torch.allclose(found.raw, torch.tensor(raw).double() / 2)


def test_ties_of_hybrid_go_to_the_token_s_own_score_then_to_the_earlier():
    found = hybrid.scores(sought([1, 3, 2, 3, 3], [3, 3, 3, 3, 0], [4, 4, 4, 4, 0]))
    assert found.pooled[:4].unique().numel() == 1
    chosen = [top_tokens(found, count, 5, (0, 0)).tolist() for count in (1, 2, 3, 4)]
    assert chosen == [[1], [1, 3], [1, 2, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e-30, 3e8])
def test_scores_that_do_not_vary_leave_the_choice_to_the_others(constant):
    same = [constant] * 7
    ranks = [3.0, 1, 7, 2, 6, 4, 5]
    for raw, pooled, words in ((ranks, ranks, same), (same, same, ranks)):
        found = hybrid.scores(sought(raw, pooled, words))
        assert found.pooled.isfinite().all()
        assert found.pooled.argsort().tolist() == torch.tensor(ranks).argsort().tolist()
        assert found.pooled.std(correction=0) == pytest.approx(0.5)
    none = hybrid.scores(sought(same, same, same))
    assert none.pooled.tolist() == none.raw.tolist() == [0.0] * 7


def test_ties_where_nothing_pooled_varies_still_go_to_the_token_s_own_score():
    found = hybrid.scores(sought([1, 3, 2], [3, 3, 3], [0, 0, 0]))
    assert [top_tokens(found, n, 3, (0, 0)).tolist() for n in (1, 2)] == [[1], [1, 2]]


def test_hybrid_counts_no_words_where_the_method_has_no_scores():
    index = Index(1.0)

    def none() -> Scores:
        raise LongctxError("none", "", "")

    with pytest.raises(LongctxError):
        hybrid.scores(Sought("who?", none, index))
    assert index.asked == []


def test_no_tokens_have_no_scores():
    assert hybrid.scores(sought([], [], [])).pooled.tolist() == []
