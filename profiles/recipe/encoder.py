"""Writes profiles/minilm/ from the published checkpoint: matrices in 8 bits, the rest as it is.

    python -m profiles.recipe.encoder CHECKPOINT

CHECKPOINT is a folder with `model.safetensors` and `tokenizer.json` of all-MiniLM-L6-v2, as its
makers publish it; the SHA-256 of the weights is checked.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TARGET = Path(__file__).resolve().parents[1] / "minilm"
CONFIG = {
    **{"layers": 6, "heads": 12, "width": 384, "inner": 1536, "positions": 512},
    **{"epsilon": 1e-12, "longest": 256},
}


def quantized(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each matrix (R, C) as int8 with a float32 scale for each row, named `<name>.scale`."""
    made = {}
    for name, values in weights.items():
        if name.startswith("pooler.") or values.dtype.kind != "f":
            continue  # not used: hidden states are averaged
        if values.ndim == 1:
            made[name] = values
            continue
        scale = np.maximum(np.abs(values).max(axis=1), 1e-12) / np.float32(127)
        made[name] = np.rint(values / scale[:, None]).astype(np.int8)
        made[f"{name}.scale"] = scale.astype(np.float32)
    return made


def main(checkpoint: Path) -> None:
    """Writes the three files that are made of the checkpoint."""
    data = (checkpoint / "model.safetensors").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != PUBLISHED:
        sys.exit(f"{checkpoint}: the weights have SHA-256 {digest}, not {PUBLISHED}")
    TARGET.mkdir(exist_ok=True)
    save_file(quantized(load_file(checkpoint / "model.safetensors")), TARGET / "model.safetensors")
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text("utf-8"))
    tokenizer |= {"truncation": None, "padding": None}
    text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (TARGET / "tokenizer.json").write_text(f"{text}\n", "utf-8")
    (TARGET / "config.json").write_text(f"{json.dumps(CONFIG, indent=1)}\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
