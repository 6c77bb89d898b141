"""`ask` and `find`: one question, many, a conversation; text and JSON; nothing else on stdout."""

import json
import re
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from longctx.cli import answers, render
from longctx.cli.text import clean
from longctx.core.api import opening
from longctx.core.ask import refusing
from longctx.core.common.read_ahead import ReadAhead
from longctx.core.decode.decode import Generation
from longctx.core.decode.policies.dense import Policy

pytestmark = pytest.mark.usefixtures("library")
QUESTION = "who wrote of the boat?"
FIND_KEYS = {
    "schema_version",
    "question",
    "found",
    "evidence",
    "documents",
    "passages",
    "tokens",
} | {
    "timings",
    "state",
}
DECODED = {"policy", "attended_per_step", "refreshes", "held", "reassigned", "narrowed"}
DECODED |= {"tokens_per_s"}
KEYS = FIND_KEYS | DECODED | {"answer", "stop", "quote", "sentence", "continues", "sent"}
KEYS |= {"likely", "also_possible"}
SENTENCE_KEYS = {"document", "source", "line", "place", "start", "end", "text", "marks"}
PASSAGE_KEYS = {"document", "source", "line", "place", "start", "end", "score", "text"}
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


@pytest.fixture
def asking(longctx, model_options):
    """Runs `ask` or `find` with the random model."""
    return lambda command, *args, **more: longctx(command, *args, *model_options, **more)


def test_the_answer_then_the_passages(asking, shelf):
    result = asking("ask", QUESTION)
    assert result.exit_code == 0, result.output
    assert result.stderr == "document: book (the latest)\n"
    answer, sentence, *passages = result.stdout.split("\n\n")
    lines = "".join(passages).splitlines()
    assert answer.strip()
    place = rf"{re.escape(str(shelf.parent))}/book\.txt:\d+"
    assert re.fullmatch(rf'{place}: "[^\n]*boat[^\n]*"', sentence.strip())
    assert len(lines) <= answers.SOURCES
    assert all(
        re.match(rf"{re.escape(str(shelf.parent))}/book\.txt:\d+: \S", line) for line in lines
    )


def test_no_sources(asking):
    shown, hidden = asking("ask", QUESTION).stdout, asking("ask", QUESTION, "--no-sources").stdout
    assert shown.startswith(hidden)
    assert "book.txt" not in hidden


def test_the_sentence_is_marked_on_a_terminal_and_stands_where_json_says(
    asking, shelf, monkeypatch
):
    told = json.loads(asking("ask", QUESTION, "--json").stdout)["sentence"]
    assert told.keys() == SENTENCE_KEYS
    source = (shelf.parent / "book.txt").read_bytes()
    assert source[told["start"] : told["end"]].decode() == told["text"]
    assert told["line"] == source[: told["start"]].count(b"\n") + 1
    marked = [told["text"][low:high] for low, high in told["marks"]]
    assert "boat" in marked
    assert "\x1b" not in asking("ask", QUESTION).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = asking("ask", QUESTION).stdout.split("\n\n")[1]
    assert "\x1b[1;31mboat\x1b[0m" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in asking("ask", QUESTION).stdout


def test_no_passage_repeats_the_sentence(asking):
    told = json.loads(asking("ask", QUESTION, "--json").stdout)["sentence"]
    line = clean(" ".join(told["text"].split()))
    shown = asking("ask", QUESTION).stdout
    passages = "\n".join(shown.split("\n\n")[2:]).splitlines()
    assert shown.count(f':{told["place"]}: "{line}"') == 1
    assert not any(f":{told['place']}: " in passage for passage in passages)


def test_without_the_answer_and_any_word_of_the_question_there_is_no_sentence(asking):
    question = "Which ambassador signed?"
    assert json.loads(asking("ask", question, "--json").stdout)["sentence"] is None
    parts = asking("ask", question).stdout.split("\n\n")
    assert len(parts) == 2
    assert "book.txt:" in parts[1]


def test_json_is_one_object_and_nothing_else(asking, shelf):
    result = asking("ask", QUESTION, "--json", "--doc", "book")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1
    values = json.loads(result.stdout)
    assert values.keys() == KEYS
    assert (values["question"], values["documents"]) == (QUESTION, ["book"])
    assert values["answer"] == values["answer"].strip()
    assert values["tokens"].keys() == {"document", "gathered", "question", "answer", "dropped"}
    source = (shelf.parent / "book.txt").read_bytes()
    for passage in values["passages"]:
        assert passage.keys() == PASSAGE_KEYS
        cut = source[passage["start"] : passage["end"]]
        assert cut.decode("utf-8", errors="replace") == passage["text"]
        assert passage["line"] == source[: passage["start"]].count(b"\n") + 1


