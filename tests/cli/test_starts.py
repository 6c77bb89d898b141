"""What a command imports: whatever it does not use makes every start slower."""

import os
import subprocess
import sys

import preloaded
import pytest

# Prints the modules that are there when the program ends.
TOLD = """
import atexit, sys
from longctx.cli.__main__ import main
atexit.register(lambda: print("modules:", *sys.modules, file=sys.stderr))
main()
"""
COMPILERS = {"torch._dynamo", "torch._inductor", "sympy", "triton", "torch.distributed.tensor"}
UNUSED = COMPILERS | {"transformers", "huggingface_hub", "jinja2", "pydantic", "requests", "httpx"}
MODELS = UNUSED | {"torch", "tokenizers"}
ASK = ["ask", "Who kept the lighthouse?", "--answer-model", "own"]
NOT_FOR_HELP = MODELS | {"numpy", "yaml", "secrets", "_hashlib", "socket", "tempfile"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function that runs a command on one short document, and gives the modules it imported."""
    home = tmp_path_factory.mktemp("starts")
    text = home / "notes.txt"
    text.write_text("The keeper of the lighthouse was called Aldous Crane.\n", "utf-8")
    options = "--library", str(home / "library")

    def modules(*words: str) -> set[str]:
        command = [sys.executable, "-c", TOLD, *words, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ)
        assert done.returncode == 0, done.stderr
        return {*done.stderr.rpartition("modules:")[2].split()}

    # What is checked once is checked now: so is one step of a model against another.
    for words in (["ingest", str(text), "--name", "notes"], ASK):
        done = preloaded.run([*words, *options], timeout=300)
        assert done.returncode == 0, done.stderr
    return modules


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["find", "--help"], NOT_FOR_HELP),
        (["list"], MODELS | {"numpy", "filelock"}),
        (["show", "notes"], MODELS),
        (["find", "the keeper", "--gather-by", "bm25"], MODELS),
        (["find", "the keeper", "--device", "cpu"], MODELS - {"tokenizers"}),
        (["find", "the keeper", "--device", "cpu", "--dtype", "bf16"], UNUSED),
        (ASK, UNUSED),
    ],
    ids=lambda words: " ".join(words[:4]) if isinstance(words, list) else "",
)
def test_a_command_imports_nothing_that_it_does_not_use(run, words, never):
    assert not run(*words) & never
