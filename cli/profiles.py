"""`longctx profiles`: the model profiles that come with the package."""

from dataclasses import asdict

from longctx.cli import options, render

EXAMPLES = """\
  longctx profiles
  longctx profiles --json
"""


def run(json: options.Json = False) -> None:
    """Lists the profiles of known models.

    With the models that each is chosen for; `--profile` takes their names.
    """
    from longctx.core.profile.profile import shipped

    known = shipped()
    if render.result({"profiles": [asdict(profile) for profile in known]}, json):
        return
    rows = [
        (profile.name, profile.method, ", ".join(profile.models), profile.description)
        for profile in known
    ]
    render.table(("name", "method", "models", "description"), rows)