def test_no_character_of_a_document_reaches_the_terminal_as_a_command(asking):
    for command in ("ask", "find"):
        shown = asking(command, "red salt news", "--gather", 200).stdout
        assert not UNSEEN.search(shown)
        told = asking(command, "red salt news", "--gather", 200, "--json").stdout
        assert told.isascii()
        assert not UNSEEN.search(told)


def test_markup_in_a_document_is_text(asking):
    shown = asking("find", "[red]that a boat[/red]", "--gather", 200).stdout
    assert "[red]" in shown or "[link=" in shown


def test_no_color(asking, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1m" in asking("find", "rain").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in asking("find", "rain").stdout


def test_a_document_that_seems_not_to_say_it(asking):
    question = "Which ambassador signed the treaty of Vienna?"
    result = asking("ask", question)
    assert result.exit_code == 0
    assert (
        "seems not to say this: too few of the question's words occur together anywhere"
        in result.stderr
    )
    assert result.stdout.startswith("not in the text\n\n")
    assert "book.txt:" in result.stdout
    values = json.loads(asking("ask", question, "--json").stdout)
    assert (values["found"], values["evidence"]) == ("no", 0.0)
    assert values["answer"] not in ("", "not in the text")
    assert "--anyway" in result.stderr
    anyway = asking("ask", question, "--anyway")
    assert anyway.stdout.startswith(clean(values["answer"]))
    assert "seems not to say" in anyway.stderr
    assert "--anyway" not in anyway.stderr
    assert "seems not to say" not in asking("ask", QUESTION).stderr


def test_unsure_is_told_as_json_has_it(asking):
    question = "Did the ambassador write of the boat in Vienna?"
    assert json.loads(asking("ask", question, "--json").stdout)["found"] == "unsure"
    assert "unsure: only some of the question's words" in asking("ask", question).stderr
    assert "unsure" not in asking("ask", QUESTION).stderr


def test_no_sentence_follows_an_answer_that_there_is_none(asking, monkeypatch):
    values = json.loads(asking("ask", QUESTION, "--json").stdout)
    assert values["sentence"]
    monkeypatch.setattr(refusing, "_PHRASES", (values["answer"].casefold().removesuffix("."),))
    answer, passages = asking("ask", QUESTION).stdout.split("\n\n")
    assert (answer, ': "' in passages) == (clean(values["answer"]), False)
    assert json.loads(asking("ask", QUESTION, "--json").stdout)["sentence"] == values["sentence"]
    assert asking("ask", QUESTION, "--anyway").stdout.count(': "') == 1


def test_what_has_no_room_in_the_window_is_told(asking):
    result = asking("ask", QUESTION, "--gather", 5000)
    assert re.search(r"no room for \d+ gathered tokens", result.stderr)


def test_an_answer_ends_before_a_stop_string_and_says_so(asking):
    whole = json.loads(asking("ask", QUESTION, "--json").stdout)
    assert whole["stop"] == "length"
    cut = whole["answer"][2:4]
    options = ["--stop", "never there", "--stop", cut]
    stopped = json.loads(asking("ask", QUESTION, "--json", *options).stdout)
    assert stopped["stop"] == "stop string"
    assert stopped["answer"] == whole["answer"].partition(cut)[0].strip()
    assert stopped["tokens"]["answer"] <= whole["tokens"]["answer"]
    text = asking("ask", QUESTION, "--no-sources", *options).stdout
    assert text.rstrip() == clean(stopped["answer"])


def test_how_an_answer_is_drawn_comes_from_the_profile(asking, longctx, model_folder, tmp_path):
    profile = tmp_path / "drawn.yaml"
    text = (model_folder / "profile.yaml").read_text("utf-8")
    profile.write_text(f"{text}sampling: {{temperature: 5, seed: 3}}\n", "utf-8")
    options = ["ask", QUESTION, "--json", "--model", model_folder]
    by_profile = longctx(*options, "--profile", profile)
    by_flags = asking("ask", QUESTION, "--json", "--temperature", 5, "--seed", 3)
    greedy = longctx(*options, "--profile", profile, "--temperature", 0)
    drawn = [json.loads(result.stdout)["answer"] for result in (by_profile, by_flags)]
    assert drawn[0] == drawn[1] != json.loads(greedy.stdout)["answer"]
    assert (
        json.loads(greedy.stdout)["answer"]
        == json.loads(asking("ask", QUESTION, "--json").stdout)["answer"]
    )


# --- how it is decoded ---


def test_the_answer_says_how_it_was_decoded(asking):
    values = json.loads(asking("ask", QUESTION, "--json", "--decode", "dense").stdout)
    tokens = values["tokens"]
    prompt = tokens["gathered"] + tokens["question"] + 1  # the prefix
    steps = tokens["answer"] - 1  # the last token is read by nobody
    assert values["policy"] == {"name": "dense"}
    assert values["attended_per_step"] == round(prompt + (steps + 1) / 2, 2)
    assert values["held"] == prompt + steps
    assert (values["refreshes"], values["reassigned"]) == (None, False)
    usual = json.loads(asking("ask", QUESTION, "--json").stdout)
    assert {key: usual[key] for key in ("answer", "policy")} == {
        key: values[key] for key in ("answer", "policy")
    }
    one = json.loads(asking("ask", QUESTION, "--json", "--max-new-tokens", 1).stdout)
    assert (one["tokens_per_s"], one["attended_per_step"]) == (None, 0)


WRONG_POLICIES = [
    ("nope", "unknown decode policy 'nope'. Known: dense"),
    ("", "unknown decode policy ''"),
    ("dense:budget=5", "unknown key 'budget' in options of decode policy 'dense'. It has no keys."),
    ("dense:budget", "cannot use --decode dense:budget"),
]


@pytest.mark.parametrize(("decode", "said"), WRONG_POLICIES)
def test_a_wrong_policy_is_told_before_a_model_is_loaded(asking, monkeypatch, decode, said):
    monkeypatch.setattr(
        "longctx.core.engine.setup.load_decoder", lambda *args: pytest.fail("loaded")
    )
    result = asking("ask", QUESTION, "--decode", decode, "--doc", "book")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    monkeypatch.setenv("LONGCTX_DECODE", decode or "none")
    assert asking("ask", QUESTION).exit_code == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("decode: nope", "unknown decode policy 'nope'"),
        ("decoding: {nope: {budget: 5}}", "unknown decode policy 'nope'"),
        ("decoding: {dense: {budget: 5}}", "unknown key 'budget'"),
        ("decoding: {dense: 5}", "is int, not a mapping"),
        ("decoding: dense", "'dense' is no dict"),
    ],
)
def test_what_a_profile_says_of_policies_is_checked(longctx, model_folder, tmp_path, lines, said):
    profile = tmp_path / "wrong.yaml"
    profile.write_text((model_folder / "profile.yaml").read_text("utf-8") + lines + "\n", "utf-8")
    result = longctx("ask", QUESTION, "--model", model_folder, "--profile", profile)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("reassigned", "the answer went beyond the model's window"),
        ("narrowed", "fewer tokens were selected than usual"),
    ],
)
def test_what_the_window_had_no_room_for_is_told(asking, monkeypatch, field, said):
    spent = Policy.spent
    monkeypatch.setattr(Policy, "spent", lambda self: replace(spent(self), **{field: True}))
    assert json.loads(asking("ask", QUESTION, "--json").stdout)[field] is True
    assert said in asking("ask", QUESTION).stderr


