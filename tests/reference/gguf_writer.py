"""Writes a tiny random Llama with a byte-level tokenizer to a GGUF file."""

from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

HEADS, GROUPS, DIM, LAYERS, INNER = 4, 2, 8, 3, 48


def write(path: Path, seed: int = 3, window: int = 256) -> Path:
    """Writes the file; the same seed gives the same bytes."""
    rng = np.random.default_rng(seed)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "</s>", *alphabet, alphabet[65] + alphabet[66]]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random")
    writer.add_license("apache-2.0")
    writer.add_block_count(LAYERS)
    writer.add_context_length(window)
    writer.add_embedding_length(HEADS * DIM)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(DIM)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, *[1] * (len(tokens) - 2)])
    writer.add_token_merges([f"{alphabet[65]} {alphabet[66]}"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    width = HEADS * DIM
    shapes = {"token_embd": (len(tokens), width)}
    for i in range(LAYERS):
        layer = f"blk.{i}."
        shapes |= {layer + "attn_q": (width, width), layer + "attn_output": (width, width)}
        shapes |= {layer + "attn_k": (GROUPS * DIM, width), layer + "attn_v": (GROUPS * DIM, width)}
        shapes |= {layer + "ffn_gate": (INNER, width), layer + "ffn_up": (INNER, width)}
        shapes |= {layer + "ffn_down": (width, INNER)}
        shapes |= {layer + "attn_norm": (width,), layer + "ffn_norm": (width,)}
    for name, shape in {**shapes, "output_norm": (width,)}.items():
        values = rng.standard_normal(shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", values * (0.2 if len(shape) == 2 else 1.0))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
