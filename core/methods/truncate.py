"""Truncation: the first and the last tokens that fit the model's window, half and half.

The state is only the document's tokens; both ends are recomputed with each question. A baseline:
the middle is never seen.
"""

import sys
from dataclasses import dataclass

from longctx.core.contracts.method import MethodOptions
from longctx.core.kv.tokens_alone import TokensAlone


@dataclass(frozen=True)
class Options(MethodOptions):
    """Truncation has no options: it takes as much as fits."""


class Method(TokensAlone):
    """Uses both ends of the document, as much as fits."""

    edges = (sys.maxsize, sys.maxsize)  # cut to what fits, in proportion
