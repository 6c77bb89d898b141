"""A model in plain transformers: greedy answers to many prompts at once, and losses of texts.

Prompts of one length are read together without padding; shorter ones among them are padded on the
left and masked. Knows nothing of cases or of right answers.
"""

import sys
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

from longctx.core.common.device import choose_device, choose_dtype, dtype_name
from longctx.core.model.files import ModelFiles, open_model_files
from longctx.core.tokens.safe_splits import plain_backend

BATCH = {"cuda": 1 << 20, "cpu": 1 << 13}  # prompt tokens read at a time
LOSS_BATCH = {"cuda": 1 << 15, "cpu": 1 << 12}  # tokens whose logits are held in float32
MARGIN = 4  # tokens by which an answer may exceed the longest right one


class Answerer:
    """A causal language model.

    Attributes:
        files: its files and tokenizer.
        backend: tokenizes documents; special tokens written in them are plain text.

    Args:
        name: a folder in Hugging Face format, or any other model that `ask` takes.
        device: auto, cpu, mps, cuda or cuda:N.
        dtype: auto, bf16, fp16 or fp32.
    """

    def __init__(self, name: str, device: str = "auto", dtype: str = "auto"):
        self.files: ModelFiles = open_model_files(name)
        self.backend = plain_backend(self.files.tokenizer.backend_tokenizer)
        self._device = choose_device(device)
        number_format = choose_dtype(dtype, self._device)
        model = AutoModelForCausalLM.from_pretrained(
            self.files.loadable(dtype_name(number_format)),
            dtype=number_format,
            attn_implementation="sdpa",
            local_files_only=True,
        )
        self._model = model.to(self._device).eval()
        self._ends = sorted(self.files.eos_ids())

    def room(self, right: str) -> int:
        """Tokens that show whether an answer is exactly this one: a few more than it has."""
        return len(self.backend.encode(right).ids) + MARGIN

    def answers(self, prompts: list[np.ndarray], limits: list[int]) -> list[str]:
        """Greedy answers, without white space around them.

        Args:
            prompts: token ids of each prompt.
            limits: most tokens of each answer; the longest of a group decides for all of it.

        Returns:
            One text for each prompt, in order.
        """
        found = [""] * len(prompts)
        done = 0
        for group in self._groups(prompts, limits):
            texts = self._decoded([prompts[i] for i in group], max(limits[i] for i in group))
            for index, text in zip(group, texts, strict=True):
                found[index] = text
            done += len(group)
            print(f"\r  answered {done:,} of {len(prompts):,}", end="", file=sys.stderr)
        print(file=sys.stderr)
        return found

    def _groups(self, prompts: list[np.ndarray], limits: list[int]) -> Iterator[list[int]]:
        """Groups of prompts with similar lengths and limits, as many as are read at a time."""
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), limits[i]))
        group: list[int] = []
        for index in order:
            if group and (len(group) + 1) * len(prompts[index]) > self._limit(BATCH):
                yield group
                group = []
            group.append(index)
        if group:
            yield group

    def _decoded(self, prompts: list[np.ndarray], limit: int) -> list[str]:
        ids = torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(prompt.astype(np.int64)) for prompt in prompts],
            batch_first=True,
            padding_side="left",
        )
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        mask = torch.arange(ids.shape[1])[None] >= ids.shape[1] - lengths[:, None]
        out = self._model.generate(
            ids.to(self._device),
            attention_mask=mask.long().to(self._device),
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=self._ends,
            pad_token_id=0,  # after an answer's end, and ignored
        )
        return [self._text(row) for row in out[:, ids.shape[1] :].tolist()]

    def _text(self, row: list[int]) -> str:
        stop = next((place for place, token in enumerate(row) if token in self._ends), len(row))
        return self.files.tokenizer.decode(row[:stop]).strip()

    @torch.inference_mode()
    def loss(self, ids: np.ndarray, prefix: np.ndarray, window: int) -> float:
        """Summed loss of a text's tokens, in bits; each of its windows is read separately.

        Args:
            ids: (n,) the text's tokens.
            prefix: (P,) tokens before every window; not counted.
            window: tokens read at a time, prefix included.
        """
        starts = range(0, len(ids), window - len(prefix))
        windows = [np.concatenate([prefix, ids[a : a + window - len(prefix)]]) for a in starts]
        rows = max(1, self._limit(LOSS_BATCH) // window)
        whole, last = windows[:-1], windows[-1:]  # the last one is shorter
        groups = [*(whole[i : i + rows] for i in range(0, len(whole), rows)), last]
        return sum(self._group_loss(np.stack(group), len(prefix)) for group in groups)

    def _group_loss(self, ids: np.ndarray, first: int) -> float:
        """Bits of rows (B, T) from token `first` on; the first of a text without prefix is free."""
        rows = torch.from_numpy(ids.astype(np.int64)).to(self._device)
        logits = self._model(input_ids=rows, use_cache=False).logits  # (B, T, vocabulary)
        first = max(first, 1)
        predicted, actual = logits[:, first - 1 : -1].float(), rows[:, first:]
        nats = F.cross_entropy(predicted.flatten(0, 1), actual.flatten(), reduction="sum")
        return float(nats) / float(np.log(2))

    def _limit(self, limits: dict[str, int]) -> int:
        return limits["cuda" if self._device.startswith("cuda") else "cpu"]
