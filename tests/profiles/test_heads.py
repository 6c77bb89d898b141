"""Head choice and selection: ranks by hand, the product's own scores, one run of a random model."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from row_list import RowList

from longctx.core.engine.encode import encode
from longctx.core.measure.eval.frames import Heldout
from longctx.core.methods.reform import Method, Options
from longctx.core.model.adapter import Layer
from longctx.core.model.files import open_model_files
from longctx.core.model.load import load_decoder
from longctx.core.model.rope import NoRope
from longctx.core.profile.profile import PromptTemplate
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.tokens.safe_splits import plain_backend
from longctx.profiles.tiny.recipe import heads
from longctx.profiles.tiny.recipe.cases import CaseBuilder, retrieval_plans
from longctx.profiles.tiny.recipe.filler import Haystack
from longctx.profiles.tiny.recipe.probes import (
    POOL,
    TOP,
    Reading,
    Selection,
    answer_span,
    hit,
    normalised_ranks,
    selected,
)

ROOT = Path(__file__).parents[2]
FRAMES = ROOT / "profiles" / "tiny" / "heldout-frames.yaml"
SIZES = {"chunk": 64, "budget": 48, "first": 4, "last": 4, "queries": 16}


# --- ranks ---


def ranks_by_hand(scores: list[float], needles: list[tuple[int, int]]) -> float:
    N = len(scores)
    windows = [scores[max(0, i - POOL // 2) : i + POOL // 2] for i in range(N)]
    pooled = [sum(window) / len(window) for window in windows]
    order = sorted(range(N), key=lambda i: (-pooled[i], i))
    tokens = [token for first, end in needles for token in range(first, end)]
    return sum(order.index(token) for token in tokens) / len(tokens) / N


def test_ranks_are_those_counted_by_hand():
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(3, 90, generator=generator, dtype=torch.float64)
    needles = [(10, 14), (60, 61)]
    expected = [ranks_by_hand(row.tolist(), needles) for row in scores]
    assert normalised_ranks(scores, needles).tolist() == pytest.approx(expected)


def test_a_needle_that_stands_out_ranks_first_and_one_that_does_not_last():
    scores = torch.zeros(2, 400)
    scores[0, 200:220], scores[1, 200:220] = 1.0, -1.0
    good, bad = normalised_ranks(scores, [(200, 220)]).tolist()
    assert good < 20 / 400
    assert bad > 380 / 400


def test_two_heads_for_each_task_all_different():
    names = tuple((layer, kind, 0) for layer in range(4) for kind in "qkv")
    order = {name: 0.5 for name in names}
    # The best head for patterns lies too deep; two of the best for questions are taken already.
    pattern = order | {(3, "q", 0): 0.0, (1, "k", 0): 0.1, (2, "v", 0): 0.2}
    question = order | {(1, "k", 0): 0.0, (2, "v", 0): 0.1, (3, "q", 0): 0.2, (0, "v", 0): 0.3}
    ranks = {
        "pattern": torch.tensor([pattern[name] for name in names]),
        "question": torch.tensor([question[name] for name in names]),
    }
    chosen = heads.choose(ranks, names, layers=4)
    assert chosen == ((0, "v", 0), (1, "k", 0), (2, "v", 0), (3, "q", 0))
    shallow = heads.choose(ranks, names, layers=4, deepest=1)
    assert len(set(shallow)) == 4
    assert max(layer for layer, _, _ in shallow) == 1


# --- the product's own reading ---


@pytest.fixture(scope="module")
def material(model_folder):
    """A random model and three cases whose documents are longer than its cache."""
    files = open_model_files(str(model_folder))
    folder = str(files.folder)
    decoder = load_decoder(folder, files.config, "cpu", torch.float32, {})
    backend = plain_backend(files.tokenizer.backend_tokenizer)
    prompt = PromptEncoder(PromptTemplate("<s>"), files.tokenizer)
    hay = Haystack("prose", [ROOT / "samples" / "harbour-book.md"], backend, 0)
    builder = CaseBuilder(Heldout.load(FRAMES), [hay], prompt, backend, 0)
    cases = builder.build(retrieval_plans("two-hop", 3)[::2], 500)
    return decoder, prompt, backend, cases


def test_cosines_give_the_scores_that_reform_gives(material):
    decoder, prompt, _, cases = material
    options = Options(heads=((1, "q", 3), (2, "k", 1), (0, "v", 0)), **SIZES)
    for case in cases:
        cosines = Reading(decoder, options, prompt).cosines(case)
        method, sink = Method(options, decoder.layers), RowList()
        document = torch.from_numpy(case.document.ids.astype("int64"))
        for _ in encode(decoder, method, prompt.prefix(), [document], sink):
            pass
        question, scored = prompt.question(case.question)
        read = partial(decoder.read, question, depth=method.depth)
        scores = method.score(read, scored, sink)
        assert len(document) > 5 * options.budget
        assert cosines.shape == (3, len(document), int(scored.sum()))
        assert torch.allclose(cosines.mean(dim=0).amax(dim=1), scores.raw, atol=1e-5)


def test_selection_takes_the_largest_products_of_the_last_query():
    torch.manual_seed(0)
    layer = Layer(0, 4, 2, 8, 0.3, None, NoRope())
    q, k, v = torch.randn(4, 40, 8), torch.randn(2, 40, 8), torch.randn(2, 40, 8)
    memory = Selection(40, slice(5, 30))
    memory.attend(layer, q, k, v)
    (top,) = memory.top
    for head in range(4):
        products = [float(q[head, -1] @ k[head // 2, token]) for token in range(5, 30)]
        best = sorted(range(25), key=lambda token: -products[token])[:TOP]
        assert top[head].tolist() == best


def test_every_layer_and_head_selects_tokens_of_the_document(material):
    decoder, prompt, _, cases = material
    top = selected(decoder, cases[0], len(prompt.prefix()))
    assert top.shape == (3, 4, TOP)
    assert int(top.min()) >= 0
    assert int(top.max()) < len(cases[0].document.ids)


def test_hits():
    tokens = torch.tensor([[1, 5], [7, 9]])
    assert hit(tokens, [(5, 6)]).tolist() == [True, False]
    assert hit(tokens, [(2, 5), (9, 12)]).tolist() == [False, True]


def test_the_answers_tokens_hold_the_answer(material):
    _, _, backend, cases = material
    for case in cases:
        first, end = answer_span(case, backend)
        assert case.answer in backend.decode(case.document.ids[first:end].tolist())
        assert any(a <= first < end <= b for a, b in case.document.needles[: case.statements])


# --- the command ---


def test_a_run_ranks_every_head_and_chooses_four(model_folder, tmp_path, capsys):
    content = yaml.safe_load(FRAMES.read_text("utf-8"))
    kinds = ("pass-key", "name", "two-hop")
    content["kinds"] = {name: content["kinds"][name] for name in kinds}
    (tmp_path / "frames.yaml").write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    heads.main(
        [
            *(str(model_folder), "--frames", str(tmp_path / "frames.yaml"), "--cases", "2"),
            *("--prose", str(ROOT / "samples" / "harbour-book.md"), "--length", "500"),
            *("--window-length", "700", "--json", str(tmp_path / "heads.json")),
            *("--device", "cpu", "--dtype", "fp32"),
        ]
    )
    found = json.loads((tmp_path / "heads.json").read_text("utf-8"))
    assert len(found["ranks"]) == 3 * (4 + 2 + 2)
    assert len({tuple(head) for head in found["heads"]}) == 4
    assert list(found["together"]) == list(kinds)
    assert 0 < found["together_mean"] < 1
    assert found["together_mean"] == pytest.approx(
        (found["together"]["pass-key"] + found["together"]["name"]) / 2
    )
    needle = torch.tensor(found["recall"]["needle"])
    assert needle.shape == (3, 4)
    assert (needle >= torch.tensor(found["recall"]["answer"])).all()
    assert "chosen" in capsys.readouterr().out
