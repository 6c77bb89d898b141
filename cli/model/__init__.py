"""`longctx model`: the models on this computer, each action a command of its own in a file.

As elsewhere, a command is a function `run`, whose docstring is its help, and `EXAMPLES`.
"""

from longctx.cli.model import list, path, pull, rm

COMMANDS = {"list": list, "pull": pull, "rm": rm, "path": path}
EXAMPLES = """\
  longctx model list
  longctx model path tiny
  longctx model rm ~/models/llama.Q4_K_M.gguf
"""


def run() -> None:
    """Gets, lists and removes models.

    GGUF files are converted when they are first used, and kept in the user's cache.
    """
