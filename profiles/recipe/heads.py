"""Chooses REFORM's embedding heads by people's questions about whole documents.

    python -m longctx.profiles.recipe.heads profiles/tiny samples/questions/*.yaml

Joins the documents that the sheets name (beside the sheets' folder), reads them once over REFORM's
evicted cache, and searches greedily, then by swaps, for the heads whose mean cosine ranks the
answers' tokens first: the least mean log(rank + 1) of the scores, pooled as REFORM pools them.
Sheets whose document is missing are skipped. Other number formats may give other heads.
"""

import argparse
import sys
from pathlib import Path

import torch
import yaml
from tokenizers import Encoding
from torch import Tensor

from longctx.core.common.device import choose_device, choose_dtype, dtype_name
from longctx.core.common.errors import UsageError
from longctx.core.methods.reform import Options
from longctx.core.model.adapter import Layer
from longctx.core.model.files import open_model_files
from longctx.core.model.load import load_decoder
from longctx.core.profile.profile import build
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.tokens.safe_splits import plain_backend
from longctx.kernels.door import sliding_max
from longctx.profiles.recipe.reading import Reading, profile_of

Head = tuple[int, str, int]  # layer, q | k | v, head
Heads = tuple[Head, ...]
Asked = list[tuple[str, int, int]]  # question, first and last + 1 character of its answer

SIZES = {"chunk": 1024, "budget": 1024, "first": 64, "last": 64}  # the profile's come first


def all_heads(layers: tuple[Layer, ...]) -> Heads:
    """Every query, key and value head of every layer."""
    return tuple(
        (layer.index, kind, head)
        for layer in layers
        for kind in "qkv"
        for head in range(layer.query_heads if kind == "q" else layer.kv_heads)
    )


def joined(sheets: list[Path]) -> tuple[str, Asked]:
    """All documents in one text, and each question with the characters of its answer there.

    Raises:
        UsageError: all sheets' documents are missing.
    """
    text, asked = "", []
    for sheet in sheets:
        read = yaml.safe_load(sheet.read_text("utf-8"))
        file = sheet.parent.parent / read["document"]
        if not file.is_file():
            _tell(f"no {file}: {sheet} is left out")
            continue
        document = file.read_text("utf-8").rstrip("\n") + "\n\n"
        for item in read["questions"]:
            at = len(text) + _place(document, item)
            asked.append((item["question"], at, at + len(item["answer"])))
        text += document
    if not asked:
        raise UsageError("no questions", f"{list(map(str, sheets))}", "Name other sheets.")
    return text, asked


def _place(document: str, item: dict) -> int:
    """The character where an answer starts, on the line that its sheet names."""
    before = document.splitlines(keepends=True)[: item["line"] - 1]
    return document.index(item["answer"], sum(map(len, before)))


def log_rank(scores: Tensor, answer: range) -> Tensor:
    """The mean log(rank + 1) of an answer's tokens; 0 is best.

    A token's rank is the number of tokens that score higher, plus half of those that score equal.

    Args:
        scores: (N,) pooled scores.
        answer: the tokens of the answer.
    """
    own = scores[answer.start : answer.stop, None]
    rank = (scores > own).sum(dim=1) + 0.5 * ((scores == own).sum(dim=1) - 1)
    return torch.log(rank + 1).mean()


