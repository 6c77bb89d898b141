"""Fixtures shared by all tests: small random models, made in process, and their folders."""

import gc
import os
import shutil
import signal
import socket
import tempfile
from copy import deepcopy
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker has the cache of the process that began it
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("HF_HOME", str(usual / "huggingface"))
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="longctx-tests-")
    os.environ["XDG_STATE_HOME"] = os.path.join(os.environ["XDG_CACHE_HOME"], "state")
os.environ["LONGCTX_DEFAULT_MODEL"] = "tiny"  # whatever is installed
os.environ["LONGCTX_ANSWER_MODEL"] = "own"
os.environ["LONGCTX_VECTORS"] = "0"  # which take time; tests of them ask for them

import pytest
from sampled import WHOLE

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as where a shell began this with `&`
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Imports what takes seconds, but not in a process that only hands tests to others."""
    if config.getoption("dist", "no") != "no":
        return
    import torch
    import transformers  # noqa: F401

    if not torch.cuda.is_available():  # Triton reads it when it is imported
        os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collects without looking for cycles: all that it makes stays, and looking took half the time.

    What stays is not looked through while tests run either, only what they make.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Deselects GPU tests where there is no GPU, and begins with files that take long."""
    import torch

    if not torch.cuda.is_available():
        gpu = [item for item in items if item.get_closest_marker("gpu")]
        items[:] = [item for item in items if item not in gpu]
        config.hook.pytest_deselected(items=gpu)
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)  # so that no process ends long after others


def pytest_unconfigure(config):
    """Removes the cache that this run, and the processes that it started, had of their own."""
    if not hasattr(config, "workerinput"):  # a worker need not look at its end either
        gc.unfreeze()
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
ROPES = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.5, 2.0, 2.5, 3.0],
        "original_max_position_embeddings": 32,
    },
}
OTHER_ROPES = {
    "two": {
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    "two-yarn": {
        "full_attention": {
            "rope_type": "yarn",
            "factor": 4.0,
            "rope_theta": 500_000.0,
            "original_max_position_embeddings": 32,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
    },
    "half": {"rope_type": "default", "partial_rotary_factor": 0.5},
    "half-longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.2],
        "long_factor": [1.5, 3.0],
        "original_max_position_embeddings": 32,
    },
}
TYPES = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
WINDOWS = {"sliding_window": 24, "layer_types": TYPES}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
ARCHITECTURES = {
    **{f"llama-{name}": ("Llama", {"rope": name}) for name in ROPES},
    "llama-one-kv-head": ("Llama", {"num_key_value_heads": 1}),
    "qwen2": ("Qwen2", {}),
    "qwen2-windows": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 2},
    ),
    "qwen3": ("Qwen3", {}),
    "qwen3-windows": ("Qwen3", {**WINDOWS, "use_sliding_window": True}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 24}),
    "mixtral-window": (
        "Mixtral",
        {"sliding_window": 24, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "gemma2": (
        "Gemma2",
        {
            **WINDOWS,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            "query_pre_attn_scalar": 5,
        },
    ),
    "gemma3": ("Gemma3Text", {**WINDOWS, "rope": "two", "query_pre_attn_scalar": 5}),
    "phi3-longrope": ("Phi3", {"rope": "half-longrope"}),
    "phi3-window": ("Phi3", {"rope": "half", "sliding_window": 24}),
    "olmo2": ("Olmo2", {}),
    "olmo3": ("Olmo3", {**WINDOWS, "rope": "two-yarn"}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0, 1, 0]}),
    "smollm3-windows": (
        "SmolLM3",
        {**WINDOWS, "use_sliding_window": True, "no_rope_layers": [0, 1, 1, 1]},
    ),
    "cohere2": ("Cohere2", {**WINDOWS, "logit_scale": 0.3}),
    "granite": (
        "Granite",
        {
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.6,
            "logits_scaling": 2.5,
        },
    ),
    "glm4": ("Glm4", {"rope": "half"}),
    "starcoder2-window": ("Starcoder2", {"sliding_window": 24}),
    "gpt_neox": ("GPTNeoX", {"rope": "half"}),
    "stablelm": ("StableLm", {"rope": "half", "qk_layernorm": True}),
    "gpt_oss": ("GptOss", {**WINDOWS, "rope": "yarn", "num_local_experts": 4, **EXPERTS}),
    "qwen2_moe": (
        "Qwen2Moe",
        {
            **EXPERTS,
            "num_experts": 4,
            "use_sliding_window": True,
            "sliding_window": 24,
            "layer_types": TYPES,
            "mlp_only_layers": [1],
            "shared_expert_intermediate_size": 24,
        },
    ),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "num_experts": 4}),
    "qwen3_moe-window": (
        "Qwen3Moe",
        {**EXPERTS, "num_experts": 4, "use_sliding_window": True, "sliding_window": 24},
    ),
    "exaone4": ("Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    "exaone4-windows": ("Exaone4", WINDOWS),
}


def build_model(name: str, dtype=None, **changes):
    """A random model of an entry of ARCHITECTURES in which every weight matters."""
    import torch
    import transformers

    family, settings = ARCHITECTURES[name]
    settings = {**SIZES, **settings, **changes}
    rope = dict({**ROPES, **OTHER_ROPES}[settings.pop("rope", "default")])
    if "rope_type" in rope:
        rope["rope_theta"] = 10_000.0
    config = getattr(transformers, f"{family}Config")(**settings, rope_parameters=rope)
    torch.manual_seed(11)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model = model.to(dtype or torch.float32).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.2 if weight.ndim == 2 else 0.3))
    return model


