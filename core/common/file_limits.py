"""Size limits, in bytes, of files that are read as a whole, all in one place.

Parsed data takes a multiple of the file in memory: JSON up to 35 times its size (62 MB of `[]` take
2.25 GB). So the limits are a few times what is known to be needed. Sources, which are streamed,
have their own (`sources/limits.py`), and so have the files of a library (`store/`).
"""

CONFIG = 1 << 20  # the config file, and a model's config.json and generation_config.json
TOKENIZER = 128 << 20  # a model's other files: a tokenizer.json of 262,144 tokens has 33 MB
INDEX = 64 << 20  # *.index.json: the file of each of a model's tensors
HEADER = 32 << 20  # before the tensors of a safetensors file: 17 MB for 100,000 tensors
GGUF_HEADER = 256 << 20  # before the tensors of a GGUF file: 12 MB for 262,144 tokens
CACHE = 4 << 20  # data remembered between runs; a larger file is treated as lost
QUESTIONS = 16 << 20  # a file of questions
QUESTION = 1 << 20  # one question on standard input
DATA = 64 << 20  # questions, stories or paragraphs for `eval`; prose for haystacks
JOURNAL = 256 << 20  # finished results of a resumable evaluation, one per line
STATE = 1 << 20  # the questions typed at the prompt, and the last answer for `ask --continue`
