"""The end of the command line's process: everything is out, and nothing is taken apart."""

import subprocess
import sys

import pytest

from longctx.cli.main import app

ENDING = """
import atexit, sys
from longctx.cli.__main__ import main
class Part:
    def __del__(self):
        print("taken apart")
part = Part()
atexit.register(print, "registered")
sys.argv = ["longctx", {args}]
main()
"""


@pytest.mark.parametrize(
    ("args", "code", "first"),
    [("'--version'", 0, "longctx"), ("'list', '--no-such'", 2, ""), ("'profiles'", 0, "")],
)
def test_the_process_ends_at_once_with_its_code(args, code, first):
    command = [sys.executable, "-c", ENDING.format(args=args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code
    assert done.stdout.startswith(first)
    assert done.stdout.endswith("registered\n")
    assert "taken apart" not in done.stdout


def test_a_caller_goes_on():
    with pytest.raises(SystemExit):
        app(["--version"])
