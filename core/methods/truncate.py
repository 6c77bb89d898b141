"""Truncation: the first and the last tokens that fit the model's window, half and half.

The state is the document's tokens alone; a question recomputes both ends with itself. A baseline:
what stands in the middle is never seen.
"""

import sys
from dataclasses import dataclass

from longctx.core.contracts.method import MethodOptions
from longctx.core.kv.tokens_alone import TokensAlone


@dataclass(frozen=True)
class Options(MethodOptions):
    """Truncation has no options: as much is taken as there is room for."""


class Method(TokensAlone):
    """Both ends of the document are wanted, as far as they go."""

    edges = (sys.maxsize, sys.maxsize)  # cut to what fits, in proportion
