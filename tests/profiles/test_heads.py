"""Head choice by people's questions: places and ranks by hand, swaps, the product's own scores."""

import math
import re
from argparse import Namespace
from functools import partial
from pathlib import Path

import pytest
import torch
from row_list import RowList

from longctx.core.common.errors import UsageError
from longctx.core.engine.encode import encode
from longctx.core.methods.reform import Method, Options
from longctx.core.model.files import open_model_files
from longctx.core.model.load import load_decoder
from longctx.core.profile.profile import load
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.tokens.safe_splits import plain_backend
from longctx.profiles.recipe import heads
from longctx.profiles.recipe.heads import Search, joined, log_rank

SHEET = """\
document: {name}.md
questions:
  - {{question: "What did the keeper salt?", answer: "the news", line: 4}}
  - {{question: "Who came home?", answer: "a boat", line: 1}}
"""
DOCUMENT = """\
The keeper wrote of the news that {name} saw: a boat came home at dawn with salt.

Rain came, and a boat with it, and salt, and rain.
He salted the news.

"""
PROFILES = [(1, "q", 3), (2, "k", 1)]  # the heads of the random model's profile


@pytest.fixture
def sheets(tmp_path) -> list[Path]:
    """Three sheets; the second one's document is not there."""
    (tmp_path / "questions").mkdir()
    paths = [tmp_path / "questions" / f"{name}.yaml" for name in ("anna", "nobody", "zoe")]
    for path in paths:
        path.write_text(SHEET.format(name=path.stem), "utf-8")
        if path.stem != "nobody":
            document = DOCUMENT.format(name=path.stem) * 3
            (tmp_path / f"{path.stem}.md").write_text(document, "utf-8")
    return paths


def options_for(model: Path, sheets: list[Path], first: int, last: int) -> list[str]:
    layers = ("--layers", str(first), str(last), "--count", "2")
    return [str(model), *map(str, sheets), *layers, "--device", "cpu", "--dtype", "fp32"]


# --- places and ranks ---


def test_an_answer_is_found_on_the_line_that_its_sheet_names(sheets):
    text, asked = joined(sheets)
    assert [text[first:end] for _, first, end in asked] == ["the news", "a boat"] * 2
    assert [text[:first].count("\n") + 1 for _, first, _ in asked] == [4, 1, 19, 16]
    assert asked[2][0] == "What did the keeper salt?"


def test_sheets_without_documents_are_refused(sheets):
    with pytest.raises(UsageError, match="no questions"):
        joined(sheets[1:2])


def test_ranks_are_those_counted_by_hand():
    scores = torch.tensor([0.9, 0.5, 0.5, 0.1, 0.5])
    # Token 1: one before it, two its equals. Token 3: behind all others.
    expected = [math.log(1), math.log(1 + 1 + 1), math.log(4 + 1)]
    assert log_rank(scores, range(0, 1)) == expected[0]
    assert float(log_rank(scores, range(0, 2))) == pytest.approx(sum(expected[:2]) / 2)
    assert float(log_rank(scores, range(3, 4))) == pytest.approx(expected[2])


# --- the search ---


def test_swaps_leave_a_choice_that_greed_alone_would_keep(monkeypatch):
    a, b, c, d = ((1, "q", head) for head in range(4))
    known = {(a,): 0.5, (b,): 0.6, (c,): 0.7, (d,): 0.9}
    known |= {(a, b): 0.4, (a, c): 0.45, (b, c): 0.1}
    known |= {(a, d): 0.8, (b, d): 0.8, (c, d): 0.0}  # from (b, c) one more swap

    def losses(base, among):
        sets = (tuple(sorted((*base, head))) for head in among if head not in base)
        return {heads: known[heads] for heads in sets}

    search = Search((a, b, c, d), torch.zeros(4, 1, 1), [], [], 0)
    search.losses = losses
    assert search.choose((d, c, b, a), 2, candidates=3) == (b, c)
    assert search.choose((d, c, b, a), 2, candidates=4) == (c, d)
    assert search.choose((a, b, d), 1, candidates=9) == (a,)
    assert search.choose((a, b), 3, candidates=9) == (a, b)


