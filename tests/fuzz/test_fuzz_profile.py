"""Whatever stands in a profile: it is read, or refused with an error of our own."""

import json

import pytest
import yaml
from fuzz_cases import changed, many, may_refuse, of_corpus, places
from fuzz_settings import WHOLE, require_sound, use
from hypothesis import example, given
from hypothesis import strategies as st

from longctx.core.common.errors import UsageError
from longctx.core.profile import profile, safe_yaml
from longctx.core.profile.profile import load, parse

EDGES = [0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**40, 0.0, -0.5, 1e308, 1e-320]
WORDS = [
    "",
    "reform",
    "full",
    "tiny",
    "chat",
    "{question}",
    "\x00",
    "\x1b[31m",
    "a:b=c",
    "q",
    "<s>",
]
leaves = st.sampled_from([None, True, False, *EDGES, *WORDS]) | st.text(max_size=12) | st.integers()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(leaves.map(str), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def profiles(draw):
    """The whole profile with up to three places changed, or with a new key."""
    value = WHOLE
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(list(places(value))))
        value = changed(value, at, draw(values))
        if isinstance(value, dict) and draw(st.integers(0, 5)) == 0:
            value = {**value, draw(st.text(max_size=8)): draw(values)}
    return value


@pytest.fixture(scope="module")
def tokenizer(model_folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder)


def test_the_whole_profile_is_one(tokenizer):
    use(load(yaml.safe_dump(WHOLE), "profile"), tokenizer)


@many
@given(value=profiles())
def test_a_profile_with_something_else_in_it(tokenizer, value):
    require_sound(json.dumps(value) if "\x00" in str(value) else yaml.safe_dump(value), tokenizer)


@many
@given(value=profiles())
def test_a_profile_as_a_document_keeps_it(tokenizer, value):
    """A manifest's profile is JSON that anybody may have written."""
    with may_refuse(UsageError):
        use(parse(value, "the document's profile"), tokenizer)


SIGNS = "{}[]:,-?&*!|>%@`#'\"\\ \n\t~<=.0179eExX_abn"


@many
@given(text=st.text(st.sampled_from(SIGNS), max_size=60) | st.text(max_size=60))
@example("&a [*a]")
@example("!!python/object/apply:os.system ['true']")
@example("a: 2026-13-45")
@example("? {a: 1}\n: b")
@example("[" * 100_000)
@example("{a: " * 5_000)
@example("- " * 5_000)
def test_a_text_that_is_hardly_yaml(text):
    for start in ("", "name: "):
        with may_refuse(UsageError):
            json.dumps(safe_yaml.read(start + text, "fuzz"), allow_nan=False).encode("ascii")


@many
@given(data=st.binary(max_size=80))
def test_a_file_of_any_bytes(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    file.write_bytes(data)
    with may_refuse(UsageError):
        profile.find(str(file))


@of_corpus("*.yaml")
def test_what_was_found_before(tokenizer, file):
    require_sound(file.read_text("utf-8"), tokenizer)


@pytest.mark.parametrize("wrong", ["\ud800 {question}", float("nan")])
def test_a_documents_own_profile_holds_no_more_than_yaml_can(wrong):
    kept = {**WHOLE, "prompt": {"prefix": wrong, "question": "{question}"}}
    with pytest.raises(UsageError, match=r"half a character|no number"):
        parse(kept, "the document's profile")
