"""REFORM against its literal transcription, at its limit, and against mutations of itself."""

from dataclasses import dataclass

import numpy as np
import pytest
import reform_transcription as transcription
import torch
from float64_models import exact, weights_of
from mutants import interleaved_mass
from row_list import RowList

from longctx.core.ask.gather import top_tokens
from longctx.core.ask.recompute import recompute
from longctx.core.common.errors import UsageError
from longctx.core.contracts.memory import Scores
from longctx.core.engine.encode import encode
from longctx.core.engine.window import room
from longctx.core.kv.prompt import Prompt
from longctx.core.methods import reform
from longctx.core.methods.reform import Method, Options
from longctx.core.model.adapter import Decoder
from longctx.kernels.door import heaviest_tokens, similarity_max, sliding_max
from longctx.kernels.quantize import quantize

HEADS = ((1, "q", 3), (2, "k", 1), (2, "v", 0), (3, "q", 2))
OPTIONS = Options(heads=HEADS, chunk=48, budget=40, first=6, last=8, queries=16, pool=5, gather=90)
PREFIX, DOCUMENT = 3, 190  # four whole chunks of the input and a tail of one token
IDS = np.random.default_rng(7).integers(0, 61, PREFIX + DOCUMENT)
QUESTION = np.random.default_rng(8).integers(0, 61, 9).tolist()
SCORED = [False, False, True, True, True, True, True, False, False]
VARIANTS = ["llama-default", "qwen2", "qwen3", "mistral-window"]


@dataclass
class Both:
    """Our REFORM and the transcription over the same input."""

    decoder: Decoder
    method: Method
    rows: RowList
    kept: dict
    weights: transcription.Weights
    settings: transcription.Settings
    reading: transcription.Reading

    def scores(self) -> Scores:
        ids, scored = torch.tensor(QUESTION), torch.tensor(SCORED)
        read = lambda memory: self.decoder.read(ids, memory, self.method.depth)  # noqa: E731
        with exact():
            return self.method.score(read, scored, self.rows)

    def transcribed_scores(self) -> tuple[np.ndarray, np.ndarray]:
        return transcription.score(self.reading, self.weights, self.settings, QUESTION, SCORED)


def settings_of(options: Options) -> transcription.Settings:
    return transcription.Settings(
        chunk=options.chunk,
        budget=options.budget,
        first=options.first,
        last=options.last,
        heads=options.heads,
        gather=options.gather,
        pool=options.pool,
        queries=options.queries,
        accumulate=options.accumulate,
    )


class Watched(Method):
    """Notes which input positions each layer keeps after each whole chunk."""

    def __init__(self, options, layers):
        super().__init__(options, layers)
        self.chunks, self.kept = 0, {}

    def note(self):
        for layer, cache in enumerate(self._caches):
            for head, positions in enumerate(cache.positions.tolist()):
                self.kept[self.chunks, layer, head] = positions
        self.chunks += 1


def read_both(model, options: Options = OPTIONS, method_class=Watched) -> Both:
    decoder = Decoder(model)
    method, sink = method_class(options, decoder.layers), RowList()
    ids = torch.from_numpy(IDS)
    pieces = ids[PREFIX:].split(37)  # not the chunks
    with exact():
        for _ in encode(decoder, method, ids[:PREFIX], pieces, sink):
            method.note()
    weights, settings = weights_of(model), settings_of(options)
    reading = transcription.read(weights, IDS.tolist(), settings, prefix=PREFIX)
    return Both(decoder, method, sink, method.kept, weights, settings, reading)


@pytest.fixture(scope="module", params=VARIANTS)
def both(request, make_model) -> Both:
    return read_both(make_model(request.param, torch.float64))


# --- reading ---


def test_the_same_tokens_are_kept_after_every_chunk(both):
    assert both.kept == both.reading.kept
    assert both.kept


def test_the_comparison_is_not_vacuous(make_model):
    both = read_both(make_model("llama-default", torch.float64))
    last = max(chunk for chunk, _, _ in both.kept)
    sets = [tuple(p) for (chunk, _, _), p in both.kept.items() if chunk == last]
    assert len(set(sets)) == len(sets)  # every layer and head kept a set of its own
    assert all(len(s) < (last + 1) * OPTIONS.chunk / 2 for s in sets)


def test_the_embeddings_are_the_same_to_the_bit(both):
    vectors, scales = both.reading.quantised
    assert torch.equal(both.rows.whole("embeddings", "vectors"), torch.from_numpy(vectors))
    assert torch.equal(both.rows.whole("embeddings", "scales"), torch.from_numpy(scales))
    assert len(vectors) == DOCUMENT


