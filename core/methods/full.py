"""Full attention: nothing is left out, for documents that fit the model's window.

The state is the document's tokens alone; a question recomputes all of them with itself. This is the
baseline that every other method must equal inside its limits.
"""

from dataclasses import dataclass

from longctx.core.contracts.method import MethodOptions
from longctx.core.kv.tokens_alone import TokensAlone


@dataclass(frozen=True)
class Options(MethodOptions):
    """Full attention has no options."""


class Method(TokensAlone):
    """Every token is wanted for every question."""

    gather = None
