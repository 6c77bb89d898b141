"""Chat templates: a document and its question stand where the model's own conversation has them."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer

from longctx.core.ask.session import Session
from longctx.core.common.errors import UsageError
from longctx.core.engine.setup import prepare
from longctx.core.ingest.ingest import ingest
from longctx.core.profile import profile
from longctx.core.profile.chat import resolve
from longctx.core.profile.profile import Chat, PromptTemplate
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.profile.sampling import Sampling

DOCUMENT = "the keeper wrote: a <s> boat\n\n came </s> home\nwith news"
WORDS = "who </s> wrote?"
TURNS = """\
{%- if messages[0].role != 'system' %}{{ bos_token }}system
Read, then answer.{{ eos_token }}
{% endif %}
{%- for message in messages %}{{ bos_token + message.role }}
{{ message.content | trim }}{{ eos_token }}
{% endfor %}
{%- if add_generation_prompt %}{{ bos_token }}assistant
{% if enable_thinking is defined and not enable_thinking %}(no thoughts){{ mood }}
{% endif %}{% endif %}"""


@pytest.fixture
def chat_folder(model_folder, tmp_path) -> Path:
    """The random model with a chat template, and a profile that says nothing of a prompt."""
    folder = tmp_path / "chat-model"
    shutil.copytree(model_folder, folder)
    (folder / "chat_template.jinja").write_text(TURNS)
    text = (folder / "profile.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("prompt")]
    (folder / "profile.yaml").write_text("\n".join(lines))
    return folder


@pytest.fixture
def chat_setup(setup_random, chat_folder):
    profile_file = str(chat_folder / "profile.yaml")
    return dataclasses.replace(setup_random, model=str(chat_folder), profile=profile_file)


@pytest.fixture
def tokenizer(chat_folder):
    return AutoTokenizer.from_pretrained(chat_folder)


def conversation(tokenizer, document: str, question: str, **variables) -> list[int]:
    content = f"{document}\n\nQuestion: {question}"
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        enable_thinking=False,
        **variables,
    ).input_ids


# --- the tokens ---


def test_prefix_document_and_question_are_the_conversation(tokenizer):
    prompt = PromptEncoder(resolve(None, tokenizer), tokenizer)
    document, words = DOCUMENT.replace("<s> ", "").replace("</s> ", ""), "who wrote?"
    middle = tokenizer(document, add_special_tokens=False).input_ids
    ours = [*prompt.prefix().tolist(), *middle, *prompt.question(words)[0].tolist()]
    assert ours == conversation(tokenizer, document, words)
    assert tokenizer.decode(prompt.prefix()).startswith("<s>system\nRead, then answer.</s>")
    assert tokenizer.decode(prompt.question(words)[0]).endswith("<s>assistant\n(no thoughts)\n")


def test_only_the_template_writes_special_tokens_and_only_words_score(tokenizer):
    prompt = PromptEncoder(resolve(None, tokenizer), tokenizer)
    ids, scored = prompt.question(WORDS)
    assert ((ids == 0).sum(), (ids == 1).sum()) == (1, 1)
    assert tokenizer.decode(ids[scored]).strip() == WORDS


def test_a_profile_says_what_stands_in_the_message_and_gives_variables(tokenizer):
    chat = Chat(prefix="Book:\n", question="\n---\n{question}", chat_options={"mood": "!"})
    prompt = resolve(chat, tokenizer)
    assert prompt.prefix == "<s>system\nRead, then answer.</s>\n<s>user\nBook:\n"
    assert prompt.question == "\n---\n{question}</s>\n<s>assistant\n(no thoughts)!\n"
    thinking = dataclasses.replace(chat, chat_options={"enable_thinking": True})
    assert "thoughts" not in resolve(thinking, tokenizer).question
    with pytest.raises(UsageError, match=r"'tokenize' in `chat_options`"):
        resolve(Chat(chat_options={"tokenize": True}), tokenizer)


def test_a_special_token_takes_the_spaces_beside_it_as_its_tokenizer_does(tokenizer):
    marks = [
        AddedToken("<|a|>", special=True, rstrip=True),
        AddedToken("<|b|>", special=True, lstrip=True),
    ]
    tokenizer.add_special_tokens({"extra_special_tokens": marks})
    template = "<|a|> \n{question} \n<|b|> end<|a|>\n"
    ids = PromptEncoder(PromptTemplate(question=template), tokenizer).question("the boat")[0]
    text = template.replace("{question}", "the boat")
    assert ids.tolist() == tokenizer(text, add_special_tokens=False).input_ids


def test_the_date_in_a_template_is_the_same_every_day(tokenizer):
    tokenizer.chat_template = "\n{{ strftime_now('%d %b %Y') }}:{{ messages[0].content }}"
    assert resolve(None, tokenizer).prefix == "\n01 Jan 2026:"


# --- which prompt is taken ---


def test_what_a_profile_says_is_taken_before_the_template(tokenizer):
    own = PromptTemplate("a", "{question}")
    assert resolve(own, tokenizer) is own
    plain = profile.parse({"name": "a", "prompt": {"chat": False, "prefix": "b"}}, "a")
    assert resolve(plain.prompt, tokenizer) == PromptTemplate("b")


def test_without_a_template_a_model_begins_as_its_tokenizer_does(model_folder, tokenizer):
    plain = AutoTokenizer.from_pretrained(model_folder)
    assert resolve(None, plain) == PromptTemplate()
    plain.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    assert resolve(None, plain) == PromptTemplate(prefix="<s>")
    with pytest.raises(UsageError, match=r"no chat template.*profile"):
        resolve(Chat(), plain)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ messages[0].content | upper }}", "0 times the document"),
        ("{{ messages[0].content }}{{ messages[0].content }}", "2 times the document and 2 times"),
        ("{{ messages[0].content[:30] }}", "1 times the document and 0 times the question"),
        ("{{ messages[0].content | replace('\n', ' ') }}", "it alters the text"),
        ("{{ messages[0].content | e }}", "0 times"),
        ("{{ messages[0].content | tojson }}", "0 times"),
        ("{{ messages[0].content }}{question}", r"it has \{question\} in it"),
        ("{{ raise_exception('only with tools') }}", "only with tools"),
        ("{{ messages[0].content", "unexpected end of template"),
        ("{{ messages[0].content + 3 }}", "concatenate|must be str"),
    ],
)
def test_a_template_that_cannot_be_cut_is_refused(tokenizer, template, why):
    tokenizer.chat_template = template
    with pytest.raises(UsageError, match=rf"chat template: .*({why}).*prompt in a profile"):
        resolve(None, tokenizer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{chat: yes please}", "'chat' in `prompt`"),
        ("{chat: true, question: b}", "no place for the question"),
        ("{chat: true, suffix: b}", "unknown key 'suffix'.*chat_options"),
    ],
)
def test_a_wrong_chat_profile_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        profile.load(f"name: a\nprompt: {text}\n", "a.yaml")


# --- from ingest to answer ---


@pytest.mark.parametrize("method", ["full", "reform"])
def test_a_document_is_answered_as_in_the_models_own_conversation(
    chat_setup, chat_folder, tmp_path, method
):
    source, library = tmp_path / "a.txt", tmp_path / "library"
    source.write_text("a boat came home")
    ingest(library, [str(source)], dataclasses.replace(chat_setup, method=method))
    with Session(library, None, chat_setup) as session:
        answer = session.ask("who?", sampling=Sampling(max_new_tokens=6))
        tokenizer = session.engine.files.tokenizer
    ids = conversation(tokenizer, "a boat came home", "who?")
    model = AutoModelForCausalLM.from_pretrained(chat_folder, dtype=torch.float32)
    own = model.generate(torch.tensor([ids]), max_new_tokens=6, do_sample=False)
    assert answer.answer == tokenizer.decode(own[0, len(ids) :], skip_special_tokens=True).strip()


def test_the_prompt_is_kept_with_the_state(chat_setup, chat_folder, tmp_path):
    source, library = tmp_path / "a.txt", tmp_path / "library"
    source.write_text("a boat came home " * 30)
    ingest(library, [str(source)], chat_setup)
    setup = dataclasses.replace(chat_setup, profile=None)
    with Session(library, None, setup) as session:
        kept, first = session.engine.profile.prompt, session.ask("who?").answer
    assert ingest(library, [str(source)], chat_setup).status == "unchanged"
    (chat_folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with Session(library, None, setup) as session:
        assert session.engine.profile.prompt == kept
        assert session.ask("who?").answer == first
    with pytest.raises(UsageError, match="document 'a' exists"):
        ingest(library, [str(source)], chat_setup)


def test_a_model_without_a_profile_is_asked_with_its_template(chat_setup, tmp_path):
    bare = dataclasses.replace(chat_setup, profile=None)
    engine = prepare(dataclasses.replace(bare, method="full"))
    assert engine.profile.name == "chat-model"
    assert engine.profile.prompt.prefix.endswith("<s>user\n")
    by_rule = prepare(bare)
    assert (by_rule.method_name, by_rule.profile) == ("reform", engine.profile)