@pytest.fixture(scope="session")
def make_model():
    """The function `build_model`."""
    return build_model


@pytest.fixture(params=list(ARCHITECTURES))
def architecture(request) -> str:
    """Every architecture and variant that the adapter supports."""
    return request.param


@pytest.fixture(params=list(ARCHITECTURES)[:: 1 if WHOLE else 2])
def even_architecture(request) -> str:
    """Every second of them; a test of the same kind has `odd_architecture`."""
    return request.param


@pytest.fixture(params=list(ARCHITECTURES)[0 if WHOLE else 1 :: 1 if WHOLE else 2])
def odd_architecture(request) -> str:
    """The others."""
    return request.param


@pytest.fixture(scope="session")
def all_architectures() -> list[str]:
    """The names that `architecture` goes through."""
    return list(ARCHITECTURES)


WORDS = "the keeper wrote in his book that a boat came home at dawn with salt and news of rain"


def build_model_folder(folder: Path, words: str, vocab_size: int) -> Path:
    """Saves a tiny random Llama, a byte-level tokenizer trained on `words`, and a profile."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([words], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    model = build_model(
        "llama-default",
        vocab_size=backend.get_vocab_size(),
        num_hidden_layers=3,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=1,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "profile.yaml").write_text(PROFILE, "utf-8")
    return folder


@pytest.fixture(scope="session")
def make_model_folder():
    """The function `build_model_folder`."""
    return build_model_folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> Path:
    """A tiny random Llama with a tokenizer and a profile, saved to a folder."""
    return build_model_folder(tmp_path_factory.mktemp("models") / "random", WORDS, vocab_size=400)


PROFILE = """\
name: random
prompt: {prefix: "<s>", question: "\\nQuestion: {question}\\nAnswer:"}
max_new_tokens: 8
methods:
  reform:
    {chunk: 32, budget: 24, first: 4, last: 4, queries: 8, pool: 4, gather: 64,
     heads: [[1, q, 3], [2, k, 1]]}
  reattention: {first: 4, local: 24, chunk: 12, top_k: 2, voted: 5, span: 4, gather: 64}
  infllm: {first: 4, local: 24, block: 4, chunk: 12, retrieved: 2, cached: 4, gather: 64}
  ltri: {first: 4, local: 24, block: 4, chunk: 12, retrieved: 2, cached: 4, gather: 64,
         spans: 2, vectors: 3, heads: [[1, 0, 0.5], [2, 3, 0.4]]}
"""


@pytest.fixture
def setup_random(model_folder):
    """A `Setup` of the random model: float32, one thread."""
    from longctx.core.engine.choice import Setup

    profile = str(model_folder / "profile.yaml")
    return Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)


@pytest.fixture(scope="session", autouse=True)
def done_once():
    """What depends on a text alone, and is much of a small ingest or answer, is done once for each:
    the YAML of a profile."""
    from longctx.core.profile import safe_yaml

    parsed = lru_cache(100)(safe_yaml.read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safe_yaml, "read", lambda *given: deepcopy(parsed(*given)))
        yield


@pytest.fixture(scope="session", autouse=True)
def nobody_waits_for_the_disk():
    """No power fails in this process: a sync only requires its handle (`tests/faults` cuts it)."""

    def sync(handle: int) -> None:
        os.fstat(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        yield


@pytest.fixture(scope="session")
def loaded_models() -> dict:
    """Every model that `models_loaded_once` has loaded."""
    return {}


@pytest.fixture
def models_loaded_once(loaded_models, monkeypatch) -> None:
    """A folder's weights are loaded once for all tests in which their loading is not the subject.

    A decoder holds nothing of what it reads; other weights in the same folder are loaded anew.
    """
    from longctx.core.engine import setup

    load = setup.load_decoder

    def once(folder: str, config, device: str, dtype, check_cache):
        written = tuple(sorted((f.name, f.stat().st_mtime_ns) for f in Path(folder).iterdir()))
        key = folder, written, device, dtype
        if key not in loaded_models:
            loaded_models[key] = load(folder, config, device, dtype, check_cache)
        return loaded_models[key]

    monkeypatch.setattr(setup, "load_decoder", once)


@pytest.fixture
def never_waits():
    """Fails a test that waits for a writer, or reads what has no end, instead of hanging."""

    def late(*_):
        pytest.fail("it waits, or reads without end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(100)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def is_opened():
    """f(path): whether that is a pipe which somebody has open, or waits to, for reading."""

    def run(path) -> bool:
        if not path.is_fifo():
            return False
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # ENXIO: nobody
            return False
        return True

    return run


@pytest.fixture(params=["pipe", "socket", "device", "link", "link to a pipe"])
def no_file(request, tmp_path, monkeypatch):
    """The path of what is no file, and would never come to an end."""
    path = tmp_path / "no-file"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        plug = socket.socket(socket.AF_UNIX)
        plug.bind(path.name)
        plug.close()
    elif request.param == "device":
        path = Path("/dev/zero")
    elif request.param == "link":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
    return path


@pytest.fixture
def handlers():
    """For real signals, after which the handlers stay as they are: a process ends then."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
