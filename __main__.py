"""`python -m longctx`: the same as the `longctx` command."""

from longctx.cli.__main__ import main

if __name__ == "__main__":
    main()
