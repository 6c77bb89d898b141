"""Tokenizers from metadata: the same tokens as those they were made of, for any text."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.normalizers import NFC
from transformers import AutoTokenizer

from longctx.core.common.errors import UsageError
from longctx.core.model.gguf.container import open_container
from longctx.core.model.gguf.facts import Facts
from longctx.core.model.gguf.splits import COMPOSED, SPLITS, WHOLE_WORDS
from longctx.core.model.gguf.tokenizer import make_tokenizer, save_tokenizer

TEXTS = [
    "It's 12345 tokens, they'LL say; 3.14159 and 1,000,000!\n\n\n  def f(x):\n\t\treturn x**2 \t\n",
    "cafe\u0301 and café, naïve ﬁnd ½ x² ٣٤٥ Ⅻ",
    "日本語のテキスト、中文文本。한국어 Привет мир! שלום नमस्ते 🙂👍🏽 \u200b\u00a0 end",
    "<|user|>Hi<|end|>\n<tool>{'a': [1, 2]}</tool>  two  spaces   three    four",
    "CamelCaseHTTPServer snake_case kebab-case //path/to/file.py?x=1&y=%20 \r\n\r\n  ",
    " leading space",
    "",
    " ",
    "\n",
    "   \n   x",
]
SPECIAL = ["<|endoftext|>", "<|user|>", "<|end|>"]
CORPUS = [*TEXTS, Path(__file__).read_text("utf-8")] * 2


def trained(pre: str) -> Tokenizer:
    """A tokenizer with a name's splits, made by the library's own parts."""
    backend = Tokenizer(models.BPE(ignore_merges=pre in WHOLE_WORDS))
    if pre in COMPOSED:
        backend.normalizer = NFC()
    if pre == "smollm":  # as in its own tokenizer.json
        parts = [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]
    elif pre == "gpt-2":
        parts = [pre_tokenizers.ByteLevel(False)]
    else:
        parts = [pre_tokenizers.Split(Regex(split), "isolated") for split in SPLITS[pre]]
        parts.append(pre_tokenizers.ByteLevel(False, use_regex=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(parts)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return backend


def write_byte_level(path: Path, backend: Tokenizer, pre: str, **more) -> Facts:
    """The metadata that llama.cpp's conversion writes for a byte-level tokenizer."""
    vocabulary = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(backend.to_str())["model"]["merges"]
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocabulary])
    kinds = {**dict.fromkeys(SPECIAL, 3), "<tool>": 4}
    writer.add_token_types([kinds.get(token, 1) for token, _ in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    return finished(writer, path, **more)


def finished(writer: GGUFWriter, path: Path, **more) -> Facts:
    for key, value in more.items():
        getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Facts(open_container(path))


def random_texts(count: int) -> list[str]:
    chance, letters = random.Random(1), sorted({*"".join(TEXTS)})
    return ["".join(chance.choices(letters, k=chance.randrange(60))) for _ in range(count)]


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o"])
def test_byte_level_tokens_are_the_same(pre, tmp_path):
    backend = trained(pre)
    made = make_tokenizer(
        write_byte_level(tmp_path / "model.gguf", backend, pre, add_bos_token=False)
    )
    for text in [*TEXTS, *random_texts(300)]:
        expected, found = backend.encode(text), made.encode(text)
        assert (found.ids, found.offsets) == (expected.ids, expected.offsets), text
        assert made.decode(found.ids) == backend.decode(expected.ids)


def test_names_of_splits_that_are_unknown_are_refused(tmp_path):
    for pre in ("default", "deepseek-v3"):
        facts = write_byte_level(tmp_path / f"{pre}.gguf", trained("gpt-2"), pre)
        with pytest.raises(UsageError, match=f"splits text by '{pre}'") as refused:
            make_tokenizer(facts)
        assert "safetensors form" in str(refused.value)


def test_kinds_that_are_unknown_are_refused(tmp_path):
    writer = GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_tokenizer_model("bert")
    with pytest.raises(UsageError, match="of the kind 'bert'"):
        make_tokenizer(finished(writer, tmp_path / "model.gguf"))


def test_the_settings_are_those_of_the_file(tmp_path):
    template = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}"
    facts = write_byte_level(
        tmp_path / "model.gguf",
        trained("gpt-2"),
        "gpt-2",
        bos_token_id=0,
        eos_token_id=0,
        eot_token_id=1,
        add_bos_token=True,
        chat_template=template,
    )
    save_tokenizer(facts, tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.is_fast
    assert (tokenizer.bos_token, tokenizer.eos_token_id) == ("<|endoftext|>", 0)
    assert tokenizer("a").input_ids[0] == 0
    assert tokenizer("a", add_special_tokens=False).input_ids[0] != 0
    said = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert said == "<|user|>Hi<|end|>"
    assert tokenizer.decode(tokenizer(said).input_ids, skip_special_tokens=True) == "Hi"
    ends = json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"]
    assert ends == [0, 1, 2]  # two that are named, and <|end|>


# --- sentencepiece ---

PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]


def write_pieces(path: Path, architecture: str = "llama", **more) -> tuple[Facts, dict[str, float]]:
    """A vocabulary with scores like sentencepiece's: made by merging what is most frequent."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "always")
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    found = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    whole = ("<|end|>", "  ", *PIECES)
    known = {token: -float(i) for i, (token, _) in enumerate(found) if token not in whole}
    writer = GGUFWriter(path, architecture)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*PIECES, *known, "<|end|>", "  "])
    scores = [*[0.0] * len(PIECES), *known.values(), -1000.0, -1000.0]
    writer.add_token_scores(scores)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * len(known), 3, 4])
    return finished(writer, path, bos_token_id=1, unk_token_id=0, **more), known


def merged_by_score(text: str, scores: dict[str, float]) -> list[str]:
    """sentencepiece's algorithm: the neighbours whose piece has the best score are merged first."""
    parts = list(text)
    while True:
        pairs = [a + b for a, b in itertools.pairwise(parts)]
        known = [(scores[pair], -i) for i, pair in enumerate(pairs) if pair in scores]
        if not known:
            break
        at = -max(known)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    whole = [[one] if one in scores else [f"<0x{b:02X}>" for b in one.encode()] for one in parts]
    return [piece for pieces in whole for piece in pieces]


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_are_merged_by_score(prefix, tmp_path):
    more = {} if prefix else {"add_space_prefix": False}
    facts, scores = write_pieces(tmp_path / "model.gguf", add_bos_token=False, **more)
    made = make_tokenizer(facts)
    texts = [text for text in [*TEXTS, *random_texts(200)] if text and "  " not in text]
    for text in [text for text in texts if "<|end|>" not in text]:
        spaced = ("\u2581" if prefix else "") + text.replace(" ", "\u2581")
        encoded = made.encode(text)
        assert encoded.tokens == merged_by_score(spaced, scores), text
        assert made.decode(encoded.ids) == text


def test_what_stands_for_itself_is_matched_whole(tmp_path):
    facts, _ = write_pieces(tmp_path / "model.gguf")
    made = make_tokenizer(facts)
    tokens = made.encode("a  b<|end|>\nc").tokens
    assert tokens[0] == "<s>"  # added, as the file does not say otherwise
    assert "  " in tokens
    assert tokens[tokens.index("<|end|>") + 1 :][-2:] == ["\n", "c"]
    phi, _ = write_pieces(tmp_path / "phi.gguf", "phi3")
    tokens = make_tokenizer(phi).encode("a<|end|>\nc").tokens
    assert "\n" not in tokens  # its chat tokens take the white space behind them


def test_scores_are_needed(tmp_path):
    facts, _ = write_pieces(tmp_path / "model.gguf")
    facts.container.metadata["tokenizer.ggml.scores"] = np.zeros(3, np.float32)
    with pytest.raises(UsageError, match="no score for each token"):
        make_tokenizer(facts)
    facts.container.metadata["tokenizer.ggml.tokens"][5] = "a"
    with pytest.raises(UsageError, match="1 of its tokens are there twice"):
        make_tokenizer(facts)
