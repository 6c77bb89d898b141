"""Whether another project's files are in this package's folder: both are called `longctx`.

pip installs the one over the other without a word, and to uninstall one then removes files of both.
Runs before every command, so it imports almost nothing, and reads one folder.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OTHER = "longctx"  # the other project's name on the Python index
REMEDY = """\
Remove both, then install this one in the folder of its clone:
  pip uninstall longctx longctx-reader
  pip install ."""


def require_own() -> None:
    """Ends the process with a message, if files of the two projects are mixed."""
    if why := _mixed():
        message = f"cannot start from {FOLDER!r}: {why}. {REMEDY}"
        if "--json" in sys.argv:
            import json

            error = {"schema_version": 1, "error": {"code": 1, "message": message}}
            message = json.dumps(error)
        else:
            message = f"error: {message}"
        print(message, file=sys.stderr, flush=True)
        sys.exit(1)


def warnings() -> list[str]:
    """What `doctor` has to say of the installed distributions."""
    from longctx.core.common import distribution

    found = []
    if distribution.version() is None:
        found.append(f"{FOLDER!r} belongs to no installed distribution {distribution.NAME}")
    if other := distribution.version(OTHER):
        found.append(
            f"the distribution {OTHER} {other} is installed too: it has the same command and the "
            f"same package, and may replace either. {REMEDY}"
        )
    return found


def _mixed() -> str:
    """What shows that files are mixed; empty: nothing does."""
    if os.path.exists(os.path.join(FOLDER, "pyproject.toml")):
        return ""  # a clone, where no installer writes
    if not hasattr(sys.modules[OTHER], "_PLACES"):
        return "its __init__.py is missing, or another project's"
    listed = os.listdir(os.path.dirname(FOLDER))
    named = [name for name in listed if name.startswith(f"{OTHER}-") and name.endswith("-info")]
    whose = "another project's, or an early version of this one"
    return f"{named[0]!r} is there too: {whose}" if named else ""
