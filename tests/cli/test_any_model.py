"""Models that nobody made a profile for, and what is no model: through the command line."""

import json
import shutil

import pytest

LINE = "the keeper wrote in his book that a boat came home at dawn with salt and news of rain"
TEXT = f"{LINE}\n" * 20


@pytest.fixture
def source(tmp_path):
    (tmp_path / "book.txt").write_text(TEXT, "utf-8")
    return tmp_path / "book.txt"


@pytest.fixture
def unknown(model_folder, tmp_path):
    """A model's folder as one finds it: no profile, and a chat template of its own."""
    folder = shutil.copytree(model_folder, tmp_path / "some-model")
    (folder / "profile.yaml").unlink()
    (folder / "chat_template.jinja").write_text("<s>{{ messages[0].content }}</s>\n")
    return folder


def test_any_model_reads_and_answers_at_once(longctx, source, unknown):
    read = longctx("ingest", source, "--model", unknown, "--dtype", "float32")
    assert read.exit_code == 0, read.stderr
    told = [line for line in read.stderr.splitlines() if "by rule" in line]
    assert len(told) == 1
    assert f"`longctx calibrate {unknown}` would do better" in told[0]
    shown = json.loads(longctx("show", "book", "--json").stdout)
    options = shown["options"]
    assert options["heads"] == [[0, "v", 0], [1, "v", 0]]  # of three layers
    assert (options["chunk"], options["budget"], options["gather"]) == (64, 64, 128)
    asked = longctx("ask", "who wrote?", "--json", "--max-new-tokens", "4")
    assert asked.exit_code == 0, asked.stderr
    assert "by rule" not in asked.stderr
    assert json.loads(asked.stdout)["passages"]


def test_that_line_is_not_shown_with_quiet_and_stands_in_json_and_report(
    longctx, source, unknown, tmp_path
):
    report = tmp_path / "run.json"
    read = longctx("-q", "--report", report, "ingest", source, "--model", unknown, "--json")
    assert read.exit_code == 0, read.stderr
    assert "by rule" not in read.stderr
    assert "by rule" in json.loads(read.stdout)["notes"][0]
    assert "by rule" in json.loads(report.read_text("utf-8"))["notes"][0]


def test_it_is_told_once_for_many_documents(longctx, source, unknown):
    shutil.copy(source, source.with_name("second.txt"))
    files = source, source.with_name("second.txt")
    read = longctx("ingest", "--each", *files, "--model", unknown)
    assert read.exit_code == 0, read.stderr
    assert read.stderr.count("by rule") == 1


@pytest.fixture
def broken(model_folder, tmp_path):
    """f(what): a folder in which that is wrong."""
    folder = shutil.copytree(model_folder, tmp_path / "broken")
    weights = folder / "model.safetensors"

    def run(what: str):
        if what == "other architecture":
            values = json.loads((folder / "config.json").read_text("utf-8"))
            values["model_type"] = "newthing"
            (folder / "config.json").write_text(json.dumps(values), "utf-8")
        elif what == "lost shards":
            weights.rename(folder / "model-00002-of-00003.safetensors")
        elif what == "empty":
            shutil.rmtree(folder)
            folder.mkdir()
        elif what == "inner":
            shutil.copytree(folder, folder / "it")
            (folder / "config.json").unlink()
        else:
            weights.unlink()
            if what:
                (folder / what).touch()
        return folder

    return run


@pytest.mark.parametrize(
    ("what", "messages"),
    [
        ("", ("no safetensors weights", "no others", "Fetch it again, with its weights")),
        ("pytorch_model.bin", ("only 'pytorch_model.bin'", "can run code", "in safetensors")),
        ("model.pt", ("only 'model.pt'", "can run code")),
        ("model.Q4_K.gguf", ("but a GGUF file", "Use --model", "model.Q4_K.gguf")),
        ("lost shards", ("'model-00002-of-00003.safetensors'", "a part is missing")),
        ("other architecture", ("cannot run architecture 'newthing'", "no adapter", "llama")),
        ("empty", ("no config.json", "nor anything else")),
        ("inner", ("but a folder in it has one", "Use --model", "/broken/it")),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_with_what_to_do(
    longctx, source, broken, what, messages
):
    result = longctx("ingest", source, "--model", broken(what))
    assert result.exit_code == 2
    assert all(message in result.stderr for message in messages), result.stderr


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("qwen2.5-7b", ("that is a profile", "Use --model Qwen/Qwen2.5-7B-Instruct")),
        ("mistral-nemo-32k", ("that is a profile", "-2407 --profile mistral-nemo-32k")),
        ("mine.yaml", ("it is a profile's file", "Give --profile mine.yaml")),
        ("tinny", ("neither a folder nor a hub name", "Did you mean 'tiny'?")),
        ("qwen2.5-7b-instruct", ("Did you mean 'Qwen/Qwen2.5-7B-Instruct'?",)),
        ("Qwen/Qwen2.5-7B-Instrct", ("not on this machine", "Did you mean 'Qwen/Qwen2.5-7B-Ins")),
        ("some/model", ("not on this machine", "HF_HUB_OFFLINE", "name a local folder")),
        ("nomodel", ("neither a folder nor", "'tiny' (bundled), a folder or a GGUF file.")),
        ("./nowhere", ("there is no such folder", "Check the path")),
        ("a/b/c", ("there is no such folder", "Check the path")),
        ("https://huggingface.co/me/m/tree/main", ("it is an address", "Use --model me/m.")),
        ("notes.txt", ("it is a file",)),
        ("here/config.json", ("it is a file", "Use --model here.")),
    ],
)
def test_what_is_no_model_is_said_to_be_what_it_is(
    longctx, source, tmp_path, monkeypatch, name, messages
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("no model")
    result = longctx("ingest", source, "--model", name)
    assert result.exit_code == 2
    assert all(message in result.stderr for message in messages), result.stderr


@pytest.mark.parametrize("name", ["float32", "torch.float32", "fp32"])
def test_a_number_format_is_reported_by_its_short_name(longctx, source, model_options, name):
    read = longctx("ingest", source, *model_options, "--dtype", name)
    assert read.exit_code == 0, read.stderr
    shown = json.loads(longctx("show", "book", "--json").stdout)
    assert shown["recorded"]["dtype"] == "fp32"
    again = longctx("ingest", source, "--append", "book", *model_options[:2], "--dtype", name)
    assert again.exit_code == 0, again.stderr


def test_kept_keys_and_values_are_named_likewise(longctx, source, model_options):
    how = ("--method", "reattention", "--kv-dtype", "bfloat16")
    assert longctx("ingest", source, *model_options, *how).exit_code == 0
    assert json.loads(longctx("show", "book", "--json").stdout)["options"]["kv_dtype"] == "bf16"