class Search:
    """Searches for the heads that find the answers to questions about one text.

    Args:
        heads: the heads that were read.
        text: (heads, N, D) unit vectors of the text's tokens.
        questions: (heads, T, D) unit vectors of each question's tokens.
        answers: the text's tokens that hold each answer.
        pool: neighbours on each side that share a token's score.
    """

    def __init__(
        self, heads: Heads, text: Tensor, questions: list[Tensor], answers: list[range], pool: int
    ):
        self.heads, self.answers = heads, answers
        self._text, self._questions, self._pool = text, questions, pool

    def choose(self, among: Heads, count: int, candidates: int) -> Heads:
        """Chooses greedily from the best single heads, then by swaps while one helps.

        Args:
            among: heads to choose from.
            count: number of heads to choose.
            candidates: number of best single heads, from which all are taken.

        Returns:
            `count` heads, or as many as there are, in layer order.
        """
        alone = self.losses((), among)
        among = tuple(head for (head,) in sorted(alone, key=alone.__getitem__)[:candidates])
        best: Heads = ()
        while len(best) < min(count, len(among)):
            losses = self.losses(best, among) if best else alone
            best = min(losses, key=losses.__getitem__)
            _tell(f"  {list(map(list, best))}: {losses[best]:.4f}")
        while True:
            losses = {}
            for out in best:  # every round also yields the set itself
                losses |= self.losses(tuple(head for head in best if head != out), among)
            swapped = min(losses, key=losses.__getitem__)
            if losses[swapped] >= losses[best]:
                return best
            best = swapped
            _tell(f"  {list(map(list, best))}: {losses[best]:.4f}")

    def losses(self, base: Heads, among: Heads) -> dict[Heads, float]:
        """The mean `log_rank` of `base` with each head of `among` added, by the resulting heads."""
        found: dict[Heads, list[Tensor]] = {
            tuple(sorted((*base, head))): [] for head in among if head not in base
        }
        for words, answer in zip(self._questions, self.answers, strict=True):
            # The sum of the heads' cosines ranks as their mean does.
            summed = torch.zeros(words.shape[1], self._text.shape[1], device=self._text.device)
            for head in base:
                summed += self._cosines(words, head)
            for heads, ranks in found.items():
                (head,) = set(heads) - set(base)
                raw = (summed + self._cosines(words, head)).amax(dim=0)
                ranks.append(log_rank(sliding_max(raw, self._pool), answer))
        return {heads: float(torch.stack(ranks).mean()) for heads, ranks in found.items()}

    def loss(self, heads: Heads) -> float:
        """The mean `log_rank` of the heads' mean cosine; lower is better."""
        (loss,) = self.losses(heads[:-1], heads[-1:]).values()
        return loss

    def _cosines(self, words: Tensor, head: Head) -> Tensor:
        """(T, N) cosines of a question's tokens with the text's."""
        index = self.heads.index(head)
        return words[index] @ self._text[index].T


# --- the command ---------------------------------------------------------------------------------


def read(options: argparse.Namespace) -> tuple[Search, Heads, Heads]:
    """Reads the text and the questions.

    Returns:
        The search, the heads to choose from, and the profile's own, which may be in other layers.

    Raises:
        UsageError: no such layers, or no questions.
    """
    files = open_model_files(options.model)
    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    folder = files.loadable(dtype_name(dtype))
    decoder = load_decoder(str(folder), files.config, device, dtype, {})
    profile = profile_of(files, None)
    sizes = {**SIZES, **profile.methods.get("reform", {})}
    own = tuple(tuple(head) for head in sizes.get("heads", ()))
    among = _of_layers(all_heads(decoder.layers), *options.layers)
    heads = tuple(sorted({*among, *own}))
    built = build(Options, {**sizes, "heads": heads}, "options of reform")
    reading = Reading(decoder, built, PromptEncoder(profile.prompt, files.tokenizer))

    text, asked = joined(options.sheets)
    encoding = plain_backend(files.tokenizer.backend_tokenizer).encode(text)
    _tell(f"{len(asked)} questions about {len(encoding.ids):,} tokens, {len(among)} heads")
    method, vectors = reading.document(torch.tensor(encoding.ids))
    questions = [reading.question(method, question) for question, _, _ in asked]
    answers = [_tokens(encoding, first, end) for _, first, end in asked]
    return Search(heads, vectors, questions, answers, built.pool), among, own


def _of_layers(heads: Heads, first: int, last: int) -> Heads:
    found = tuple(head for head in heads if first <= head[0] <= last)
    if not found:
        deepest = max(layer for layer, _, _ in heads)
        raise UsageError(
            f"no layers {first} to {last}", f"the model has 0 to {deepest}", "Correct --layers."
        )
    return found


def _tokens(encoding: Encoding, first: int, end: int) -> range:
    """The tokens of characters [first, end)."""
    return range(encoding.char_to_token(first), encoding.char_to_token(end - 1) + 1)


def main(arguments: list[str] | None = None) -> None:
    """Prints the chosen heads next to the profile's."""
    options = _options(arguments)
    search, among, own = read(options)
    print(f"{len(search.answers)} questions, mean log(rank + 1)", flush=True)
    sets = {"profile": own, "chosen": search.choose(among, options.count, options.candidates)}
    for name, heads in sets.items():
        if heads:
            print(f"  {name:8s} {list(map(list, heads))}: {search.loss(heads):.4f}")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of the model, in Hugging Face format")
    parser.add_argument("sheets", type=Path, nargs="+", help="as in samples/questions/")
    parser.add_argument("--layers", type=int, nargs=2, default=(1, 3), help="first and last")
    parser.add_argument("--count", type=int, default=4, help="heads wanted")
    parser.add_argument("--candidates", type=int, default=16, help="best single heads, of all")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="fp32", help="auto, bf16, fp16 or fp32")
    return parser.parse_args(arguments)


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
