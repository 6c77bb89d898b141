"""What a user may name: models, profiles, methods, devices; and the tokens around a document."""

import dataclasses
import json
import os
import shutil
from types import SimpleNamespace

import pytest
import transformers

from longctx.core import methods
from longctx.core.ask.session import Session
from longctx.core.common import dtypes
from longctx.core.common.device import choose_device, choose_dtype
from longctx.core.common.errors import UsageError
from longctx.core.engine import setup, staying
from longctx.core.engine.setup import prepare
from longctx.core.ingest.ingest import ingest
from longctx.core.model import weights
from longctx.core.model.files import open_model_files
from longctx.core.model.load import load_decoder
from longctx.core.profile import described, profile
from longctx.core.profile.profile import PromptTemplate
from longctx.core.profile.prompt import PromptEncoder


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


def test_a_profile_that_there_is_not_is_told_with_those_that_there_are():
    with pytest.raises(UsageError, match="no profile named 'nope': there are tiny, "):
        profile.find("nope")


def bare(setup_random, folder, **more):
    return prepare(dataclasses.replace(setup_random, model=str(folder), profile=None, **more))


def renamed(model_folder, folder, **config):
    """A copy of the random model with other values in its config.json."""
    shutil.copytree(model_folder, folder)
    values = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**values, **config}), "utf-8")
    return folder


def test_a_folder_called_like_a_known_model_is_not_given_its_profile(
    setup_random, model_folder, tmp_path
):
    for name in ("tiny", "Qwen2.5-7B-Instruct"):
        engine = bare(setup_random, shutil.copytree(model_folder, tmp_path / name))
        assert engine.profile == profile.Profile(name, prompt=engine.profile.prompt)
        assert "chosen by rule" in engine.notes[0]


def of_random_shape(model_folder, **more) -> profile.Profile:
    shape = described.Shape.of(open_model_files(str(model_folder)).config)
    heads = [[1, "q", 3], [2, "k", 1]]
    return profile.Profile("known", shape=shape, methods={"reform": {"heads": heads}}, **more)


@pytest.mark.parametrize("by", ["folder", "config.json", "hub's cache"])
def test_a_model_is_known_by_each_of_its_names(
    setup_random, model_folder, tmp_path, monkeypatch, by
):
    known = of_random_shape(model_folder, models=("me/Known-Model",))
    monkeypatch.setattr(profile, "shipped", lambda: [known])
    folder, config = tmp_path / "x", {}
    if by == "folder":
        folder = tmp_path / "known-model"
    elif by == "config.json":
        config = {"_name_or_path": "me/Known-Model"}
    else:
        folder = tmp_path / "models--me--Known-Model" / "snapshots" / "0123"
    engine = bare(setup_random, renamed(model_folder, folder, **config))
    assert engine.profile.name == "known"
    assert engine.options.heads == ((1, "q", 3), (2, "k", 1))
    assert engine.notes == ()


def test_a_fine_tuned_model_is_known_by_its_shape_and_keeps_its_own_prompt_and_window(
    setup_random, model_folder, tmp_path, monkeypatch
):
    prompt = profile.PromptTemplate("<s>", "{question}")
    known = of_random_shape(model_folder, models=("me/k",), prompt=prompt, window=512)
    monkeypatch.setattr(profile, "shipped", lambda: [known])
    tuned = bare(setup_random, shutil.copytree(model_folder, tmp_path / "tuned"))
    assert (tuned.profile.name, tuned.window) == ("known", 256)
    assert tuned.options.heads == ((1, "q", 3), (2, "k", 1))
    assert tuned.profile.prompt == prompt
    assert "it has the shape of profile 'known'" in tuned.notes[0]
    (tmp_path / "tuned" / "chat_template.jinja").write_text("[{{ messages[0].content }}]")
    assert bare(setup_random, tmp_path / "tuned").profile.prompt.prefix == "["
    monkeypatch.setattr(profile, "shipped", lambda: [known, known])
    assert "chosen by rule" in bare(setup_random, tmp_path / "tuned").notes[0]


