"""Answers questions about documents longer than any model's window.

The command line (`longctx`, `python -m longctx`) is in `cli`, what it calls in `core`.
"""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("longctx")
    raise AttributeError(f"module 'longctx' has no attribute {name!r}")
