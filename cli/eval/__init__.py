"""`longctx eval`: evaluations, each a command of its own in a file of its name.

As elsewhere, a command is a function `run`, whose docstring is its help, and `EXAMPLES`.
"""

from longctx.cli.eval import babilong, compare, qa, ruler

COMMANDS = {
    "ruler": ruler,
    "babilong": babilong,
    "qa": qa,
    "compare": compare,
}
EXAMPLES = """\
  longctx eval ruler --lengths 4k,32k
  longctx eval babilong tasks/qa1_single-supporting-fact_test.txt
  longctx eval qa tolstoy tolstoy.questions.jsonl
  longctx eval compare --methods reform,reattention --lengths 4k,32k
"""


def run() -> None:
    """Measures how well questions are answered.

    Documents are read before their questions are known, by the same code as any other.
    """
