"""The adapter: every architecture runs over memories exactly as it runs by itself."""

import pytest
import torch
from transformers import AutoConfig, GPT2Config

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.kv.prompt import Prompt
from longctx.core.model import adapter
from longctx.core.model import load as loading
from longctx.core.model.adapter import Decoder, EarlyExit
from longctx.core.model.architectures import ADAPTERS, Adapter
from longctx.core.model.attention import causal_attention
from longctx.core.model.load import load_decoder, self_check

TOKENS = torch.randint(0, 61, (80,), generator=torch.Generator().manual_seed(3))


def own_logits(model, ids: torch.Tensor) -> torch.Tensor:
    model.set_attn_implementation("eager")
    with torch.no_grad():
        logits = model(ids[None], use_cache=False).logits[0]
    model.set_attn_implementation(adapter.ATTENTION)
    return logits


def read_in_pieces(decoder: Decoder, ids: torch.Tensor, cuts: list[int]) -> torch.Tensor:
    memory = Prompt(capacity=len(ids))
    pieces = ids.tensor_split(cuts)
    return torch.cat([decoder.logits(decoder.read(piece, memory)) for piece in pieces])


def test_one_pass_equals_the_model_itself(architecture, make_model):
    decoder = Decoder(model := make_model(architecture))
    own = own_logits(model, TOKENS)
    ours = read_in_pieces(decoder, TOKENS, [])
    assert (ours - own).abs().max() < 1e-4
    assert own.std() > 0.1  # the logits say something


def test_chunks_and_single_tokens_equal_one_pass(architecture, make_model):
    model = make_model(architecture)
    decoder = Decoder(model)
    # Where frequencies depend on the length, a chunk's states do too; a fixed length is compared.
    ids = TOKENS[:30] if "dynamic" in architecture or "longrope" in architecture else TOKENS
    ours = read_in_pieces(decoder, ids, [17, 24, 25, 26])
    assert (ours - own_logits(model, ids)).abs().max() < 1e-4


def test_the_window_of_a_sliding_layer_is_crossed(make_model):
    wide, narrow = make_model("mistral"), make_model("mistral-window")
    apart = (own_logits(wide, TOKENS) - own_logits(narrow, TOKENS)).abs().max(dim=1).values
    assert apart[:24].max() < 1e-5
    assert apart[24:].min() > 1e-3


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_a_long_window_leaves_nothing_behind_for_a_short_one(make_model, rope):
    decoder = Decoder(model := make_model(f"llama-{rope}", max_position_embeddings=48))
    short = TOKENS[:20]
    before = read_in_pieces(decoder, short, [])
    read_in_pieces(decoder, TOKENS, [])
    assert torch.equal(read_in_pieces(decoder, short, []), before)
    assert (before - own_logits(model, short)).abs().max() < 1e-4


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_kept_keys_move_to_the_frequencies_of_a_grown_window(make_model, rope):
    # One layer: its keys do not depend on the frequencies, so growing must give one pass's result.
    model = make_model(f"llama-{rope}", num_hidden_layers=1)
    ours = read_in_pieces(Decoder(model), TOKENS, [30])
    assert (ours[30:] - own_logits(model, TOKENS)[30:]).abs().max() < 1e-4


def test_positions_matter(make_model):
    """The negative control: the same layers without positions give other logits."""

    class NoPositions(Prompt):
        def attend(self, layer, q, k, v):
            return causal_attention(q, k, v, layer.scale, layer.window)

    decoder = Decoder(model := make_model("llama-default"))
    ours = decoder.logits(decoder.read(TOKENS, NoPositions(len(TOKENS))))
    assert (ours - own_logits(model, TOKENS)).abs().max() > 0.1


# --- early exit ---


class Exits(Prompt):
    def attend(self, layer, q, k, v):
        if layer.index == 2:
            raise EarlyExit
        return super().attend(layer, q, k, v)


class Fails(Prompt):
    def attend(self, layer, q, k, v):
        raise RuntimeError("out of luck")


def test_depth_runs_the_first_layers_and_puts_the_rest_back(make_model):
    decoder = Decoder(model := make_model("llama-default"))
    whole = read_in_pieces(decoder, TOKENS, [])
    two = decoder.logits(decoder.read(TOKENS, Prompt(len(TOKENS)), depth=2))
    assert torch.equal(read_in_pieces(decoder, TOKENS, []), whole)
    model.config.num_hidden_layers = 2  # transformers' own way to the first two layers
    assert (two - own_logits(model, TOKENS)).abs().max() < 1e-4
    assert (two - whole).abs().max() > 0.1


@pytest.mark.parametrize("memory", [Exits, Fails])
def test_an_end_inside_a_pass_leaves_the_model_as_it_was(make_model, memory):
    decoder = Decoder(model := make_model("llama-default"))
    whole = read_in_pieces(decoder, TOKENS, [])
    if memory is Exits:
        assert decoder.read(TOKENS, memory(len(TOKENS)), depth=3) is None
    else:
        with pytest.raises(RuntimeError, match="out of luck"):
            decoder.read(TOKENS, memory(len(TOKENS)), depth=3)
    assert not model.base_model.rotary_emb._forward_hooks
    assert len(model.base_model.layers) == 4
    assert torch.equal(read_in_pieces(decoder, TOKENS, []), whole)


# --- the self-check and what is refused ---


def test_the_self_check_passes_for_every_architecture(architecture, make_model):
    self_check(Decoder(make_model(architecture))._model)


def test_a_corrupted_adapter_row_is_refused(make_model, monkeypatch):
    model = make_model("mistral-window")
    monkeypatch.setitem(ADAPTERS, "mistral", Adapter("Mistral"))
    with pytest.raises(LongctxError, match="cannot run this mistral model exactly"):
        self_check(Decoder(model)._model)


def test_load_checks_once_and_refuses_a_corrupted_row(make_model, monkeypatch, tmp_path):
    make_model("mistral-window").save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    passed: dict[str, bool] = {}
    load = lambda: load_decoder(str(tmp_path), config, "cpu", torch.float32, passed)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setitem(ADAPTERS, "mistral", Adapter("Mistral"))
        with pytest.raises(LongctxError, match="exactly"):
            load()
    assert passed == {}
    load()
    assert list(passed.values()) == [True]
    monkeypatch.setattr(loading, "self_check", lambda model: pytest.fail("checked twice"))
    load()


def test_an_unknown_architecture_is_refused_by_name(tmp_path):
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16)
    with pytest.raises(UsageError, match=r"'gpt2'.*no adapter.*: cohere2, .*, starcoder2"):
        load_decoder(str(tmp_path), config, "cpu", torch.float32, {})
