"""What a user may name: models, profiles, methods, devices; and the tokens around a document."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import pytest
import transformers

from longctx.core import methods, profile, setup
from longctx.core.device import choose_device, choose_dtype
from longctx.core.errors import UsageError
from longctx.core.load import load_decoder
from longctx.core.model_files import open_model_files
from longctx.core.profile import Prompt
from longctx.core.prompt import PromptEncoder
from longctx.core.setup import prepare


def test_every_shipped_profile_is_read_and_fits_its_method():
    shipped = profile.shipped()
    assert shipped[0].name == "tiny"
    assert {"mistral-nemo", "qwen2.5-7b", "qwen2.5-coder-1.5b", "qwen2.5-coder-7b"} <= {
        p.name for p in shipped
    }
    for each in shipped:
        options = methods.load(each.method).Options
        built = profile.build(options, each.methods[each.method], each.name)
        assert len(built.heads) == 4


def test_a_profile_is_found_by_hub_name_and_by_the_name_of_a_local_copy():
    for name in ("Qwen/Qwen2.5-7B-Instruct", "/models/qwen2.5-7b-instruct"):
        assert profile.find(None, name).name == "qwen2.5-7b"
    with pytest.raises(UsageError, match=r"no profile for model 'x/y'.*--profile"):
        profile.find(None, "x/y")
    with pytest.raises(UsageError, match="no profile named 'nope': there are tiny"):
        profile.find("nope", "tiny")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nwindw: 3\n", r"unknown key 'windw' in a\.yaml\. Known keys: name, models"),
        ("name: a\nprompt: {sufix: b}\n", "unknown key 'sufix' in `prompt`"),
        ("name: a\nprompt: {question: b}\n", "has no place for the question"),
        ("- a\n", "is list, not a mapping"),
        ("name: [\n", "cannot read"),
    ],
)
def test_a_wrong_profile_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        profile.load(text, "a.yaml")


def test_a_wrong_option_of_a_method_names_the_known_ones(setup_random, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("name: p\nmethods: {reform: {heads: [[1, q, 0]], bugdet: 3}}\n")
    with pytest.raises(UsageError, match=r"unknown key 'bugdet'.*heads, chunk, budget"):
        prepare(dataclasses.replace(setup_random, profile=str(path)))
    with pytest.raises(UsageError, match=r"unknown method 'nope'.*h2o, infllm, ltri, reatt"):
        prepare(dataclasses.replace(setup_random, method="nope"))


def test_a_section_of_a_profile_may_be_empty_but_is_a_mapping(setup_random, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("name: p\nmethods: {h2o: , tova: [1]}\n")
    assert prepare(dataclasses.replace(setup_random, profile=str(path), method="h2o")).options
    with pytest.raises(UsageError, match="options of method 'tova': it is list, not a mapping"):
        prepare(dataclasses.replace(setup_random, profile=str(path), method="tova"))


def test_unknown_models_are_refused(tmp_path, model_folder, monkeypatch):
    with pytest.raises(UsageError, match="no model 'nope'"):
        open_model_files("nope")
    with pytest.raises(UsageError, match="cannot get model 'no/such' from the hub"):
        open_model_files("no/such")  # offline in tests
    with pytest.raises(UsageError, match=r"no config\.json"):
        open_model_files(str(tmp_path))
    bare = tmp_path / "bare"
    shutil.copytree(model_folder, bare)
    (bare / "model.safetensors").rename(bare / "pytorch_model.bin")
    with pytest.raises(UsageError, match="no safetensors weights"):
        open_model_files(str(bare))


def test_a_tokenizer_without_a_fast_version_is_refused(model_folder, monkeypatch):
    slow = SimpleNamespace(is_fast=False)
    monkeypatch.setattr(
        transformers.AutoTokenizer, "from_pretrained", lambda *args, **options: slow
    )
    with pytest.raises(UsageError, match=r"tokenizer.*no fast version"):
        open_model_files(str(model_folder))


def test_the_fingerprint_follows_what_makes_the_model(model_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model_folder, copy)
    first, same = open_model_files(str(model_folder)).fingerprint(), open_model_files(str(copy))
    identity = ("config", "tokenizer", "weights")
    assert [getattr(same.fingerprint(), i) for i in identity] == [
        getattr(first, i) for i in identity
    ]
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    changed = open_model_files(str(copy)).fingerprint()
    assert changed.config != first.config
    assert changed.weights == first.weights


def test_devices_and_dtypes():
    assert choose_device("cpu") == "cpu"
    for name, message in (("gpu", "unknown device"), ("cuda:99", "no device")):
        with pytest.raises(UsageError, match=message):
            choose_device(name)
    with pytest.raises(UsageError, match="unknown dtype 'int4'"):
        choose_dtype("int4", "cpu")
    assert str(choose_dtype("auto", "cuda")) == "torch.bfloat16"


def test_only_the_users_words_score_and_special_tokens_in_them_are_text(model_folder):
    tokenizer = open_model_files(str(model_folder)).tokenizer
    encoder = PromptEncoder(Prompt("<s>", "\nQ: {question}</s>\nA:"), tokenizer)
    assert encoder.prefix().tolist() == [0]
    ids, scored = encoder.question("the keeper </s> wrote")
    assert ids.tolist().count(1) == 1  # the template's, not the user's
    assert not scored[ids == 1].any()
    assert tokenizer.decode(ids[scored].tolist()).strip() == "the keeper </s> wrote"
    assert tokenizer.decode(ids.tolist()) == "\nQ: the keeper </s> wrote</s>\nA:"


def test_weights_are_loaded_once_where_they_stay(setup_random, monkeypatch):
    loaded = []

    def load(*given):
        loaded.append(given)
        return load_decoder(*given)

    monkeypatch.setattr(setup, "load_decoder", load)
    with setup.weights_stay():
        kept = prepare(setup_random).decoder
        assert prepare(setup_random).decoder is kept
        with setup.weights_stay():
            assert prepare(setup_random).decoder is kept
        assert prepare(setup_random).decoder is kept
        assert prepare(dataclasses.replace(setup_random, dtype="bf16")).decoder is not kept
        assert len(loaded) == 2
    assert prepare(setup_random).decoder is not kept
    assert prepare(setup_random).decoder is not prepare(setup_random).decoder
