"""Mixtures of needles: what is hidden in one haystack, and what is asked for.

Draws needles of every kind by their shares, and leaves out the texts of some. Knows nothing of
tokens and haystacks.
"""

import random
from dataclasses import replace
from typing import Any

from longctx.profiles.recipe.data.needles.needle import Needle
from longctx.profiles.recipe.data.needles.of_chains import ChainNeedles
from longctx.profiles.recipe.data.needles.of_frames import FrameNeedles
from longctx.profiles.recipe.data.needles.of_records import RecordNeedles
from longctx.profiles.recipe.data.values.draws import Pools
from longctx.profiles.recipe.data.values.every import Values
from longctx.profiles.recipe.settings import Settings


class Tasks:
    """Makes needles from a random source, the word pools and question records of short contexts."""

    def __init__(
        self,
        pools: Pools,
        records: list[dict[str, Any]],
        rng: random.Random,
        settings: Settings,
    ):
        self.rng, self.values, self.settings = rng, Values(pools, rng), settings
        self.frames = FrameNeedles(self.values)
        self.chains = ChainNeedles(self.values)
        self.records = RecordNeedles(self.values, records)

    def mixture(self, count: int) -> list[Needle]:
        """`count` needles or a few more, some of them absent."""
        chance = self.rng.random()
        if chance < 0.42:
            found = self.frames.group(max(2, count), near=chance < 0.2)
        elif chance < 0.54:
            found = self.chains.chain(count // 2)
        elif chance < 0.64:
            found = self.chains.links(count // 3)
        else:
            found = []
            while len(found) < count:
                found += self.anything()
        return self.with_absent(found)

    def anything(self) -> list[Needle]:
        """One needle, or one chain with its distractors."""
        chance = self.rng.random()
        if chance < 0.6:
            return [self.frames.frame()]
        if chance < 0.8 and self.records.records:
            return [self.records.record()]
        if chance < 0.88:
            return self.chains.chain(self.rng.choice([1, 1, 2]))
        if chance < 0.95:
            return self.chains.links(self.rng.choice([1, 2]))
        return [self.frames.several()]

    def with_absent(self, needles: list[Needle]) -> list[Needle]:
        """Sometimes removes a fact's texts but keeps its question: the document has no answer."""
        out = []
        for needle in needles:
            if self.rng.random() < self.settings.absent and needle.kind in {
                "frame",
                "group",
                "near",
                "record",
            }:
                needle = replace(needle, texts=(), answer=self.settings.refusal, kind="absent")
            out.append(needle)
        return out
