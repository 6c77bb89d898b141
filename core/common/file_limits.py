"""Size limits, in bytes, of files that are read whole: all in one place.

What is held in memory takes a multiple of it: JSON up to 35 times its size (62 MB of `[]` take
2.25 GB). So the limits are a few times what is known to be of use. Sources, which are streamed,
have their own (`sources/limits.py`), and so have the files of a library (`store/`).
"""

CONFIG = 1 << 20  # the config file, and a model's config.json and generation_config.json
TOKENIZER = 128 << 20  # other files of a model: a tokenizer.json of 262,144 tokens has 33 MB
INDEX = 64 << 20  # *.index.json: where each of a model's tensors is
HEADER = 32 << 20  # before the tensors of a safetensors file: of 100,000 tensors, 17 MB
CACHE = 4 << 20  # what is remembered between runs; a larger one is taken as lost
QUESTIONS = 16 << 20  # a file of questions
QUESTION = 1 << 20  # one question on standard input
DATA = 64 << 20  # a file of questions, stories or paragraphs for `eval`; of prose for haystacks
JOURNAL = 256 << 20  # what an evaluation that goes on has finished: one line a result
