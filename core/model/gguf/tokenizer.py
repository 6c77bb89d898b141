"""Makes a tokenizer from a GGUF file's metadata.

A GGUF file has vocabulary, merges or scores, and the name of a way to split text before merging
(`tokenizer.ggml.pre`). What those names mean is in `splits.py`; a tokenizer with an unknown one is
refused, since other splits are other tokens.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from longctx.core.common.foreign import foreign
from longctx.core.model.gguf.facts import Facts
from longctx.core.model.gguf.splits import COMPOSED, FIRST_ADDED, SPLITS, WHOLE_WORDS

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # of `tokenizer.ggml.token_type`
# Tokens that end a turn or a text, as llama.cpp knows them by their names.
ENDS = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>"}
ENDS |= {"<|end_of_text|>", "<EOT>", "<|return|>", "<|call|>"}
# A part of an answer ends with it, not the answer, in models that have these too.
HARMONY = {"<|return|>", "<|call|>"}
MADE = "PreTrainedTokenizerFast"
BLANK = "\u2581"  # stands for a space in sentencepiece's vocabularies
REMEDY = "Name this model in safetensors form."


def save_tokenizer(facts: Facts, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and generation_config.json.

    Raises:
        UsageError: the tokenizer is of a kind that cannot be made exactly.
    """
    with foreign(f"cannot make the tokenizer of {str(facts.container.path)!r}"):
        make_tokenizer(facts).save(str(folder / "tokenizer.json"))
    for name, values in (
        ("tokenizer_config.json", _settings(facts)),
        ("generation_config.json", {"eos_token_id": sorted(end_ids(facts))}),
    ):
        text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, "utf-8")


def make_tokenizer(facts: Facts) -> Tokenizer:
    """The tokenizer that the metadata describes.

    Raises:
        UsageError: it is of a kind that cannot be made exactly.
    """
    kind = facts.text("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        why = f"its tokenizer is of the kind {str(kind)[:80]!a}, which this version cannot make"
        raise facts.wrong(why, REMEDY)
    backend = _byte_level(facts) if kind == "gpt2" else _sentencepiece(facts)
    _add_tokens(backend, facts)
    _add_ends(backend, facts)
    return backend


# --- byte-level BPE, as GPT-2 has it ------------------------------------------------------------


def _byte_level(facts: Facts) -> Tokenizer:
    pre = _pre(facts)
    if pre not in SPLITS:
        why = f"its tokenizer splits text by {pre[:80]!a}; this version knows {', '.join(SPLITS)}"
        raise facts.wrong(why, REMEDY)
    merges = [_pair(merge) for merge in _strings(facts, "merges")]
    whole = pre in WHOLE_WORDS
    model = models.BPE(vocab=_vocabulary(facts), merges=merges, ignore_merges=whole)
    backend = Tokenizer(model)
    if pre in COMPOSED:
        backend.normalizer = normalizers.NFC()
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


# --- sentencepiece's BPE ------------------------------------------------------------------------


def _sentencepiece(facts: Facts) -> Tokenizer:
    """Pieces are merged by score, bytes stand for what has no piece, a space is a letter."""
    vocabulary = _vocabulary(facts)
    unknown = facts.token("unknown_token_id")
    model = models.BPE(
        vocab=vocabulary,
        merges=_merges(facts, vocabulary),
        unk_token=None if unknown is None else _strings(facts, "tokens")[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = Tokenizer(model)
    prefix = facts.container.metadata.get("tokenizer.ggml.add_space_prefix") is not False
    steps = [normalizers.Prepend(BLANK)] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", BLANK)])
    back = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*back, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    return backend


def _merges(facts: Facts, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Every pair of pieces that make a piece, best first: by its score, then by its id.

    Tokens that are matched whole in text (controls, those of users) are made by no merge.
    """
    scores, kinds = _numbers(facts, "scores"), _types(facts)
    if len(scores) != len(_strings(facts, "tokens")):
        raise facts.wrong("its metadata has no score for each token")
    found: list[tuple[float, int, int, str, str]] = []
    for piece, i in vocabulary.items():
        if kinds and kinds[i] in (UNKNOWN, CONTROL, USER_DEFINED):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                found.append((-scores[i], i, cut, left, right))
    return [(left, right) for *_, left, right in sorted(found)]


# --- what stands for itself in text -------------------------------------------------------------


def _add_tokens(backend: Tokenizer, facts: Facts) -> None:
    """Adds the tokens that are matched whole in text: controls, and those defined by users."""
    # Phi-3's chat tokens take the white space behind them, as in its own tokenizer.
    strips = facts.architecture == "phi3" and facts.text("tokenizer.ggml.model") == "llama"
    added = [
        AddedToken(token, normalized=False, special=kind == CONTROL, rstrip=strips)
        for token, kind in zip(_strings(facts, "tokens"), _types(facts), strict=False)
        if kind in (CONTROL, USER_DEFINED)
    ]
    backend.add_tokens(added)


def _add_ends(backend: Tokenizer, facts: Facts) -> None:
    """Has the first and the last token added where the file says so."""
    tokens = _strings(facts, "tokens")
    first, last = facts.token("bos_token_id"), facts.token("eos_token_id")
    by_kind = facts.text("tokenizer.ggml.model") == "llama" or _pre(facts) in FIRST_ADDED
    before = [first] if _adds(facts, "bos", by_kind) and first is not None else []
    after = [last] if _adds(facts, "eos", False) and last is not None else []
    if before or after:
        backend.post_processor = TemplateProcessing(
            single=[*(tokens[i] for i in before), "$A", *(tokens[i] for i in after)],
            special_tokens=[(tokens[i], i) for i in {*before, *after}],
        )


def _adds(facts: Facts, which: str, default: bool) -> bool:
    stated = facts.container.metadata.get(f"tokenizer.ggml.add_{which}_token")
    return stated if isinstance(stated, bool) else default


# --- settings -----------------------------------------------------------------------------------


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


def end_ids(facts: Facts) -> set[int]:
    """The ids of the tokens that end an answer: those that the file names, and known ones."""
    named = {facts.token(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")}
    pairs = enumerate(zip(_strings(facts, "tokens"), _types(facts), strict=False))
    known = {token: i for i, (token, kind) in pairs if kind == CONTROL and token in ENDS}
    if known.keys() >= HARMONY:
        known.pop("<|end|>", None)
    return {i for i in named if i is not None} | {*known.values()}


# --- the metadata -------------------------------------------------------------------------------


def _pre(facts: Facts) -> str:
    return facts.text("tokenizer.ggml.pre") or "default"


def _vocabulary(facts: Facts) -> dict[str, int]:
    tokens = _strings(facts, "tokens")
    found = {token: i for i, token in enumerate(tokens)}
    if len(found) != len(tokens):
        raise facts.wrong(f"{len(tokens) - len(found):,} of its tokens are there twice")
    return found


def _strings(facts: Facts, key: str) -> list[str]:
    values = facts.container.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(values, list) or not values:
        raise facts.wrong(f"its metadata has no tokenizer.ggml.{key}")
    return values


def _numbers(facts: Facts, key: str) -> list[float]:
    values = facts.container.metadata.get(f"tokenizer.ggml.{key}")
    return values.tolist() if isinstance(values, np.ndarray) else []


def _types(facts: Facts) -> list[int]:
    found = [int(value) for value in _numbers(facts, "token_type")]
    if found and len(found) != len(_strings(facts, "tokens")):
        raise facts.wrong("its metadata has no type for each token")
    return found
