"""The `longctx` command, and `python -m longctx.cli`: what has to be set up first.

The commands are imported last, after Ctrl-C and descriptors are set up.
"""

import gc

from longctx.cli import at_once

at_once.expect()

from longctx.cli import installation, leaving, streams  # noqa: E402 (after Ctrl-C is expected)
from longctx.core.common.collection import no_collection  # noqa: E402


def main() -> None:
    """The `longctx` command; it ends the process."""
    streams.fill_gaps()
    streams.stand_in()
    installation.require_own()
    with no_collection():
        from longctx.cli.main import app

        gc.freeze()  # what is imported stays, and is not looked at again

    with leaving.at_once():
        app()


if __name__ == "__main__":
    main()
