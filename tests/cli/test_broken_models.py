"""A folder that is no whole model is the user's to mend: never a fault of longctx, never a wait.

`LONGCTX_MODELS=all` tries every way to break one, which takes a minute; else every third.
"""

import os
import shutil

import pytest
from broken_models import BROKEN

# What is said there is of no consequence: the model is read and asked as before.
HARMLESS = {
    *("tokenizer_config.json surrogate", "generation_config.json surrogate"),
    *(name for name in BROKEN if name.startswith("model.safetensors.index.json ")),
    *("head_dim=None", f"max_position_embeddings={10**30}", "rms_norm_eps=1e+308"),
    *("rope_parameters=None", "eos_token_id=-1", f"eos_token_id={10**30}", "eos_token_id=1000000"),
    *("bos_token_id=-1", f"bos_token_id={10**30}", "pad_token_id=-5"),
    *(name for name in BROKEN if name.startswith("architectures=")),
    *("dtype=1", "dtype=int8", "dtype=complex64"),
    *("quantization_config={'quant_method': 'nothing'}",),
    *("quantization_config={'quant_method': 'bitsandbytes'}",),
    *("auto_map={'AutoConfig': 'own.Config'}", "auto_map={'AutoTokenizer': ['own.T', 'own.T']}"),
    *("weight_map=None", "weight_map=1", "weight_map=[]", "weight_map=x"),
    *("other weights beside it", "an index without a map"),
    *("tokenizer's added_tokens=[]", "tokenizer's pre_tokenizer=None", "tokenizer without version"),
    *("tokenizer_class=Nothing", "tokenizer_class=LlamaTokenizer", "tokenizer_class=None"),
    *("bos_token=nothing of it", "bos_token=None", "eos_token=nothing of it", "eos_token=None"),
    *("model_max_length=-1", "model_max_length=None", "chat_template="),
    *("generation's eos_token_id=[None]", "generation's eos_token_id=-1"),
    *(f"generation's eos_token_id={10**30}", "generation's temperature=x", "generation's top_p=9"),
}
# What is no value out of place, but a model that gives no numbers.
INEXACT = {name for name in BROKEN if "'rope_theta': 0}" in name or "'factor': 0" in name}
# Seen when the model reads or is asked; all else before a token is read.
LATER = {"an id that the model lacks", "max_position_embeddings=1"}
REFUSED = [name for name in BROKEN if name not in HARMLESS | INEXACT | LATER]
ALL = os.environ.get("LONGCTX_MODELS") == "all"


@pytest.fixture
def broken(model_folder, tmp_path):
    """A copy of the random model, broken in a way; its profile leaves the prompt to the model."""

    def make(way: str) -> list[object]:
        folder = shutil.copytree(model_folder, tmp_path / "model")
        kept = (folder / "profile.yaml").read_text("utf-8").splitlines(keepends=True)
        profile = tmp_path / "profile.yaml"
        profile.write_text("".join(line for line in kept if not line.startswith("prompt")), "utf-8")
        BROKEN[way](folder)
        return ["--model", folder, "--profile", profile, "--dtype", "fp32"]

    return make


@pytest.fixture
def source(tmp_path):
    """A small text."""
    path = tmp_path / "source.txt"
    path.write_text("the keeper wrote in his book that a boat came home at dawn\n" * 3, "utf-8")
    return path


def test_the_ways_are_known():
    assert BROKEN.keys() >= HARMLESS | INEXACT | LATER
    assert len(INEXACT) == 2
    assert len(REFUSED) > 200


@pytest.mark.parametrize("way", REFUSED if ALL else REFUSED[::3])
def test_a_broken_model_is_refused_before_anything_is_read(longctx, broken, source, tmp_path, way):
    result = longctx("ingest", source, *broken(way))
    assert result.exit_code == 2, result.stderr
    assert result.stderr.startswith("error: ")
    assert "internal" not in result.stderr
    assert str(tmp_path) in result.stderr or "the model's chat template" in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(".\n")  # what to do about it
    assert not [*(tmp_path / "library").glob("documents/*")]


@pytest.mark.parametrize("way", sorted(HARMLESS) if ALL else sorted(HARMLESS)[::12])
def test_what_is_of_no_consequence_is_read_and_asked(longctx, broken, source, way):
    options = broken(way)
    assert longctx("ingest", source, *options).exit_code == 0
    result = longctx("ask", "who wrote?", *options)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("way", sorted(INEXACT))
def test_a_model_that_gives_no_numbers_is_not_run(longctx, broken, source, way):
    result = longctx("ingest", source, *broken(way))
    assert result.exit_code == 1
    assert "cannot run this llama model exactly" in result.stderr


def test_a_model_without_room_for_a_question_says_so(longctx, broken, source):
    options = broken("max_position_embeddings=1")
    assert longctx("ingest", source, *options).exit_code == 0
    result = longctx("ask", "who wrote?", *options)
    assert result.exit_code == 2
    assert "the model's window is 1 tokens" in result.stderr


def test_a_token_that_the_model_lacks_is_told(longctx, broken, source):
    options = broken("an id that the model lacks")
    source.write_text("e", "utf-8")
    result = longctx("ingest", source, *options)
    assert result.exit_code == 2, result.stderr
    assert "gives token 1,000,000, and the model has" in result.stderr


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("half downloaded", "a copy or download was stopped"),
        ("a shard of 20000 bytes", "a copy or download was stopped"),
        ("a shard missing", "00002-of-00002.safetensors': it is not there"),
        ("model.safetensors a link to nothing", "it is a link to what is not there"),
        ("model.safetensors a folder", "model.safetensors': it is a folder"),
        ("hidden_size=0", "its config.json says that hidden_size is '0'"),
        ("num_hidden_layers=1000000", "config.json says 1,000,000 layers"),
        ("vocab_size=1", "its weights have other shapes than its config.json says"),
        ("config.json list", "config.json': it is list, not an object"),
        ("weights outside: ../{other}", "it names weights that are no .safetensors file of this"),
        ("a shard named 'config.json'", "it names weights that are no .safetensors file of this"),
        ("an adapter beside it", "it has an adapter"),
    ],
)
def test_what_is_wrong_is_said(longctx, broken, source, way, said):
    assert said in longctx("ingest", source, *broken(way)).stderr


@pytest.mark.parametrize(
    "name",
    ["a b/c", "a/b c", "../x", "a/..", "-/x", "a//b", "\u00e4/b", "x" * 300, "a/" + "x" * 300, "/"],
)
@pytest.mark.filterwarnings("ignore")  # of the hub's library, of an HTTP client it cannot start
def test_a_name_that_no_model_can_have(longctx, source, name):
    result = longctx("ingest", source, "--model", name)
    assert result.exit_code == 2, result.stderr
    assert "model" in result.stderr
    assert "internal" not in result.stderr
