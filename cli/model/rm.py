"""`longctx model rm`: removes what is kept of a model in the user's cache."""

from longctx.cli import options, render
from longctx.cli.text import size

EXAMPLES = """\
  longctx model rm ~/models/llama.Q4_K_M.gguf
"""


def run(name: options.ModelName, json: options.Json = False) -> None:
    """Removes what is kept of a model.

    That is what was pulled, and what was converted. Files that you named, documents, and an
    installed package stay.
    """
    from longctx.core.model.published import PUBLISHED
    from longctx.core.model.shelf import remove

    removed, published = remove(name), PUBLISHED.get(name)
    base = published and published.find_base()
    stays = str(base.path) if base else None
    if not render.result({"name": name, "bytes": removed, "stays": stays}, json):
        render.note(f"removed {size(removed)} of {name}" if removed else f"{name} was not kept")
    if published and stays:
        render.note(
            f"the package {published.package} stays installed, with the weights of {name}; "
            f"`pip uninstall {published.package}` removes it"
        )
