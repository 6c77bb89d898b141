"""Chooses REFORM's embedding heads, and measures what ReAttention's selection would find.

    python -m longctx.profiles.tiny.recipe.heads MODEL \\
        --frames profiles/tiny/heldout-frames.yaml --prose BOOKS --code SOURCES --log LOGS \\
        --json heads.json

For every q, k and v head, under REFORM's evicted cache: the mean normalised rank of the needle's
tokens (0: before all others), scores averaged over 20 neighbours. Every other case chooses four
heads, the rest measure them together. Then, in the window: how often the needle is among the 4
tokens with the largest position-free q.k from the answer position. `--cases 2 --length 2048
--window-length 1024` is a first look on a CPU.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from longctx.core.common.device import choose_device, choose_dtype
from longctx.core.measure.eval.frames import Heldout
from longctx.core.methods.reform import Options
from longctx.core.model.adapter import Decoder, Layer
from longctx.core.model.files import open_model_files
from longctx.core.model.load import load_decoder
from longctx.core.profile.profile import build
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.tokens.safe_splits import plain_backend
from longctx.profiles.tiny.recipe import inputs
from longctx.profiles.tiny.recipe.cases import Case, CaseBuilder, Plan, retrieval_plans
from longctx.profiles.tiny.recipe.probes import (
    TOP,
    Reading,
    answer_span,
    hit,
    normalised_ranks,
    selected,
)

Head = tuple[int, str, int]  # layer, q | k | v, head

TASKS = ("pattern", "question")
EACH = 2  # heads chosen for each task
SHALLOW = 0.7  # pattern heads come from below this share of the layers (the paper's C.6)
SIZES = {"chunk": 1024, "budget": 1024, "first": 64, "last": 64}  # the profile's come first
SHOWN = 12  # heads of each task in the printed table


def all_heads(layers: tuple[Layer, ...]) -> tuple[Head, ...]:
    """Every query, key and value head of every layer."""
    return tuple(
        (layer.index, kind, head)
        for layer in layers
        for kind in "qkv"
        for head in range(layer.query_heads if kind == "q" else layer.kv_heads)
    )


def choose(
    ranks: dict[str, Tensor], heads: tuple[Head, ...], layers: int, deepest: int | None = None
) -> tuple[Head, ...]:
    """The two best heads for patterns, from the lower layers, and the next two for questions.

    Args:
        ranks: (heads,) mean normalised rank for `pattern` and for `question`.
        heads: what they belong to.
        layers: of the model.
        deepest: no head above this layer; None: all may be chosen.

    Returns:
        Four heads, in the order of layers.
    """
    chosen: list[Head] = []
    for task, below in (("pattern", SHALLOW * layers), ("question", layers)):
        below = below if deepest is None else min(below, deepest + 1)
        order = [heads[i] for i in ranks[task].argsort(stable=True).tolist()]
        chosen += [head for head in order if head not in chosen and head[0] < below][:EACH]
    return tuple(sorted(chosen))


def mean_ranks(
    reading: Reading, cases: list[Case], together: bool, by: dict[str, str]
) -> dict[str, Tensor]:
    """Mean normalised ranks of cases, in groups.

    Args:
        reading: reads documents and questions.
        cases: with answers.
        together: of the heads' mean cosine (1,); else of each head (heads,).
        by: the group of each kind; other kinds are left out.
    """
    found: dict[str, list[Tensor]] = {}
    for number, case in enumerate(cases):
        if case.plan.kind in by:
            cosines = reading.cosines(case)  # (heads, N, T)
            cosines = cosines.mean(dim=0, keepdim=True) if together else cosines
            needles = case.document.needles[: case.statements]
            ranks = normalised_ranks(cosines.amax(dim=2), needles).cpu()
            found.setdefault(by[case.plan.kind], []).append(ranks)
        print(f"\r  read {number + 1} of {len(cases)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {group: torch.stack(ranks).mean(dim=0) for group, ranks in found.items()}


def recall(
    decoder: Decoder, cases: list[Case], prefix: int, backend: Tokenizer
) -> dict[str, Tensor]:
    """How often the answer position selects the statement and the answer itself.

    Returns:
        `needle` and `answer`, (L, H) each, and `any`, (L,): the needle by any head of the layer.
    """
    hits = []
    for case in cases:
        tops = selected(decoder, case, prefix)
        spans = (case.document.needles[: case.statements], [answer_span(case, backend)])
        hits.append(torch.stack([hit(tops, tokens) for tokens in spans]))
    needle, answer = torch.stack(hits, dim=1)  # (cases, L, H) each
    means = {"needle": needle, "answer": answer, "any": needle.any(dim=2)}
    return {name: found.double().mean(dim=0) for name, found in means.items()}


# --- the command ---------------------------------------------------------------------------------


class Study:
    """A model and the cases it is measured on, as the options say."""

    def __init__(self, options: argparse.Namespace):
        files = open_model_files(options.model)
        device = choose_device(options.device)
        dtype = choose_dtype(options.dtype, device)
        self._decoder = load_decoder(str(files.folder), files.config, device, dtype, {})
        profile = inputs.profile_of(files, options.profile)
        self._sizes = {**SIZES, **profile.methods.get("reform", {})}
        self._prompt = PromptEncoder(profile.prompt, files.tokenizer)
        self._backend = plain_backend(files.tokenizer.backend_tokenizer)
        self._heldout = Heldout.load(options.frames)
        texts = list(inputs.haystacks(options, self._backend).values())
        self._builder = CaseBuilder(self._heldout, texts, self._prompt, self._backend, options.seed)

    def ranks(self, cases: int, length: int, deepest: int | None) -> dict[str, Any]:
        """Ranks of all heads over half of the cases, of the chosen ones together over the rest."""
        plans = [Plan(kind, n, False) for kind in self._heldout.kinds for n in range(cases)]
        built = self._builder.build(plans, length)
        halves = [[case for case in built if case.plan.number % 2 == half] for half in (0, 1)]
        heads, plain = all_heads(self._decoder.layers), self._plain()
        _tell(f"{len(heads)} heads")
        alone = mean_ranks(self._reading(heads), halves[0], False, plain)
        chosen = choose(alone, heads, len(self._decoder.layers), deepest)
        _tell(f"heads {list(map(list, chosen))} together")
        kinds = {kind: kind for kind in self._heldout.kinds}
        together = mean_ranks(self._reading(chosen), halves[1], True, kinds)
        together = {kind: float(rank) for kind, rank in together.items()}
        counted = [together[kind] for kind in plain]
        return {
            "length": length,
            "cases": len(built),
            "heads": list(map(list, chosen)),
            "together": together,
            "together_mean": sum(counted) / len(counted),
            "ranks": [
                {"head": list(head), **{task: float(alone[task][i]) for task in TASKS}}
                for i, head in enumerate(heads)
            ],
        }

    def recall(self, cases: int, length: int) -> dict[str, Any]:
        """Shares of cases in which the answer position selects the needle; see `recall`."""
        _tell("selection from the answer position")
        plans = [plan for kind in self._heldout.kinds for plan in retrieval_plans(kind, cases)]
        built = self._builder.build(plans, length)
        rates = recall(self._decoder, built, len(self._prompt.prefix()), self._backend)
        return {"window_length": length, **{name: rate.tolist() for name, rate in rates.items()}}

    def _plain(self) -> dict[str, str]:
        """The task of each kind that chooses: of one statement, without near-identical keys."""
        return {
            name: kind.task
            for name, kind in self._heldout.kinds.items()
            if not kind.siblings and all(len(frame.statements) == 1 for frame in kind.frames)
        }

    def _reading(self, heads: tuple[Head, ...]) -> Reading:
        values = {**self._sizes, "heads": heads}
        return Reading(self._decoder, build(Options, values, "options of reform"), self._prompt)


def main(arguments: list[str] | None = None) -> None:
    """Measures, chooses, prints the tables and writes them as JSON."""
    options = _options(arguments)
    study = Study(options)
    found = {
        "model": options.model,
        **study.ranks(options.cases, options.length, options.deepest),
        "recall": study.recall(options.cases, options.window_length),
    }
    options.json.write_text(json.dumps(found, indent=1), "utf-8")
    print(table(found))


def table(found: dict[str, Any]) -> str:
    """The best heads of each task, the chosen ones together, and selection by layer and head."""
    lines = [f"mean normalised rank, {found['length']:,} tokens"]
    for task in TASKS:
        best = sorted(found["ranks"], key=lambda entry: entry[task])[:SHOWN]
        lines += [f"  {task}", *(f"    {entry['head']}  {entry[task]:.4f}" for entry in best)]
    lines.append(f"chosen {found['heads']}, together {found['together_mean']:.4f}")
    lines += [f"    {kind:18s} {rank:.4f}" for kind, rank in found["together"].items()]
    share = found["recall"]
    lines.append(f"needle among the top {TOP}, {share['window_length']:,} tokens; any, by head")
    for layer, (any_head, row) in enumerate(zip(share["any"], share["needle"], strict=True)):
        lines.append(f"    layer {layer}  {any_head:.2f}  " + " ".join(f"{x:.2f}" for x in row))
    return "\n".join(lines)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    inputs.add_arguments(parser)
    parser.add_argument("--cases", type=int, default=40, help="of each kind; 2 or more")
    parser.add_argument("--length", type=int, default=8192, help="tokens that REFORM reads")
    parser.add_argument("--window-length", type=int, default=4000, help="tokens in one window")
    parser.add_argument("--deepest", type=int, help="no head above this layer")
    parser.add_argument("--json", type=Path, default=Path("heads.json"))
    return parser.parse_args(arguments)


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
