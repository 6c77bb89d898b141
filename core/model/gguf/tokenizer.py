"""Makes a tokenizer from a GGUF file's metadata.

A GGUF file has vocabulary, merges and the name of a way to split text before merging
(`tokenizer.ggml.pre`). Its splits are stated here, as the tokenizers that these files were made of
have them; a tokenizer with an unknown one is refused, since other splits are other tokens.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from longctx.core.common.foreign import foreign
from longctx.core.model.gguf.facts import Facts

CONTROL, USER_DEFINED = 3, 4  # of `tokenizer.ggml.token_type`
# The regular expressions of `tokenizer.ggml.pre`, applied one after another.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGIT = r"\p{N}"
SPLITS = {
    "gpt-2": (GPT2,),
    "smollm": (DIGIT, GPT2),
}
# Tokens that end a turn or a text, as llama.cpp knows them by their names.
ENDS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>")
MADE = "PreTrainedTokenizerFast"


def save_tokenizer(facts: Facts, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and generation_config.json.

    Raises:
        UsageError: the tokenizer is of a kind that cannot be made exactly.
    """
    with foreign(f"cannot make the tokenizer of {str(facts.container.path)!r}"):
        backend = make_tokenizer(facts)
        backend.save(str(folder / "tokenizer.json"))
    for name, values in (
        ("tokenizer_config.json", _settings(facts)),
        ("generation_config.json", {"eos_token_id": sorted(_ends(facts))}),
    ):
        text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, "utf-8")


def make_tokenizer(facts: Facts) -> Tokenizer:
    """The tokenizer that the metadata describes."""
    kind = facts.text("tokenizer.ggml.model")
    if kind != "gpt2":
        raise facts.wrong(f"its tokenizer is of the kind {str(kind)[:80]!a}, which is not read")
    backend = _byte_level(facts)
    _add_tokens(backend, facts)
    _add_ends(backend, facts)
    return backend


def _byte_level(facts: Facts) -> Tokenizer:
    """Byte-level BPE, as GPT-2 has it."""
    pre = facts.text("tokenizer.ggml.pre") or "default"
    if pre not in SPLITS:
        known = ", ".join(SPLITS)
        why = f"its tokenizer splits text by {pre[:80]!a}; this version knows {known}"
        raise facts.wrong(why, "Name this model in safetensors form.")
    vocabulary = {token: i for i, token in enumerate(_strings(facts, "tokens"))}
    merges = [_pair(merge) for merge in _strings(facts, "merges")]
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(split), "isolated") for split in SPLITS[pre]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _strings(facts: Facts, key: str) -> list[str]:
    values = facts.container.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(values, list) or not values:
        raise facts.wrong(f"its metadata has no tokenizer.ggml.{key}")
    return values


def _types(facts: Facts) -> list[int]:
    values = facts.container.metadata.get("tokenizer.ggml.token_type")
    return [] if values is None else [int(value) for value in values]


def _add_tokens(backend: Tokenizer, facts: Facts) -> None:
    """Adds the tokens that stand for themselves in text: controls, and those defined by users."""
    for token, kind in zip(_strings(facts, "tokens"), _types(facts), strict=False):
        if kind == CONTROL:
            backend.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif kind == USER_DEFINED:
            backend.add_tokens([AddedToken(token, normalized=False, special=False)])


def _add_ends(backend: Tokenizer, facts: Facts) -> None:
    """Has the first and the last token added, where the file says so."""
    tokens = _strings(facts, "tokens")
    first, last = facts.token("bos_token_id"), facts.token("eos_token_id")
    before = [first] if _adds(facts, "bos") and first is not None else []
    after = [last] if _adds(facts, "eos") and last is not None else []
    if before or after:
        named = [tokens[i] for i in before], [tokens[i] for i in after]
        backend.post_processor = TemplateProcessing(
            single=[*named[0], "$A", *named[1]],
            special_tokens=[(tokens[i], i) for i in {*before, *after}],
        )


def _adds(facts: Facts, which: str) -> bool:
    return facts.container.metadata.get(f"tokenizer.ggml.add_{which}_token") is True


def _settings(facts: Facts) -> dict[str, Any]:
    """The contents of tokenizer_config.json."""
    tokens = _strings(facts, "tokens")
    ids = {
        "bos_token": facts.token("bos_token_id"),
        "eos_token": facts.token("eos_token_id"),
        "unk_token": facts.token("unknown_token_id"),
        "pad_token": facts.token("padding_token_id"),
    }
    named = {key: tokens[i] for key, i in ids.items() if i is not None}
    template = facts.text("tokenizer.chat_template")
    more = {"chat_template": template} if template else {}
    return {"tokenizer_class": MADE, "clean_up_tokenization_spaces": False, **named, **more}


def _ends(facts: Facts) -> set[int]:
    """The ids of the tokens that end an answer."""
    named = {facts.token(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")}
    pairs = enumerate(zip(_strings(facts, "tokens"), _types(facts), strict=False))
    known = {i for i, (token, kind) in pairs if kind == CONTROL and token in ENDS}
    return {i for i in named if i is not None} | known