@pytest.mark.parametrize("command", ["ask", "find"])
def test_files_are_read_while_libraries_are_imported(asking, monkeypatch, command):
    happened = []
    no_collection = opening.no_collection

    def imports():
        happened.append("imported")
        return no_collection()

    monkeypatch.setattr(
        ReadAhead, "warm", lambda self, files, _: happened.append([file.name for file in files])
    )
    monkeypatch.setattr(opening, "no_collection", imports)
    assert asking(command, QUESTION).exit_code == 0
    state = ["memory-00000.safetensors", "embeddings-00000.safetensors"]
    assert happened[:3] == [["model.safetensors"], state, "imported"]


# --- many questions ---


def test_questions_from_stdin_give_one_line_each(asking):
    result = asking("ask", "-", input="who came home?\n\nwhat news?\n")
    assert result.exit_code == 0, result.output
    values = [json.loads(line) for line in result.stdout.splitlines()]
    assert [value["question"] for value in values] == ["who came home?", "what news?"]
    assert all(value.keys() == KEYS for value in values)
    assert values[0]["timings"]["load_s"] == values[1]["timings"]["load_s"]


def test_questions_from_stdin_that_are_not_text(asking):
    result = asking("ask", "-", input=b"Who wound the \xff\xfe clock?\n")
    assert result.exit_code == 3
    assert not result.stdout
    assert "cannot read questions from standard input: they are not UTF-8 text" in result.stderr