def test_a_profile_that_the_user_names_wins_unless_the_model_lacks_its_heads(setup_random):
    chosen = dataclasses.replace(setup_random, profile="tiny", method="streaming")
    engine = prepare(chosen)
    assert engine.profile.name == "tiny"
    assert "is for another shape: the model has num_hidden_layers 3, not 10" in engine.notes[0]
    for method in ("reform", "both"):
        with pytest.raises(UsageError, match=r"no embedding head \[3, q, 3\]: .*layers 0 to 2"):
            prepare(dataclasses.replace(chosen, method=method))
    with pytest.raises(UsageError, match="no retrieval head 0 in layer 7: it has 3 layers"):
        prepare(dataclasses.replace(chosen, method="ltri"))


def test_every_method_works_without_a_profile(setup_random, model_folder, tmp_path):
    (tmp_path / "a.txt").write_text(f"{LONG}\n" * 30, "utf-8")
    for name in methods.names():
        if name == "full":
            continue  # it keeps everything, or refuses
        chosen = dataclasses.replace(setup_random, profile=None, method=name)
        library = tmp_path / name
        read = ingest(library, [str(tmp_path / "a.txt")], chosen)
        needs = name in ("reform", "both", "ltri")
        assert any("chosen by rule" in note for note in read.notes) == needs, name
        with Session(library, "a", dataclasses.replace(setup_random, profile=None)) as session:
            assert session.ask("who wrote?").tokens
            assert session.engine.notes == ()  # it was told when the document was read


@pytest.mark.parametrize(("long", "short"), [*dtypes.SHORT.items()])
def test_torchs_names_of_number_formats_are_ours(setup_random, long, short):
    chosen = dataclasses.replace(setup_random, dtype=long, kv_dtype=long)
    assert chosen == dataclasses.replace(setup_random, dtype=short, kv_dtype=short)
    assert choose_dtype(long, "cpu") == choose_dtype(short, "cpu")


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


