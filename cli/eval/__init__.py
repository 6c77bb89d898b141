"""`longctx eval`: evaluations, each a command of its own in a file of its name.

A command here is what it is elsewhere: a function `run`, whose docstring is its help, and
`EXAMPLES`.
"""

from longctx.cli.eval import babilong, ruler

COMMANDS = {
    "ruler": ruler,
    "babilong": babilong,
}
EXAMPLES = """\
  longctx eval ruler --lengths 4k,32k
  longctx eval babilong tasks/qa1_single-supporting-fact_test.txt
"""


def run() -> None:
    """Evaluates models and methods on tasks of any length.

    Every document is read before its question is known, by the same calls as any other, and its
    state is deleted once it was asked.
    """