def test_questions_from_a_file_are_those_from_stdin(asking, tmp_path):
    (tmp_path / "q.jsonl").write_text(
        '{"question": "who came home?"}\n{"question": "what news?"}\n'
    )
    by_file = asking("ask", "--questions", tmp_path / "q.jsonl").stdout.splitlines()
    by_pipe = asking("ask", "-", input="who came home?\nwhat news?\n").stdout.splitlines()
    for one, other in zip(by_file, by_pipe, strict=True):
        assert json.loads(one)["answer"] == json.loads(other)["answer"]


def test_a_question_that_cannot_be_asked_keeps_its_line(asking):
    result = asking("ask", "-", input=f"who?\n{'what news of rain ' * 200}\nwhen?\n")
    assert result.exit_code == 2
    values = [json.loads(line) for line in result.stdout.splitlines()]
    assert [("answer" in v, "error" in v) for v in values] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert values[1]["error"]["code"] == 2
    assert "no room" in values[1]["error"]["message"]


# --- a conversation ---


def test_a_prompt_opens_at_a_terminal(asking, monkeypatch):
    monkeypatch.setattr(render, "can_ask", lambda: True)
    typed = iter(["who came home?", "  ", "news of rain " * 300, "what news?"])

    def type_next(prompt: str = "") -> str:
        for words in typed:
            return words
        raise EOFError

    monkeypatch.setattr("builtins.input", type_next)
    result = asking("ask", "--json")
    assert result.exit_code == 0, result.output
    questions = [json.loads(line)["question"] for line in result.stdout.splitlines()]
    assert questions == ["who came home?", "what news?"]
    assert result.stderr.count("? ") == 5
    assert "error: a question of" in result.stderr


# --- Ctrl-C during an answer ---


@pytest.fixture
def interrupt(monkeypatch) -> Callable[[int], None]:
    """Presses Ctrl-C after two pieces of an answer's text: of the answer of this number."""
    texts, answers = Generation.texts, []

    def interrupt(number: int) -> None:
        def interrupted(self, tokenizer):
            answers.append(self)
            for count, piece in enumerate(texts(self, tokenizer)):
                yield piece
                if count and len(answers) == number:
                    signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(Generation, "texts", interrupted)

    return interrupt


def test_ctrl_c_keeps_what_was_shown_of_an_answer(asking, interrupt):
    whole = asking("ask", QUESTION, "--no-sources").stdout
    interrupt(1)
    result = asking("ask", QUESTION, "--doc", "book")
    assert result.exit_code == 130
    assert result.stdout.endswith("\n")
    assert 1 < len(result.stdout) < len(whole)
    assert whole.startswith(result.stdout.removesuffix("\n"))
    assert re.fullmatch(r"interrupted after \d tokens\n", result.stderr)


def test_ctrl_c_gives_the_json_of_what_there_is(asking, interrupt):
    whole = json.loads(asking("ask", QUESTION, "--json").stdout)
    interrupt(1)
    result = asking("ask", QUESTION, "--doc", "book", "--json")
    assert (result.exit_code, result.stderr) == (130, "")
    values = json.loads(result.stdout)
    assert (values.keys(), values["stop"]) == (KEYS, "interrupted")
    assert whole["answer"].startswith(values["answer"])
    assert 0 < values["tokens"]["answer"] < whole["tokens"]["answer"]
    assert values["passages"] == whole["passages"]


def test_ctrl_c_ends_many_questions_after_the_line_of_the_one(asking, interrupt):
    interrupt(2)
    result = asking("ask", "-", input="who?\nwhen?\nwhere?\n")
    assert result.exit_code == 130
    values = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(v["question"], v["stop"]) for v in values] == [
        ("who?", "length"),
        ("when?", "interrupted"),
    ]


