"""How byte-level tokenizers split text before merging, by llama.cpp's names (`tokenizer.ggml.pre`).

The expressions are those of the tokenizers that the names stand for, applied one after another.
"""

_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"

_DIGIT = r"\p{N}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SUFFIX}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_SUFFIX}|{_BEFORE}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_TEKKEN = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_GPT4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_SUFFIX}?|{_BEFORE}{_UPPER}+{_LOWER}*{_SUFFIX}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_NAMED = {
    (_GPT2,): "gpt-2 phi-2 mpt olmo jais exaone4 trillion gigachat mellum a.x-4.0 granite-docling",
    (_DIGIT, _GPT2): "smollm starcoder refact command-r codeshell exaone minerva-7b",
    (
        _LLAMA3,
    ): "llama-bpe llama3 llama-v3 falcon3 pixtral midm-2.0 dbrx smaug-bpe glm4 chatglm-bpe",
    (_QWEN2,): "qwen2 deepseek-r1-qwen kormo megrez stablelm2",
    (_TEKKEN,): "tekken",
    (_GPT4O,): "gpt-4o llama4",
}
SPLITS = {name: splits for splits, names in _NAMED.items() for name in names.split()}
# A word that is in the vocabulary is one token, whatever the merges would give.
WHOLE_WORDS = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0", "tekken"}
# The first token is added where a file does not say whether it is.
FIRST_ADDED = WHOLE_WORDS
# Their own tokenizers compose characters before anything else (NFC); a file does not say so.
COMPOSED = {"qwen2", "command-r", "olmo"}
