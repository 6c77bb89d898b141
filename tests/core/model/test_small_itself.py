"""`small` with its real weights, which set-up installs (`make setup`): what it is known by."""

import pytest
import torch

from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.model import small
from longctx.core.model.files import open_model_files
from longctx.core.model.gguf.model import open_gguf
from longctx.core.model.weights import sha256

# States that were read with it name these; only another adapter may change the first.
WEIGHTS = sha256(f"{small.GGUF_SHA256}merge 1".encode())
CONFIG = "626dc9131d521f871034b25eb9e26bf76bd7effbe6e826816a3e076660ce80ff"
TOKENIZER = "6db8a0d457633d96766ad1fe365fb7741dbb085da311ae1478385670211e1e33"


def test_its_identity_is_that_of_earlier_states():
    found = open_model_files("small").fingerprint()
    assert (found.config, found.tokenizer) == (CONFIG, TOKENIZER)
    if small.adapter() is None:
        assert found.weights == WEIGHTS


def test_its_folder_describes_the_weights():
    files, opened = open_model_files("small"), open_gguf(small.require_base().path)
    for name in ("hidden_size", "num_hidden_layers", "rms_norm_eps", "rope_parameters"):
        assert getattr(files.config, name) == getattr(opened.config, name), name
    assert opened.parameters == files.num_parameters() == small.PARAMETERS
    assert len(files.tokenizer) == files.config.vocab_size == opened.config.vocab_size
    assert files.eos_ids() == {2}


@pytest.mark.slow
def test_it_runs_in_each_number_format(tmp_path, monkeypatch):
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    for dtype in ("bf16", "fp32"):
        engine = prepare(Setup(model="small", device="cpu", dtype=dtype))
        assert (engine.profile.name, engine.window) == ("small", 8192)
        assert {str(w.dtype) for w in engine.decoder._model.parameters()} == {
            str({"bf16": torch.bfloat16, "fp32": torch.float32}[dtype])
        }