def test_ctrl_c_ends_an_answer_and_the_conversation_goes_on(asking, interrupt, monkeypatch):
    monkeypatch.setattr(render, "can_ask", lambda: True)
    typed = iter(["who?", "when?"])

    def type_next(prompt: str = "") -> str:
        for words in typed:
            return words
        raise EOFError

    monkeypatch.setattr("builtins.input", type_next)
    interrupt(1)
    result = asking("ask", "--anyway")
    assert result.exit_code == 0
    assert result.stderr.count("interrupted after") == 1
    assert result.stdout.count("book.txt:") > 0  # under the second answer


# --- mistakes ---


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["ask"], 2, "no question"),
        (["ask", "who?", "--questions", "q.txt"], 2, "both"),
        (["ask", "--questions", "none.txt"], 2, "none.txt"),
        (["ask", " "], 2, "empty"),
        (["ask", "news of rain " * 300], 2, "no room"),
        (["ask", "who?", "--doc", "none"], 10, "'none'"),
        (["ask", "who?", "--doc", "../x"], 10, "'../x'"),
        (["ask", "who?", "--library", "none"], 10, "no library"),
        (["ask", "who?", "--temperature", "-1"], 2, "temperature"),
        (["ask", "who?", "--top-p", "0"], 2, "top-p"),
        (["ask", "who?", "--top-k", "0"], 2, "top-k"),
        (["ask", "who?", "--stop", ""], 2, "empty text"),
        (["ask", "who?", "--max-new-tokens", "0"], 2, "0 tokens"),
        (["ask", "who?", "--gather", "0"], 2, "--gather"),
        (["ask", "who?", "--device", "tpu"], 2, "'tpu'"),
        (["ask", "who?", "--dtype", "int3"], 2, "'int3'"),
        (["ask", "who?", "--threads", "0"], 2, "threads"),
        (["find", " "], 2, "empty"),
    ],
)
def test_mistakes(asking, args, code, said):
    result = asking(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_another_model_than_the_document_was_read_with(longctx):
    result = longctx("ask", "who?", "--model", "tiny", "--json")
    assert (result.exit_code, result.stdout) == (13, "")
    assert json.loads(result.stderr.splitlines()[-1])["error"]["code"] == 13


def test_a_flipped_byte_is_found(asking, library):
    shard = next((library / "documents/book").glob("memory-*"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    result = asking("ask", "who?")
    assert result.exit_code == 13
    assert shard.name in result.stderr


# --- how many passages, and another model that answers ---


@pytest.fixture(scope="session")
def other_model(make_model_folder, tmp_path_factory):
    """A folder of a model with another tokenizer, and no profile made for it."""
    folder = tmp_path_factory.mktemp("models") / "second"
    return make_model_folder(folder, "a boat came home with news of rain and salt", 300)


def test_passages_limit_what_is_read_and_json_says_so(asking):
    usual = json.loads(asking("ask", QUESTION, "--json", "--gather", 150).stdout)
    few = json.loads(asking("ask", QUESTION, "--json", "--gather", 150, "--passages", 1).stdout)
    assert usual["state"]["read"]["tokens"] == usual["tokens"]["gathered"]
    assert few["state"]["read"]["passages"] == 1 == len(few["passages"])
    assert few["state"]["read"]["order"] == "document"
    assert asking("ask", QUESTION, "--passages", 0).exit_code == 2


def test_another_model_answers(asking, other_model, model_folder, monkeypatch):
    found = asking("ask", QUESTION, "--json", "--answer-model", other_model)
    assert (found.exit_code, found.stderr) == (0, "document: book (the latest)\n")
    state = json.loads(found.stdout)["state"]
    assert (state["model"], state["answer_model"]) == (str(model_folder), str(other_model))
    assert 0 < state["read"]["tokens"] <= 128
    monkeypatch.setenv("LONGCTX_ANSWER_MODEL", str(other_model))
    told = asking("ask", QUESTION, "-v", "--doc", "book").stderr
    assert re.search(rf"put before {other_model}: \d+ tokens in \d+ passages \(document\)", told)
    lines = [
        json.loads(line) for line in asking("ask", "-", input="who?\nwhere?\n").stdout.splitlines()
    ]
    assert [line["state"]["answer_model"] for line in lines] == [str(other_model)] * 2


def test_a_model_that_cannot_answer_is_refused_with_what_to_do(asking):
    refused = asking("ask", QUESTION, "--answer-model", "./no-such-model")
    assert refused.exit_code == 2
    assert "no-such-model" in refused.stderr
    refused = asking("ask", QUESTION, "--answer-profile", "tiny")
    assert refused.exit_code == 2
    assert "Give --answer-model too" in refused.stderr
