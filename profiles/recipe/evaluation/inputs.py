"""What the evaluation commands are given: model, frames, haystack texts, and how to prompt.

Every path is named on the command line; nothing here knows where anything is.
"""

import argparse
import sys
import time
from pathlib import Path

from tokenizers import Tokenizer

from longctx.core.model.files import ModelFiles
from longctx.core.profile import profile
from longctx.core.profile.prompt import PromptEncoder
from longctx.profiles.recipe.evaluation.filler import Haystack

HAYSTACKS = ("prose", "code", "log")
QUESTION = "\nQuestion: {question}\nAnswer:"  # where a model comes without a profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that all evaluation commands share."""
    parser.add_argument("model", help="folder of the model, in Hugging Face format")
    parser.add_argument("--frames", type=Path, required=True, help="YAML file of held-out frames")
    for name in HAYSTACKS:
        text = f"files (also .xz, .gz) or folders of {name} to hide needles in"
        parser.add_argument(f"--{name}", type=Path, nargs="+", default=[], help=text)
    parser.add_argument("--profile", type=Path, help="YAML file; default: the model folder's own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", help="auto, bf16, fp16 or fp32")


def haystacks(options: argparse.Namespace, backend: Tokenizer) -> dict[str, Haystack]:
    """The haystacks that paths were given for, by name."""
    started = time.perf_counter()
    given = {name: paths for name in HAYSTACKS if (paths := getattr(options, name))}
    found = {n: Haystack(n, paths, backend, options.seed) for n, paths in given.items()}
    seconds = time.perf_counter() - started
    print(f"read {', '.join(found) or 'no haystacks'} in {seconds:.0f} s", file=sys.stderr)
    return found


def profile_of(files: ModelFiles, path: Path | None) -> profile.Profile:
    """The profile of a file, or of the model's folder; without either the bundled model's prompt.

    Args:
        files: the model.
        path: a YAML file; None: profile.yaml in the model's folder, if there is one.
    """
    file = path or files.folder / "profile.yaml"
    if path or file.is_file():
        return profile.load(file.read_text("utf-8"), f"profile {file}")
    prompt = profile.PromptTemplate(files.tokenizer.bos_token or "", QUESTION)
    return profile.Profile(files.name, prompt=prompt)


def prompt_encoder(files: ModelFiles, path: Path | None) -> PromptEncoder:
    """Encodes prompts as `profile_of` says."""
    return PromptEncoder(profile_of(files, path).prompt, files.tokenizer)
