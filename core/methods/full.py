"""Full attention: nothing is left out, for documents that fit the model's window.

The state is only the document's tokens; all of them are recomputed with each question. This is the
baseline that every other method must equal within its limits.
"""

from dataclasses import dataclass

from longctx.core.contracts.method import MethodOptions
from longctx.core.kv.tokens_alone import TokensAlone


@dataclass(frozen=True)
class Options(MethodOptions):
    """Full attention has no options."""


class Method(TokensAlone):
    """Every question needs every token."""

    gather = None
