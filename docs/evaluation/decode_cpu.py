"""Decoding on the CPU beside transformers' `generate`: the bundled model, greedy, in one process.

python docs/evaluation/decode_cpu.py [--threads N] [--tokens N] [--rounds N] [--prompts N ...]
"""

import argparse
import time
from statistics import median

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from longctx.core.ask.recompute import recompute
from longctx.core.decode.decode import Generation
from longctx.core.decode.policies.dense import Options, Policy
from longctx.core.engine.setup import Engine, Setup, prepare
from longctx.core.model.files import BUNDLED
from longctx.core.profile.sampling import Sampling


class Clock:
    """A streamer of transformers: when each token came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _: Tensor) -> None:
        """Something came: first the prompt, then each token."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing to close."""

    def rate(self) -> float:
        """Tokens/s after the first; what comes before that is the prompt."""
        return (len(self.times) - 2) / (self.times[-1] - self.times[1])


def theirs(model: PreTrainedModel, prompt: Tensor, count: int) -> tuple[list[int], float]:
    """The tokens that `generate` gives, and how many a second."""
    clock = Clock()
    out = model.generate(
        prompt[None], max_new_tokens=count, do_sample=False, eos_token_id=None, streamer=clock
    )
    return out[0, len(prompt) :].tolist(), clock.rate()


def ours(engine: Engine, prompt: Tensor, count: int) -> tuple[list[int], float]:
    """The tokens of the decode loop, and how many a second."""
    read, hidden = recompute(engine.decoder, prompt[:0], prompt, prompt[:0], count)
    policy = Policy(Options(), read, engine.window)
    answer = Generation(engine.decoder, policy, hidden, prompt, Sampling(), count, set())
    tokens = list(answer.tokens())
    return tokens, answer.tokens_per_s


def main() -> None:
    """Prints the rates of both in turn, and their ratio, for each length of the prompt."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, nargs="+", default=[200, 1000, 3000])
    args = parser.parse_args()
    engine = prepare(Setup(model=BUNDLED, device="cpu", dtype="fp32", threads=args.threads))
    model = AutoModelForCausalLM.from_pretrained(engine.files.folder, dtype=torch.float32).eval()
    for length in args.prompts:
        prompt = torch.randint(engine.files.config.vocab_size, (length,))
        rates = []
        for _ in range(args.rounds + 1):  # the first is not counted
            expected, generate = theirs(model, prompt, args.tokens)
            tokens, loop = ours(engine, prompt, args.tokens)
            rates.append((generate, loop, loop / generate))
        generate, loop, ratio = map(median, zip(*rates[1:], strict=True))
        same = "the same tokens" if tokens == expected else "OTHER TOKENS"
        print(
            f"prompt {length:,}: generate {generate:.1f} tokens/s, ours {loop:.1f}, "
            f"ratio {ratio:.2f} ({args.threads} threads, {same})",
            flush=True,
        )


if __name__ == "__main__":
    main()