def test_the_snapshot_is_the_evicted_cache_and_the_tail(both):
    snapshot = both.method.snapshot()
    assert int(snapshot["seen"]) == PREFIX + DOCUMENT
    for layer, heads in enumerate(both.reading.cache):
        for g, entries in enumerate(heads):
            assert snapshot[f"positions.{layer}"][g].tolist() == [e[0] for e in entries]
            for name, column in (("keys", 1), ("values", 2)):
                expected = np.stack([e[column] for e in entries])
                assert np.abs(snapshot[f"{name}.{layer}"][g].numpy() - expected).max() < 1e-6


def test_accumulated_mass_is_the_running_sum(make_model):
    model = make_model("llama-default", torch.float64)
    options = Options(**{**vars(OPTIONS), "accumulate": True})
    both = read_both(model, options)
    assert both.kept == both.reading.kept
    assert both.kept != read_both(model).kept


def test_a_chunk_at_the_very_end_is_evicted(make_model):
    model = make_model("llama-default", torch.float64)
    options = Options(**{**vars(OPTIONS), "chunk": (PREFIX + DOCUMENT), "budget": 60})
    both = read_both(model, options)
    assert both.kept == both.reading.kept
    assert both.method.snapshot()["keys.0"].shape[1] == 60


# --- a question ---


def test_scores_are_the_transcriptions(both):
    raw, pooled = both.transcribed_scores()
    ours = both.scores()
    assert np.abs(ours.raw.numpy() - raw).max() < 1e-6
    assert np.abs(ours.pooled.numpy() - pooled).max() < 1e-6


def test_the_same_tokens_are_gathered(both):
    raw, pooled = both.transcribed_scores()
    expected = transcription.gather(raw, pooled, both.settings, PREFIX)
    chosen = top_tokens(both.scores(), OPTIONS.gather, DOCUMENT, both.method.edges)
    assert chosen.tolist() == expected
    assert len(expected) == OPTIONS.gather < DOCUMENT / 2


def test_the_answer_is_the_transcriptions(both):
    raw, pooled = both.transcribed_scores()
    chosen = transcription.gather(raw, pooled, both.settings, PREFIX)
    document = IDS[PREFIX:].tolist()
    prefix = IDS[:PREFIX].tolist()
    expected = transcription.answer_logits(both.weights, prefix, document, chosen, QUESTION)
    parts = [torch.tensor(ids) for ids in (prefix, IDS[PREFIX:][chosen].tolist(), QUESTION)]
    with exact():
        _, hidden = recompute(both.decoder, *parts, answer=1)
        logits = both.decoder.logits(hidden)[0]
    assert np.abs(logits.numpy() - expected).max() < 1e-6


def test_a_question_leaves_the_memory_as_it_was(both):
    before = both.method.snapshot()
    first = both.scores()
    again = both.scores()
    assert torch.equal(first.raw, again.raw)
    after = both.method.snapshot()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_restored_snapshot_scores_the_same(both):
    fresh = Method(OPTIONS, both.decoder.layers)
    fresh.restore(both.method.snapshot())
    restored = Both(**{**vars(both), "method": fresh})
    assert torch.equal(restored.scores().raw, both.scores().raw)


def test_only_the_users_words_score(both):
    raw = both.scores().raw
    every = transcription.score(
        both.reading, both.weights, both.settings, QUESTION, [True] * len(QUESTION)
    )[0]
    assert np.abs(raw.numpy() - every).max() > 1e-3


# --- the limit ---


def answer(model, document: int, gather: int) -> torch.Tensor:
    """Logits after the question, by the rule of `Session.ask`."""
    both = read_both(model)
    fit = room(10_000, PREFIX, len(QUESTION), 1, document, gather)
    chosen = top_tokens(both.scores(), fit.tokens, document, both.method.edges)
    ids = torch.from_numpy(IDS)
    with exact():
        parts = (ids[:PREFIX], ids[PREFIX:][chosen], torch.tensor(QUESTION))
        return both.decoder.logits(recompute(both.decoder, *parts, answer=1)[1])[0]


def test_up_to_gather_the_logits_are_full_attentions_and_one_above_they_differ(make_model):
    model = make_model("llama-default", torch.float64)
    whole = torch.cat([torch.from_numpy(IDS), torch.tensor(QUESTION)])
    decoder = Decoder(model)
    with exact():
        own = decoder.logits(decoder.read(whole, Prompt(len(whole)))[-1:])[0]
    limit = PREFIX + DOCUMENT  # prefix + document <= gather
    assert (answer(model, DOCUMENT, limit) - own).abs().max() < 1e-4
    assert (answer(model, DOCUMENT, limit - 1) - own).abs().max() > 1e-3


# --- ties, by hand ---


def test_ties_go_to_the_higher_raw_score_then_to_the_earlier_token():
    raw = torch.tensor([0.1, 0.3, 0.9, 0.3, 0.2, 0.0, 0.0, 0.5, 0.0])
    pooled = sliding_max(raw, 2)
    assert pooled.tolist() == pytest.approx([0.9, 0.9, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.5])
    # The cut lies inside the plateau of 0.9: token 2, then 1 before 3 (equal), then 4.
    picks = [top_tokens(Scores(raw, pooled), n, 9, (0, 0)).tolist() for n in (1, 2, 3, 4)]
    assert picks == [[2], [1, 2], [1, 2, 3], [1, 2, 3, 4]]


