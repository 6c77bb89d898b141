"""The door: which implementation it takes, what it says of it, and what it does when one fails."""

import importlib
import inspect
import logging
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from row_list import RowList

from longctx.core.common.errors import UsageError
from longctx.core.engine.encode import encode
from longctx.core.engine.setup import prepare
from longctx.core.methods import reform
from longctx.core.model import attention
from longctx.core.model.adapter import Decoder
from longctx.kernels import choice as choice_module
from longctx.kernels import door, fused_attention

ROOT = Path(__file__).parents[2]
OPTIONS = reform.Options(
    heads=((1, "q", 3), (2, "k", 1)), chunk=48, budget=40, first=6, last=8, queries=16, gather=90
)


@pytest.fixture
def log(caplog):
    """f() -> what the door has said."""
    caplog.set_level(logging.INFO, "longctx.kernels.choice")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def fake(monkeypatch):
    """A kernel of the attention mass in the place of the real one; `calls` counts its calls."""
    module = SimpleNamespace(refusal=lambda *given: None, calls=0)

    def attention_mass(*given):
        module.calls += 1
        return module.result()

    module.attention_mass, module.result = attention_mass, lambda: "the kernel's"
    monkeypatch.setitem(sys.modules, "longctx.kernels.attention_mass", module)
    monkeypatch.setattr(choice_module, "_reason", lambda device, wanted: None)
    return module


def mass(states, **more):
    return door.attention_mass(*states, 0.1, **more)


def test_on_a_cpu_it_is_the_reference_and_said_once(random_states, log):
    states = random_states(4, 2, 5, 30, 8)
    for _ in range(3):
        assert torch.equal(mass(states), door.attention_mass.definition(*states, 0.1))
    assert log() == ["attention_mass: the reference (the tensors are on cpu)"]


def test_each_can_be_forced(device, random_states, log, monkeypatch):
    states = random_states(4, 2, 5, 30, 64, device=device)
    results = {}
    for choice in choice_module.CHOICES:
        monkeypatch.setenv(choice_module.VARIABLE, choice)
        results[choice] = mass(states)
    assert torch.allclose(results["triton"], results["reference"], rtol=1e-5)
    assert log() == [
        "attention_mass: the Triton kernel (LONGCTX_KERNELS=triton)",
        "attention_mass: the reference (LONGCTX_KERNELS=reference)",
    ]


def test_what_the_kernel_refuses_goes_to_the_reference(device, random_states, log, monkeypatch):
    monkeypatch.setenv(choice_module.VARIABLE, "triton")
    states = random_states(4, 2, 5, 30, 64, device=device)
    wide = [x.double() for x in states]
    assert torch.equal(mass(wide), door.attention_mass.definition(*wide, 0.1))
    assert not torch.equal(mass(wide), mass(states))
    assert log() == [
        "attention_mass: the reference (it takes no torch.float64 queries with torch.float64 keys)",
        "attention_mass: the Triton kernel (LONGCTX_KERNELS=triton)",
    ]


@pytest.mark.parametrize(
    ("value", "interpreted", "message"),
    [
        ("cuda", "1", "unknown LONGCTX_KERNELS 'cuda'.*Use triton or reference"),
        ("triton", "0", "cannot use the Triton kernels on cpu: Triton.*Unset LONGCTX_KERNELS"),
    ],
)
def test_what_cannot_be_is_a_usage_error_before_any_work(
    setup_random, monkeypatch, value, interpreted, message
):
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    monkeypatch.setenv(choice_module.VARIABLE, value)
    with pytest.raises(UsageError, match=message):
        prepare(setup_random)
    with pytest.raises(choice_module.CannotChoose):
        door.sliding_max(torch.zeros(3), 1)


def test_a_kernel_that_fails_is_tried_once(fake, random_states, log):
    def fail():
        raise RuntimeError("no C compiler\nand more")

    fake.result = fail
    states = random_states(4, 2, 5, 30, 8)
    for _ in range(3):
        assert torch.equal(mass(states), door.attention_mass.definition(*states, 0.1))
    assert fake.calls == 1
    why = "RuntimeError: no C compiler"
    assert log() == [
        f"attention_mass does not run here: {why}",
        f"attention_mass: the reference (the kernel failed: {why})",
    ]


