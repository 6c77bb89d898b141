"""`longctx model path`: where the weights of a model are."""

from longctx.cli import options, render

EXAMPLES = """\
  longctx model path tiny
  ls -l "$(longctx model path tiny)"
"""


def run(name: options.ModelName, json: options.Json = False) -> None:
    """Prints the file or folder that has a model's weights.

    The exit code is 10 if it is not on this computer.
    """
    from longctx.core.model.shelf import named

    model = named(name)
    if not render.result({"name": model.name, "path": model.path}, json):
        render.line(model.path or "")