def test_heads_that_point_at_the_answer_together_are_found():
    # Either good head has a token of its own beside the answer; the bad ones point elsewhere.
    heads = tuple((layer, "v", head) for layer in (1, 2) for head in (0, 1))
    text = torch.zeros(4, 9, 2)
    text[..., 1] = 1.0
    for number, tokens in enumerate([(5, 1), (7, 8), (5, 3), (0, 2)]):
        text[number, list(tokens)] = torch.tensor([1.0, 0.0])
    question = torch.tensor([1.0, 0.0]).expand(4, 1, 2)
    search = Search(heads, text, [question], [range(5, 6)], pool=0)
    assert search.choose(heads, 2, candidates=4) == ((1, "v", 0), (2, "v", 0))
    assert search.loss(((1, "v", 0), (2, "v", 0))) == 0
    assert search.loss(((1, "v", 0),)) == pytest.approx(math.log(1.5))
    wide = Search(heads, text, [question], [range(5, 6)], pool=1)
    assert wide.loss(((1, "v", 0), (2, "v", 0))) == pytest.approx(math.log(2))


# --- the product's own reading ---


def test_losses_are_those_of_the_scores_that_reform_gives(model_folder, sheets):
    files = open_model_files(str(model_folder))
    decoder = load_decoder(str(files.folder), files.config, "cpu", torch.float32, {})
    profile = load((files.folder / "profile.yaml").read_text("utf-8"), "profile")
    prompt = PromptEncoder(profile.prompt, files.tokenizer)
    options = Options(**{**profile.methods["reform"], "heads": tuple(PROFILES)})
    text, asked = joined(sheets)
    backend = plain_backend(files.tokenizer.backend_tokenizer)
    document = torch.tensor(backend.encode(text).ids)
    assert len(document) > 5 * options.budget
    method, sink = Method(options, decoder.layers), RowList()
    for _ in encode(decoder, method, prompt.prefix(), [document], sink):
        pass
    scores = []
    for question, _, _ in asked:
        ids, scored = prompt.question(question)
        read = partial(decoder.read, ids, depth=method.depth)
        scores.append(method.score(read, scored, sink).pooled)

    given = {"model": str(model_folder), "sheets": sheets, "layers": (0, 2)}
    search, _, own = heads.read(Namespace(**given, device="cpu", dtype="fp32"))
    assert list(own) == PROFILES
    told = [backend.decode(document[r.start : r.stop].tolist()) for r in search.answers]
    assert [words.strip() for words in told] == ["the news", "a boat"] * 2
    ranks = [log_rank(*pair) for pair in zip(scores, search.answers, strict=True)]
    expected = float(torch.stack(ranks).mean())
    assert expected > 0.5
    assert search.loss(own) == pytest.approx(expected, abs=1e-3)


# --- the command ---


def test_a_run_prints_its_choice_beside_the_profiles_heads(model_folder, sheets, capsys):
    heads.main(options_for(model_folder, sheets, 2, 2))
    printed, told = capsys.readouterr()
    assert printed.startswith("4 questions")
    assert "nobody.yaml is left out" in told
    assert ", 8 heads" in told
    found = re.findall(r"^  (\w+) +(\[\[.*\]\]): (\d\.\d+)$", printed, re.MULTILINE)
    assert [name for name, _, _ in found] == ["profile", "chosen"]
    assert found[0][1] == "[[1, 'q', 3], [2, 'k', 1]]"
    assert re.findall(r"\[(\d), '", found[1][1]) == ["2", "2"]  # layers


def test_layers_that_the_model_does_not_have_are_refused(model_folder, sheets):
    with pytest.raises(UsageError, match="no layers 5 to 7: the model has 0 to 2"):
        heads.main(options_for(model_folder, sheets, 5, 7))