def test_a_tokenizer_without_a_fast_version_is_refused(model_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # else it is known already
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
    encoder = PromptEncoder(PromptTemplate("<s>", "\nQ: {question}</s>\nA:"), tokenizer)
    assert encoder.prefix().tolist() == [0]
    ids, scored = encoder.question("the keeper </s> wrote")
    assert ids.tolist().count(1) == 1  # the template's, not the user's
    assert not scored[ids == 1].any()
    assert tokenizer.decode(ids[scored].tolist()).strip() == "the keeper </s> wrote"
    assert tokenizer.decode(ids.tolist()) == "\nQ: the keeper </s> wrote</s>\nA:"


def test_weights_are_loaded_once_where_they_stay(setup_random, monkeypatch):
    assert staying.staying() is None, "a test before this one left its weights loaded"
    loaded = []

    def load(*given):
        loaded.append(given)
        return load_decoder(*given)

    monkeypatch.setattr(setup, "load_decoder", load)
    with staying.weights_stay():
        kept = prepare(setup_random).decoder
        assert prepare(setup_random).decoder is kept
        with staying.weights_stay():
            assert prepare(setup_random).decoder is kept
        assert prepare(setup_random).decoder is kept
        assert prepare(dataclasses.replace(setup_random, dtype="bf16")).decoder is not kept
        assert len(loaded) == 2
    assert prepare(setup_random).decoder is not kept
    assert prepare(setup_random).decoder is not prepare(setup_random).decoder


# --- what a model's files say of themselves ------------------------------------------------------

CUTTING = {
    "truncation": {
        "direction": "Right",
        "max_length": 10,
        "strategy": "LongestFirst",
        "stride": 0,
    },
    "padding": {
        "strategy": {"Fixed": 512},
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": 1,
        "pad_type_id": 0,
        "pad_token": "</s>",
    },
}
LONG = "the keeper wrote in his book that a boat came home at dawn with salt and news of rain"


@pytest.fixture
def cutting_folder(model_folder, tmp_path):
    """The random model with a tokenizer that cuts every text to 10 tokens, and fills it to 512."""
    copy = shutil.copytree(model_folder, tmp_path / "cutting")
    values = json.loads((copy / "tokenizer.json").read_text("utf-8"))
    (copy / "tokenizer.json").write_text(json.dumps({**values, **CUTTING}), "utf-8")
    return copy


def test_no_tokenizer_cuts_a_text_or_fills_it_up(model_folder, cutting_folder):
    plain, cutting = (open_model_files(str(f)).tokenizer for f in (model_folder, cutting_folder))
    wanted = plain.backend_tokenizer.encode(LONG).ids
    assert len(wanted) > 10
    assert cutting.backend_tokenizer.encode(LONG).ids == wanted
    assert cutting(LONG).input_ids == wanted
    many = cutting.backend_tokenizer.encode_batch([LONG, "a"])
    assert many[0].ids == wanted
    prompt = PromptTemplate("<s>", "\nQ: {question}</s>\nA:")
    encoders = [PromptEncoder(prompt, tokenizer) for tokenizer in (plain, cutting)]
    first, second = (encoder.question(LONG)[0].tolist() for encoder in encoders)
    assert first == second


def test_a_model_whose_tokenizer_would_cut_reads_and_answers_the_same(
    model_folder, cutting_folder, setup_random, tmp_path
):
    (tmp_path / "a.txt").write_text(f"{LONG}\n" * 8, "utf-8")
    outcomes = []
    for folder in (model_folder, cutting_folder):
        library = tmp_path / f"library-{folder.name}"
        chosen = dataclasses.replace(setup_random, model=str(folder))
        read = ingest(library, [str(tmp_path / "a.txt")], chosen)
        with Session(library, "a", chosen) as session:
            asked, found = session.ask(LONG), session.find(LONG)
        outcomes.append((read.tokens, asked.tokens, asked.answer, found.tokens, found.passages))
    assert outcomes[0] == outcomes[1]


def test_a_tokenizer_is_who_it_is_however_it_would_cut(model_folder, cutting_folder):
    first, second = (open_model_files(str(f)).fingerprint() for f in (model_folder, cutting_folder))
    assert first.tokenizer == second.tokenizer


def test_links_of_a_cache_are_followed_and_names_that_lead_outside_are_not(model_folder, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, file in enumerate(model_folder.iterdir()):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    files = open_model_files(str(snapshot))
    plain = open_model_files(str(model_folder))
    assert files.fingerprint().weights == plain.fingerprint().weights
    (snapshot / "model.safetensors").unlink()
    for name in ("../../blobs/0", f"{blobs}/0", "sub/../../x.safetensors", "/x.safetensors"):
        index = json.dumps({"weight_map": {"a": name}})
        (snapshot / "model.safetensors.index.json").write_text(index)
        with pytest.raises(UsageError, match=r"it names weights that are no \.safetensors file"):
            open_model_files(str(snapshot))


def test_shards_in_folders_of_a_model_are_part_of_what_it_is(model_folder, tmp_path):
    copy = shutil.copytree(model_folder, tmp_path / "copy")
    (copy / "sub").mkdir()
    shard = (copy / "model.safetensors").rename(copy / "sub" / "a.safetensors")
    names = {name: "sub/a.safetensors" for name in weights.tensors_of(shard)}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    files = open_model_files(str(copy))
    before = files.fingerprint()
    assert files.num_parameters() == open_model_files(str(model_folder)).num_parameters()
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert open_model_files(str(copy)).fingerprint().weights != before.weights


@pytest.mark.skipif(os.name == "nt", reason="Windows tells no time of change")
def test_weights_that_changed_are_seen_though_their_time_was_set_back(model_folder, tmp_path):
    copy = shutil.copytree(model_folder, tmp_path / "copy")
    file = copy / "model.safetensors"
    before, digest = file.stat(), open_model_files(str(copy)).fingerprint().weights
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\x7f")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    kept = ("st_size", "st_mtime_ns", "st_ino")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert open_model_files(str(copy)).fingerprint().weights != digest


@pytest.mark.parametrize("content", ["[1]", "{", "3", '"x"', "[" * 100_000, '{"a": 1}'])
def test_a_cache_that_is_broken_is_as_none(tmp_path, content):
    path = tmp_path / "cache.json"
    path.write_text(content)
    cache = weights.JsonCache(path)
    cache["b"] = "c"
    assert weights.JsonCache(path)["b"] == "c"