def test_a_forced_kernel_that_fails_is_an_error(fake, random_states, monkeypatch):
    monkeypatch.setenv(choice_module.VARIABLE, "triton")
    fake.result = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        mass(random_states(4, 2, 5, 30, 8))


def test_out_of_memory_does_not_condemn_a_kernel(fake, random_states):
    def fail():
        raise torch.OutOfMemoryError("no room")

    states, fake.result = random_states(4, 2, 5, 30, 8), fail
    with pytest.raises(torch.OutOfMemoryError):
        mass(states)
    fake.result = lambda: "the kernel's"
    assert mass(states) == "the kernel's"


def arguments(function):
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", door.operations)
def test_a_kernel_takes_what_its_definition_says(device, name):
    operation = door.operations[name]
    kernel = importlib.import_module(f"longctx.kernels.{operation.kernel}")
    expected = arguments(operation.definition)
    assert arguments(getattr(kernel, name))[: len(expected)] == expected
    refusal = getattr(kernel, "refusal" if name == operation.kernel else f"{name}_refusal")
    assert arguments(refusal) == expected


def test_a_kernel_without_a_refusal_is_an_error(fake, random_states):
    del fake.refusal
    with pytest.raises(AttributeError, match="refusal"):
        mass(random_states(4, 2, 5, 30, 8))


def test_a_definition_without_a_tensor_is_named():
    def count(tokens: int) -> int: ...

    with pytest.raises(TypeError, match=r"count has no parameter annotated Tensor$"):
        choice_module.Operation(count)


def test_the_docs_list_every_operation_by_its_contract():
    assert door.table() in (ROOT / "docs" / "kernels.md").read_text("utf-8")


# --- attention ---


def chunk_after_cache(dtype=torch.float32, device="cpu", T=20, S=70, D=64):
    generator = torch.Generator().manual_seed(T)
    q = torch.randn(4, T, D, generator=generator)
    k, v = torch.randn(2, 2, S, D, generator=generator).unbind()
    return [x.to(device, dtype) for x in (q, k, v)]


def masked(q, k, v, scale):
    """Attention and its log-sum-exps by their formulas, in float64 on the CPU."""
    q, k, v = (x.double().cpu() for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    T, S = q.shape[1], k.shape[1]
    logits = q @ k.transpose(1, 2) * scale
    logits.masked_fill_(torch.ones(T, S, dtype=torch.bool).triu(S - T + 1), -torch.inf)
    return logits.softmax(-1) @ v, logits.logsumexp(-1)


@pytest.mark.parametrize("S", [20, 21, 70])
def test_attention_gives_the_log_sum_exps_of_cache_and_chunk(S):
    q, k, v = chunk_after_cache(S=S)
    out, lse = attention.causal_attention_lse(q, k, v, 0.2)
    expected, expected_lse = masked(q, k, v, 0.2)
    assert torch.allclose(out.double(), expected, atol=1e-5)
    assert torch.allclose(lse.double(), expected_lse, atol=1e-5)


def test_attention_goes_on_to_the_next_operator(monkeypatch, log):
    def cudnn(*given):
        raise RuntimeError("no execution plan")

    monkeypatch.setattr(
        fused_attention, "operators", lambda q, k: [cudnn, fused_attention.flash_cpu]
    )
    q, k, v = chunk_after_cache()
    for _ in range(2):
        out = attention.causal_attention(q, k, v, 0.2)
        assert torch.allclose(out.double(), masked(q, k, v, 0.2)[0], atol=1e-5)
    why = "RuntimeError: no execution plan"
    assert log() == [
        f"cudnn attention does not run here: {why}",  # causal over the chunk
        f"attention: flash_cpu attention (cudnn attention failed: {why})",
        f"cudnn attention does not run here: {why}",  # all of the cache
        "merged_attention: the reference (the tensors are on cpu)",
    ]


@pytest.mark.parametrize("S", [20, 70])
def test_without_operators_attention_is_one_masked_call(monkeypatch, log, S):
    monkeypatch.setenv(choice_module.VARIABLE, "reference")
    q, k, v = chunk_after_cache(S=S)
    out, lse = attention.causal_attention_lse(q, k, v, 0.2)
    assert lse is None
    assert torch.allclose(out.double(), masked(q, k, v, 0.2)[0], atol=1e-5)
    assert log() == ["attention: a masked call (LONGCTX_KERNELS=reference)"]


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 80, 96, 128, 256])
@pytest.mark.parametrize(
    ("name", "dtype", "within"),
    [
        ("cudnn", torch.bfloat16, 1e-2),
        ("cudnn", torch.float16, 2e-3),
        ("flash", torch.bfloat16, 1e-2),
        ("flash", torch.float16, 2e-3),
        ("efficient", torch.float32, 1e-5),
    ],
)
def test_every_fused_operator_on_a_gpu(monkeypatch, log, name, dtype, within, D):
    operator = getattr(fused_attention, name)
    monkeypatch.setattr(fused_attention, "operators", lambda q, k: [operator])
    for T, S in ((300, 300), (2, 5), (257, 260), (300, 1001)):
        q, k, v = chunk_after_cache(dtype, "cuda", T, S, D)
        out, lse = attention.causal_attention_lse(q, k, v, 0.125)
        expected, expected_lse = masked(q, k, v, 0.125)
        assert (out.double().cpu() - expected).norm() / expected.norm() < within
        if lse is None:  # the operator refused, which it may say only of cuDNN's wide heads
            assert (name, D) == ("cudnn", 256), log()
        else:
            assert (lse.double().cpu() - expected_lse).abs().max() < 1e-3


