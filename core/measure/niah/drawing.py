"""Draws the needles of one haystack: only the needle itself gives its answer away."""

import random
from collections.abc import Mapping
from functools import cached_property

from longctx.core.common.errors import UsageError
from longctx.core.measure.eval.text_match import occurs
from longctx.core.measure.niah.kinds import Maker, Needle
from longctx.core.measure.prose import Prose

ATTEMPTS = 200  # draws to find a needle whose values occur nowhere else


class Draw:
    """Draws the needles of one haystack.

    Args:
        makers: makers of needles, by kind.
        prose: the text around the needles.
        seed: seed of all draws.
    """

    def __init__(self, makers: Mapping[str, Maker], prose: Prose, seed: str):
        self._makers, self._prose = makers, prose
        self._random = random.Random(seed)
        self._cities = self._random.sample(prose.cities, len(prose.cities))
        self._texts: list[str] = []  # of all needles, case-folded
        self._secrets: list[str] = []
        self._wordings: set[str] = set()

    def needle(self, kind: str) -> Needle:
        """A new needle, whose values occur neither in the prose nor in another needle.

        Raises:
            UsageError: no different needle is left.
        """
        if not self._cities:
            count = len(self._prose.cities)
            raise UsageError(
                "too many needles for one haystack",
                f"each has a city that the prose does not name, so {count} can be told apart",
                "Give fewer --depths or --needles, or --strict.",
            )
        for _ in range(ATTEMPTS):
            made = self._makers[kind](self._random, self._cities[-1])
            if self._fits(made):
                return self._kept(made)
        raise UsageError(
            f"too many needles of kind {kind!r} for one haystack",
            f"no other was found in {ATTEMPTS} draws",
            "Give fewer --depths or --needles, or --strict.",
        )

    def _fits(self, made: Needle) -> bool:
        secrets, texts = self._told(made)
        if made.wording in self._wordings or occurs(made.value, made.question.casefold()):
            return False
        if any(occurs(made.value, line.casefold()) for line in made.near):
            return False
        if any(self._prose.has(s) or occurs(s, self._joined) for s in secrets):
            return False
        return not any(occurs(secret, texts) for secret in self._secrets)

    def _kept(self, made: Needle) -> Needle:
        secrets, texts = self._told(made)
        self._secrets += secrets
        self._texts.append(texts)
        self.__dict__.pop("_joined", None)
        if made.wording:
            self._wordings.add(made.wording)
        if any(self._cities[-1] in text for text in made.texts):
            self._cities.pop()
        return made

    @cached_property
    def _joined(self) -> str:
        return "\n".join(self._texts)

    @staticmethod
    def _told(made: Needle) -> tuple[tuple[str, ...], str]:
        return made.secrets or (made.value,), "\n".join(made.texts).casefold()
