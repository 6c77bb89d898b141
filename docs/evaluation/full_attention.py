"""The baseline of the ingest rate: the bundled model run by transformers alone over full windows.

python docs/evaluation/full_attention.py
"""

import time

import torch
from transformers import AutoModelForCausalLM

from longctx.core.model.files import BUNDLED, open_model_files

WINDOW, REPEATS = 4096, 4


def main() -> None:
    """Print the rate."""
    files = open_model_files(BUNDLED)
    model = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32).base_model
    ids = torch.randint(files.config.vocab_size, (1, WINDOW))
    with torch.inference_mode():
        model(ids, use_cache=False)
        started = time.perf_counter()
        for _ in range(REPEATS):
            model(ids, use_cache=False)
    rate = WINDOW * REPEATS / (time.perf_counter() - started)
    print(f"{rate:.0f} tokens/s in windows of {WINDOW} ({torch.get_num_threads()} threads)")


if __name__ == "__main__":
    main()
