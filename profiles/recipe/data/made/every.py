"""Documents of every made-up kind, endless in number, and a mixture of the kinds."""

import random
from collections.abc import Callable, Iterator, Sequence

from longctx.profiles.recipe.data.asked import AskedDocument
from longctx.profiles.recipe.data.made import papers, stage_logs, statements, tables, web_logs
from longctx.profiles.recipe.data.made.asking import asked
from longctx.profiles.recipe.data.made.hidden_facts import HiddenFacts
from longctx.profiles.recipe.data.made.pools import listed
from longctx.profiles.recipe.data.made.values import MadeValues
from longctx.profiles.recipe.data.values.draws import Pools

SHARES = {"facts": 0.32, "log": 0.2, "table": 0.12, "mail": 0.16, "statement": 0.2}
WEB = 0.4  # of the logs


def documents(
    kind: str,
    seed: int,
    count: int,
    filler: Sequence[str] = (),
    pools: Pools | None = None,
) -> Iterator[AskedDocument]:
    """Documents of one kind, or of all kinds by their shares, the same for the same seed.

    Args:
        kind: one of `SHARES`, or "mix".
        seed: of the random source.
        count: how many documents.
        filler: paragraphs that facts are hidden in; without them, prose is made up.
        pools: the words that values are made of; without them, a list is used.

    Raises:
        KeyError: there is no such kind.
    """
    rng = random.Random(seed)
    values = MadeValues(pools or listed(), rng)
    facts = HiddenFacts(values, filler)
    makers: dict[str, Callable[[], AskedDocument]] = {
        "facts": facts.document,
        "log": lambda: log(values),
        "table": lambda: asked(tables.page(values), tables.wordings(), rng),
        "mail": lambda: asked(papers.page(values), papers.wordings(), rng),
        "statement": lambda: statements.document(values),
    }
    for _ in range(count):
        chosen = rng.choices([*SHARES], [*SHARES.values()])[0] if kind == "mix" else kind
        yield makers[chosen]()


def log(values: MadeValues) -> AskedDocument:
    """A log of a web server, or of services, machines and builds."""
    made = web_logs if values.rng.random() < WEB else stage_logs
    return asked(made.page(values), made.wordings(), values.rng)
