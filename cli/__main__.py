"""`python -m longctx.cli`: the same as the `longctx` command."""

from longctx.cli.main import main

if __name__ == "__main__":
    main()
