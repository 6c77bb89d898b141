"""Variable tracking: a chain of variables, each assigned the one before it."""

from random import Random
from string import ascii_uppercase

from longctx.core.measure.case import CaseQuestion
from longctx.core.measure.eval.filling import Count, fill, spread
from longctx.core.measure.eval.ruler.making import NOISE, ascending, is_said, spans

HOPS = 4
LETTERS = 5
ASK = (
    "Which {count} variables have the value {value}, given to them directly or through other "
    "variables? Name them all."
)


def make(name: str, draw: Random, length: int, count: Count) -> tuple[str, CaseQuestion]:
    """A chain of assignments in order, among noise, and the question for all its variables.

    Raises:
        UsageError: the assignments alone are longer than the document.
    """
    variables: list[str] = []
    while len(variables) <= HOPS:
        variable = "".join(draw.choices(ascii_uppercase, k=LETTERS))
        variables += [variable] * (variable not in variables and not is_said(variable, ASK))
    value = draw.randrange(10_000, 100_000)
    sources = [str(value), *(f"VAR {variable}" for variable in variables[:-1])]
    named = zip(variables, sources, strict=True)
    chain = [f"VAR {variable} = {source}" for variable, source in named]
    pieces, places = [f"{line}\n" for line in chain], ascending(draw, len(chain))

    def render(number: int) -> str:
        return "".join(spread(pieces, [NOISE] * number, places))

    text = fill(render, count, length, name)
    question = ASK.format(count=len(variables), value=value)
    return text, CaseQuestion(name, question, tuple(variables), spans(text, chain))
