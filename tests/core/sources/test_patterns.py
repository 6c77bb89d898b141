"""Patterns of `.gitignore` files: what Git itself says of them, and that none takes for ever."""

import random
import shutil
import subprocess

import pytest
from sample_files import put, read

from longctx.core.sources.find import open_sources
from longctx.core.sources.patterns import patterns, said_of
from longctx.core.sources.rules import Rules

PARTS = ["a", "b", "*", "**", "a*", "*b", "?", "[ab]", "[!a]", "a?", "*a*b", "x.y", "*.y", "\\*"]
NAMES = ["a", "b", "ab", "aab", "x.y", "z", "aXb", "*", "]", "!a"]


def is_ignored(path: str, lines: list[str]) -> bool:
    """Whether a path, or a folder that it is in, is ignored."""
    those, parts = patterns(lines), path.split("/")
    folders = ["/".join(parts[:count]) + "/" for count in range(1, len(parts))]
    return any(said_of(each, those) for each in [*folders, path])


@pytest.mark.skipif(not shutil.which("git"), reason="it is compared with Git")
def test_what_git_says_of_random_patterns(tmp_path):
    draw = random.Random(4)
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    for _ in range(60):
        lines = [
            draw.choice(["", "", "!", "/"])
            + "/".join(draw.choices(PARTS, k=draw.randint(1, 4)))
            + draw.choice(["", "", "/"])
            for _ in range(draw.randint(1, 3))
        ]
        paths = ["/".join(draw.choices(NAMES, k=draw.randint(1, 4))) for _ in range(40)]
        (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n")
        asked = [*git, "check-ignore", "--no-index", "-z", "--stdin"]
        given = "\0".join(paths).encode()
        said = subprocess.run(asked, input=given, capture_output=True).stdout.decode().split("\0")
        assert [(p, is_ignored(p, lines)) for p in paths] == [(p, p in said) for p in paths], lines


@pytest.mark.parametrize(
    ("line", "path", "said"),
    [
        *[("#a", "#a", None), ("\\#a", "#a", True), ("\\!a", "!a", True), ("!a", "a", False)],
        *[("a ", "a", True), ("a\\ ", "a ", True), (" ", " ", None), ("/", "a", None)],
        *[("//", "a/b", None), ("[a", "[a", None), ("a\\", "a\\", None), ("[z-a]", "z", None)],
        *[("**", "a/b", True), ("a/**", "a/", None), ("a/**", "a/b", True), ("*/", "a", None)],
        *[("[!b]", "a", True), ("a[!b]c", "a/c", None), ("?", "ab", None), ("**/a", "a", True)],
        *[("a" * 4096, "a" * 4096, True), ("a" * 4097, "a" * 4097, None)],
    ],
)
def test_one_pattern(line, path, said):
    assert said_of(path, patterns([line])) is said


def test_all_but_one_kind_of_file():
    those = patterns(["*", "!*/", "!*.py"])
    said = [said_of(path, those) for path in ("sub/", "sub/a.py", "sub/a.txt", "a.txt")]
    assert said == [False, False, True, True]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("**/a/" * 12 + "b", "a/" * 40 + "c"),
        ("*a" * 40 + "b", "a" * 255),
        ("**/*a*/" * 40 + "b", "aa/" * 1300 + "c"),
        ("a**" * 30 + "b", "a" * 255),
    ],
)
def test_patterns_that_fit_in_many_ways_take_no_time(line, path):
    """Each took longer than a life."""
    assert said_of(path, patterns([line])) is None


def test_a_folder_with_such_patterns_is_read(tmp_path):
    deep = "a/" * 40 + "c.txt"
    put(tmp_path, {".gitignore": b"**/a/" * 12 + b"x\n", deep: b"text\n"})
    (source,) = open_sources([str(tmp_path)], Rules(seconds=20))
    assert read(source)[0] == "text\n"


def test_patterns_that_take_too_long_are_one_line_and_what_was_found_is_read(tmp_path):
    lines = b"".join(b"*%d*a*[a-z]?b\n" % number for number in range(50_000))
    put(tmp_path, {"a.txt": b"a\n", "sub/.gitignore": lines, "sub/b": b"b\n", "z": b"z\n"})
    first, last = open_sources([str(tmp_path)], Rules(seconds=1))
    assert read(first)[0] == "a\n"
    assert ".gitignore files cannot be followed" in last.refused.why
    assert "took over 1 seconds" in last.refused.why
    assert last.refused.remedy.endswith("Or add --no-ignore.")
    assert len(open_sources([str(tmp_path)], Rules(seconds=1, ignored=True))) == 3