@pytest.mark.gpu
def test_a_cache_of_one_token(log):
    q, k, v = chunk_after_cache(torch.bfloat16, "cuda", T=64, S=65)
    out, lse = attention.causal_attention_lse(q, k, v, 0.125)
    expected, expected_lse = masked(q, k, v, 0.125)
    assert (out.double().cpu() - expected).norm() / expected.norm() < 1e-2
    assert (lse.double().cpu() - expected_lse).abs().max() < 1e-3
    assert not [line for line in log() if "does not run" in line]


@pytest.mark.gpu
def test_on_a_gpu_the_kernels_are_taken(random_states, log):
    mass(random_states(8, 2, 64, 300, 128, torch.bfloat16, "cuda"))
    door.sliding_max(torch.zeros(100, device="cuda"), 64)
    attention.causal_attention(*chunk_after_cache(torch.bfloat16, "cuda", D=128), 0.1)
    assert log()[:2] == [
        "attention_mass: the Triton kernel (on cuda)",
        "similarity_max: the Triton kernel (on cuda)",
    ]
    assert log()[2].startswith("attention: ")


# --- a method over the door ---


def read(model, device):
    """REFORM over 190 tokens: kept positions of all layers, rows, and a question's scores."""
    decoder = Decoder(model.to(device))
    method, stored = reform.Method(OPTIONS, decoder.layers), RowList()
    ids = torch.randint(0, 61, (190,), generator=torch.Generator().manual_seed(2)).to(device)
    list(encode(decoder, method, ids[:3], [ids[3:]], stored))
    snapshot = method.snapshot()
    kept = {name: x.tolist() for name, x in snapshot.items() if name.startswith("positions")}
    scored = torch.ones(9, dtype=torch.bool)
    read = partial(decoder.read, ids[:9], depth=method.depth)
    return kept, stored.groups["embeddings"], method.score(read, scored, stored)


def test_reform_reads_and_scores_alike_with_kernels(device, make_model, monkeypatch, log):
    results = []
    for choice in ("", "triton") if device == "cpu" else ("reference", "triton"):
        monkeypatch.setenv(choice_module.VARIABLE, choice)
        results.append(read(make_model("llama-default"), device))
    (kept, rows, scores), (kernel_kept, kernel_rows, kernel_scores) = results
    assert kept == kernel_kept
    for ours, theirs in zip(rows, kernel_rows, strict=True):
        steps = (ours["vectors"].int() - theirs["vectors"].int()).abs().max()
        assert steps <= (0 if device == "cpu" else 1)
    assert torch.allclose(scores.raw, kernel_scores.raw, atol=1e-6 if device == "cpu" else 1e-2)
    assert torch.equal(kernel_scores.pooled.cpu(), pooled(kernel_scores.raw.cpu()))
    ran = {line.split(":")[0] for line in log() if "the Triton kernel" in line}
    reads = {"rotated_chunk", "merged_attention", "attention_mass", "kept_rows"}
    more = {"residual_norm", "gated_product"} if device == "cuda" else set()
    assert ran >= reads | {"similarity_max"}
    assert ran <= reads | {"similarity_max"} | more


def pooled(raw):
    return torch.stack([raw[max(0, i - 64) : i + 65].max() for i in range(len(raw))])
