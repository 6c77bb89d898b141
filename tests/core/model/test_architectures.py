"""Every row: what it claims shows in models, REFORM over it is the model's own attention."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig

from longctx.core.ask.recompute import recompute
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.kv.prompt import Prompt
from longctx.core.methods import reform
from longctx.core.methods.reform import Method, Options
from longctx.core.model import architectures
from longctx.core.model.adapter import ATTENTION, Decoder
from longctx.core.model.architectures import ADAPTERS, COLUMNS, REFUSED, Adapter, adapter_of
from longctx.core.model.files import ModelFiles
from longctx.core.model.load import _small_copy, load_decoder, self_check
from longctx.core.model.rope import NoRope

ROOT = Path(__file__).parents[3]
IDS = torch.randint(0, 61, (80,), generator=torch.Generator().manual_seed(5))
FIELDS = ("window", "softcap", "sinks", "rotates", "rotary_dims")


def kind_of(model) -> str:
    return model.config.model_type


def own_attention(model, ids: torch.Tensor) -> torch.Tensor:
    """(H, n, n): the attention of the model's first layer, as transformers computes it."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(ids[None], use_cache=False, output_attentions=True).attentions[0][0]
    model.set_attn_implementation(ATTENTION)
    return weights


def read_chunks(decoder: Decoder, method: Method, ids: torch.Tensor) -> list[torch.Tensor]:
    vectors = []
    for chunk in ids.split(method.chunk):
        decoder.read(chunk, method, method.depth)
        rows = method.rows()["embeddings"]
        vectors.append(rows["vectors"].float() * rows["scales"].float()[..., None])
    return vectors


# --- REFORM ---


def test_kept_tokens_are_attended_at_consecutive_positions(architecture, make_model, monkeypatch):
    """What a head's kept tokens and the next chunk receive is what the model itself gives them."""
    decoder = Decoder(model := make_model(architecture))
    if decoder.layers[0].window is not None:
        assert architecture.endswith("-window")  # all layers have one: none selects tokens
        return
    masses = []

    def noted(*args, **extra):
        masses.append(real(*args, **extra))
        return masses[-1]

    real = reform.attention_mass
    monkeypatch.setattr(reform, "attention_mass", noted)
    options = Options(((1, "q", 0),), chunk=40, budget=24, first=2, last=4, queries=16, gather=8)
    method = Method(options, decoder.layers)
    decoder.read(IDS[:40], method, method.depth)
    kept = method.snapshot()["positions.0"]
    decoder.read(IDS[40:], method, method.depth)
    group = decoder.layers[0].query_heads // len(kept)
    assert any(len(set(p.tolist())) == 24 and p[-1] - p[0] > 30 for p in kept)  # with gaps
    for g, positions in enumerate(kept):
        own = own_attention(model, torch.cat([IDS[positions], IDS[40:]]))
        expected = own[g * group : (g + 1) * group, -16:].sum(dim=(0, 1))
        assert (masses[1][g] - expected).abs().max() < 1e-4


def test_without_eviction_chunks_embed_as_one_pass_does(architecture, make_model):
    decoder = Decoder(make_model(architecture))
    # Where frequencies depend on the length, a chunk's states do too.
    ids = IDS[:30] if "dynamic" in architecture or "longrope" in architecture else IDS
    heads = ((1, "k", 0), (2, "v", 0), (3, "q", 1))
    cut = Options(heads, chunk=16, budget=80, first=2, last=4, queries=8, gather=8)
    whole = replace(cut, chunk=80)
    ours = read_chunks(decoder, Method(cut, decoder.layers), ids)
    expected = read_chunks(decoder, Method(whole, decoder.layers), ids)
    # int8: a value at the edge of two steps may fall to either
    assert (torch.cat(ours) - torch.cat(expected)).abs().max() < 0.01


def test_recomputing_and_decoding_give_the_models_own_logits(architecture, make_model):
    decoder = Decoder(model := make_model(architecture))
    memory, hidden = recompute(decoder, IDS[:3], IDS[3:60], IDS[60:70], answer=3)
    steps = [decoder.logits(hidden)]
    # A longer window has other frequencies in these: no cache gives what one pass would.
    more = [] if "dynamic" in architecture else IDS[70:73].split(1)
    steps += [decoder.logits(decoder.read(token, memory)) for token in more]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(IDS[None, : 70 + len(more)], use_cache=False).logits[0, 69:]
    assert (torch.cat(steps) - own).abs().max() < 1e-4


# --- the rows ---


@pytest.fixture(scope="module")
def layers_by_kind(all_architectures, make_model) -> dict:
    """The layers of all tiny models of each row."""
    found: dict[str, list] = {}
    for name in all_architectures:
        model = make_model(name)
        found.setdefault(kind_of(model), []).extend(Decoder(model).layers)
    return found


def is_partial(layer) -> bool:
    x = torch.randn(1, 1, layer.head_dim, generator=torch.Generator().manual_seed(1))
    stays = layer.rotate(x, slice(3, 4), 4) == x
    return bool(stays.any()) and not bool(stays.all())


def test_every_row_has_tiny_models(layers_by_kind):
    assert set(layers_by_kind) == set(ADAPTERS)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_the_columns_of_a_row_show_in_its_models(layers_by_kind, kind):
    layers = layers_by_kind[kind]
    shown = {
        "sliding windows": any(layer.window for layer in layers),
        "soft cap": any(layer.softcap for layer in layers),
        "sinks": any(layer.sinks is not None for layer in layers),
        "layers without rotary": any(isinstance(layer.rope, NoRope) for layer in layers),
        "partial rotary": any(is_partial(layer) for layer in layers),
    }
    assert shown == {name: has(ADAPTERS[kind]) for name, has in COLUMNS.items()}


