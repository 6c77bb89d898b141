"""The `longctx` command, and `python -m longctx.cli`: what is made sure of before all else.

The commands are imported last, when Ctrl-C and descriptors are in order.
"""

from longctx.cli import at_once

at_once.expect()

from longctx.cli import streams  # noqa: E402


def main() -> None:
    """The `longctx` command."""
    streams.fill_gaps()
    streams.stand_in()
    from longctx.cli.main import app

    app()


if __name__ == "__main__":
    main()
