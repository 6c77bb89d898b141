"""What the tests of the kernels share: a device that runs Triton, and a door that forgets."""

import os
from functools import cache
from inspect import getmembers, ismodule

import pytest
import torch

from longctx.kernels import choice as choice_module


@pytest.fixture
def device() -> str:
    """Where kernels run: a GPU, compiled, or the CPU, by Triton's interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed")
    return "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.fixture(scope="session", autouse=True)
def language_looked_through_once():
    """Triton's interpreter puts its functions in the language's place for each kernel, and again
    for each function that a kernel calls: half of its time goes into looking for what to replace.

    Which names those are is the same every time, and what is replaced already stays as it is.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="no Triton")
    core, language = interpreter.tl.core, interpreter.tl

    @cache
    def names(package) -> list[str]:
        return [name for name, member in getmembers(package) if core.is_builtin(member)]

    def replace_all(package, builder, scope) -> None:
        for name in names(package):
            if core.is_builtin(member := getattr(package, name)):
                interpreter._patch_attr(package, name, member, builder, scope)

    @cache
    def named(function) -> list:
        seen = [value for value in function.__globals__.values() if ismodule(value)]
        return [value for value in seen if value is language or value is core]

    def replace(function):
        if any(core.is_builtin(value.load) for value in (language, *named(function))):
            return before(function)
        return interpreter._LangPatchScope()  # a kernel calls it

    def scalar(dtype):
        if type(dtype) is not core.dtype:
            return of_numpy(dtype)
        if dtype.name not in known:
            known[dtype.name] = of_numpy(dtype)
        return known[dtype.name]

    known, of_numpy, before = {}, interpreter._get_np_dtype, interpreter._patch_lang
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_builtin", replace_all)
        patch.setattr(interpreter, "_patch_lang", replace)
        patch.setattr(interpreter, "_get_np_dtype", scalar)
        yield


@pytest.fixture(autouse=True)
def fresh_door(monkeypatch):
    """No choice made and nothing failed before the test, and no variable set."""
    monkeypatch.delenv(choice_module.VARIABLE, raising=False)
    monkeypatch.setattr(choice_module, "broken", {})
    choice_module.tell.cache_clear()


@pytest.fixture
def random_states():
    """f(H, G, W, S, D, dtype, device) -> queries (H, W, D) and keys (G, S, D)."""

    def make(H, G, W, S, D, dtype=torch.float32, device="cpu"):
        generator = torch.Generator().manual_seed(S * 31 + W)
        q = torch.randn(H, W, D, generator=generator)
        k = torch.randn(G, S, D, generator=generator)
        return q.to(device, dtype), k.to(device, dtype)

    return make