def test_no_field_of_a_row_can_be_left_out(all_architectures, make_model, monkeypatch):
    """The self-check refuses each row in turn without each of its fields."""
    refused, default = set(), Adapter("")
    for name in all_architectures:
        model = Decoder(make_model(name))._model
        row = ADAPTERS[kind_of(model)]
        for field in FIELDS:
            without = replace(row, **{field: getattr(default, field)})
            monkeypatch.setitem(ADAPTERS, kind_of(model), without)
            try:
                self_check(model)
            except (LongctxError, RuntimeError):  # RuntimeError: the shapes do not fit
                refused.add((kind_of(model), field))
        monkeypatch.setitem(ADAPTERS, kind_of(model), row)
    assert refused == {
        (kind, field)
        for kind, row in ADAPTERS.items()
        for field in FIELDS
        if getattr(row, field) is not getattr(default, field)
    }


def test_the_self_check_takes_few_experts_and_tokens(make_model):
    small = _small_copy(Decoder(make_model("qwen2_moe", num_experts=16))._model)
    shapes = {n: t.shape for n, t in small.state_dict().items()}
    experts = [shape[0] for name, shape in shapes.items() if name.endswith("experts.down_proj")]
    assert experts
    assert set(experts) == {2}
    assert shapes["embed_tokens.weight"][0] == 8


# --- what is refused, and models inside others ---


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("DeepseekV3Config", "'deepseek_v3'.*compressed latents"),
        ("Qwen3NextConfig", "'qwen3_next'.*linear-attention layers"),
        ("JambaConfig", "'jamba'.*state-space"),
        ("HunYuanDenseV1Config", "'hunyuan_v1_dense'.*after the rotary embedding"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(family, reason, tmp_path):
    config = getattr(transformers, family)()
    with pytest.raises(UsageError, match=reason):
        load_decoder(str(tmp_path), config, "cpu", torch.float32, {})


def test_nothing_is_both_run_and_refused():
    for reason, names in REFUSED.items():
        assert not names & set(ADAPTERS)
        for name in names:
            with pytest.raises(UsageError) as caught:
                adapter_of(SimpleNamespace(model_type=name))
            assert reason in str(caught.value)


def test_a_model_that_lacks_weights_is_refused(make_model, tmp_path):
    model = make_model("llama-default")
    kept = {k: v for k, v in model.state_dict().items() if "layers.2.mlp" not in k}
    model.save_pretrained(tmp_path, state_dict=kept)
    with pytest.raises(UsageError, match=r"lack 3 tensors.*layers\.2\.mlp"):
        load_decoder(str(tmp_path), model.config, "cpu", torch.float32, {})


def test_weights_in_another_form_are_refused(make_model):
    model = Decoder(make_model("llama-default"))._model
    model.base_model.layers[1].mlp.up_proj = torch.nn.Identity()
    with pytest.raises(UsageError, match=r"no tensor layers\.1\.mlp\.up_proj\.weight.*bf16"):
        self_check(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gpt_oss_is_loaded_from_mxfp4(make_model, tmp_path, dtype):
    model = make_model("gpt_oss", intermediate_size=32)
    generator = torch.Generator().manual_seed(4)
    weights = {}
    for name, weight in model.state_dict().items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            weights[name] = weight.to(torch.bfloat16)
            continue
        experts, columns, rows = weight.shape
        shape = (experts, rows, columns // 32)  # 32 values in 16 bytes share a power of two
        blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=generator)
        weights[f"{name}_blocks"] = blocks
        weights[f"{name}_scales"] = torch.full(shape, 125, dtype=torch.uint8)
    model.config.save_pretrained(tmp_path)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = AutoConfig.from_pretrained(tmp_path)
    config.quantization_config = {"quant_method": "mxfp4"}
    before = config.to_json_string()
    decoder = load_decoder(str(tmp_path), config, "cpu", dtype, {})
    assert config.to_json_string() == before  # it is part of what a document was read with
    assert {w.dtype for w in decoder._model.base_model.layers[0].mlp.parameters()} == {dtype}
    ours = decoder.logits(decoder.read(IDS, Prompt(len(IDS))))
    decoder._model.set_attn_implementation("eager")
    with torch.no_grad():
        own = decoder._model(IDS[None], use_cache=False).logits[0].float()
    assert (ours - own).norm() / own.norm() < (1e-5 if dtype == torch.float32 else 0.1)


def test_weights_in_mxfp4_are_counted_as_they_are_loaded(tmp_path):
    blocks = torch.zeros(4, 3, 16, dtype=torch.uint8)  # two weights in each byte
    scales, plain = torch.zeros(4, 3, dtype=torch.uint8), torch.zeros(7)
    file = tmp_path / "model.safetensors"
    save_file({"e.down_proj_blocks": blocks, "e.down_proj_scales": scales, "norm": plain}, file)
    assert ModelFiles("m", tmp_path, None, None).num_parameters() == 2 * 4 * 3 * 16 + 7


def test_the_language_model_of_a_multimodal_gemma_is_run(make_model, tmp_path):
    text = make_model("gemma3")
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = transformers.Gemma3Config(
        text_config=text.config.to_dict(),
        vision_config={**vision, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
    )
    whole = transformers.Gemma3ForConditionalGeneration(config).eval()
    whole.model.language_model.load_state_dict(text.model.state_dict())
    whole.save_pretrained(tmp_path)
    inside = architectures.language_model(AutoConfig.from_pretrained(tmp_path))
    decoder = load_decoder(str(tmp_path), inside, "cpu", torch.float32, {})
    ours = decoder.logits(decoder.read(IDS, Prompt(len(IDS))))
    with torch.no_grad():
        own = whole(input_ids=IDS[None], use_cache=False).logits[0]
    assert (ours - own).abs().max() < 1e-4
