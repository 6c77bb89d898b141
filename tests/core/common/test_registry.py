"""Folders that are registries: what they hold is told without importing it."""

import subprocess
import sys

import pytest
from toys import POLICY, toy

from longctx.core import methods
from longctx.core.common.errors import UsageError
from longctx.core.common.registry import Registry
from longctx.core.decode import policies

POLICIES = Registry("longctx.core.decode.policies", "decode policy", "+")


def test_a_file_more_is_a_thing_more(tmp_path):
    before = POLICIES.names()
    with toy(policies, "loud_clear", POLICY, tmp_path):
        assert POLICIES.names() == sorted([*before, "loud+clear"])
        assert POLICIES.summaries()["loud+clear"] == "everything, whatever its options"
        assert POLICIES.load("loud+clear").Options().budget == 4096
    assert POLICIES.names() == before


def test_only_where_it_says_so_are_names_joined_otherwise(tmp_path):
    with toy(methods, "slow_one", '"""Slow: one."""', tmp_path):
        assert "slow_one" in methods.names()
        assert methods.load("slow_one").__doc__ == "Slow: one."


def test_a_file_without_a_docstring_is_named(tmp_path):
    registry = Registry("longctx.core.methods", "method")
    for text in ("x = 1\n", 'x = """no docstring"""\n'):
        raises = pytest.raises(ValueError, match=r"bare\.py has no docstring")
        with toy(methods, "bare", text, tmp_path), raises:
            registry.docstrings()


def test_what_there_is_not_is_refused_with_what_there_is():
    for name in ("nope", "", "__init__", "quest_raas"):
        with pytest.raises(UsageError, match=r"unknown decode policy '.*Known: dense, quest, "):
            POLICIES.load(name)


def test_nothing_is_imported_for_names_and_summaries():
    code = (
        "import sys\n"
        "from longctx.core.common.registry import Registry\n"
        "for folder in ('methods', 'decode.policies', 'sources.formats'):\n"
        "    assert all(Registry(f'longctx.core.{folder}', '').docstrings().values())\n"
        "print(sorted({'torch', 'numpy', 'longctx.core.methods'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