def test_the_edges_are_always_gathered_and_count():
    raw = torch.tensor([0.0, 0.0, 0.9, 0.1, 0.8, 0.0, 0.0])
    assert top_tokens(Scores(raw, raw), 4, 7, (2, 1)).tolist() == [0, 1, 2, 6]
    assert top_tokens(Scores(raw, raw), 7, 7, (2, 1)).tolist() == list(range(7))


def test_equal_mass_keeps_the_earlier_token():
    mass = torch.tensor([[9.0, 1.0, 2.0, 2.0, 2.0, 1.0, 0.0]])
    assert heaviest_tokens(mass, 4, 1, 1).tolist() == [[0, 2, 3, 6]]
    assert later_first(mass, 4, 1, 1).tolist() == [[0, 3, 4, 6]]  # so the rule shows in this case


# --- mutations of ours must fail ---


def later_first(mass, budget, first, last):
    """Ties go to the later token."""
    middle = mass[:, first : mass.shape[1] - last].flip(1)
    order = middle.argsort(dim=1, descending=True, stable=True)[:, : budget - first - last]
    chosen = (middle.shape[1] - 1 - order).sort(dim=1).values + first
    ends = [torch.arange(first), torch.arange(mass.shape[1] - last, mass.shape[1])]
    head, tail = (end.expand(len(mass), -1) for end in ends)
    return torch.cat([head, chosen, tail], dim=1)


class OriginalPositions(Watched):
    """Attends at the positions in the input instead of consecutive ones."""

    def attend(self, layer, q, k, v):
        if layer.index == self.depth - 1:
            return super().attend(layer, q, k, v)
        cache = self._caches[layer.index]
        gone = 0 if cache is None else self._seen - cache.keys.shape[1]

        class Shifted:
            index, scale, window = layer.index, layer.scale, layer.window
            kv_heads, head_dim = layer.kv_heads, layer.head_dim
            softcap, sinks, attention_lse = layer.softcap, layer.sinks, layer.attention_lse

            def rotate_chunk(self, q, k, cached):
                # The cached keys stay where they were, the chunk moves on.
                C, S = cached.shape[1], cached.shape[1] + q.shape[1]
                places = torch.arange(S)
                places[C:] += gone
                keys = layer.rotate(torch.cat([cached, k], dim=1), places, S + gone)
                return layer.rotate(q, places[C:], S + gone), keys

        return super().attend(Shifted(), q, k, v)


@pytest.mark.parametrize(
    ("patch", "method_class"),
    [
        ({"attention_mass": interleaved_mass}, Watched),
        ({}, OriginalPositions),
    ],
    ids=["another GQA map", "original positions"],
)
def test_mutations_keep_other_tokens(make_model, monkeypatch, patch, method_class):
    for name, value in patch.items():
        monkeypatch.setattr(reform, name, value)
    both = read_both(make_model("llama-default", torch.float64), method_class=method_class)
    assert both.kept != both.reading.kept


# --- kernels' references and bad options ---


def test_quantized_vectors_come_back_within_half_a_step():
    x = torch.nn.functional.normalize(
        torch.randn(50, 3, 16, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    x[0, 0] = 0
    vectors, scales = quantize(x)
    back = vectors.float() * scales.float()[..., None]
    assert (back - x).abs().max() <= scales.float().max() * 0.51
    assert vectors.abs().amax(dim=-1)[1:].min() == 127
    assert scales[0, 0] == 0


def test_similarity_does_not_depend_on_how_the_document_is_cut():
    generator = torch.Generator().manual_seed(1)
    vectors, scales = quantize(torch.randn(500, 2, 64, generator=generator))
    query, query_scales = quantize(torch.randn(7, 2, 64, generator=generator))
    whole = similarity_max(vectors, scales, query, query_scales)
    parts = [
        similarity_max(v, s, query, query_scales)
        for v, s in zip(vectors.split(83), scales.split(83), strict=True)
    ]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": ()}, "heads"),
        ({"heads": ((1, "x", 0),)}, "heads"),
        ({"budget": 20}, "half of budget"),
        ({"chunk": 0}, "chunk"),
    ],
)
def test_bad_options_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Options(**{**vars(OPTIONS), **change})


@pytest.mark.parametrize("head", [(4, "q", 0), (1, "k", 2), (1, "q", 4)])
def test_a_head_that_the_model_does_not_have_is_refused(make_model, head):
    decoder = Decoder(make_model("llama-default"))
    with pytest.raises(UsageError, match="profile of this model"):
        Method(Options(**{**vars(OPTIONS), "heads": (head,)}), decoder.layers)
