"""YAML is data: nothing in it makes an object, grows without end, or is what JSON cannot keep."""

import os

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.profile import profile, safe_yaml

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("!!python/object/apply:os.system ['touch {}']", "makes an object"),
        ("name: !!python/object/new:os.system ['touch {}']", "makes an object"),
        ("name: !!python/name:os.system", "makes an object"),
        ("name: !!python/module:os", "makes an object"),
        ("name: !!python/tuple [1]", "makes an object"),
        ("name: !!binary aGk=", "makes an object"),
        ("name: !!set {x}", "makes an object"),
        ("name: !!timestamp 2026-01-01", "makes an object"),
        ("name: !own x", "makes an object"),
        (LAUGHS, "anchors and aliases are not read, in line 1"),
        ("a: &a [*a]", "anchors and aliases"),
        ("[" * 100_000, "nested deeper than 32 levels"),
        ("{a: " * 100_000, "nested deeper than 32 levels"),
        ("- " * 100_000, "nested deeper than 32 levels"),
        ("a: 1\nb: {c: 1, c: 2}", "twice in line 2"),
        ("1: x", "is no text"),
        ("on: x", "True is no text"),
        ("? [a]\n: x", "found unhashable key"),
        ("a: .nan", "no number"),
        ("a: -.inf", "no number"),
        ("a: " + "9" * 5000, "limit"),
        ('a: "\\ud800"', "half a character"),
        ("a: \x1b", "special characters"),
        ("a: b\n---\nc: d", "single document"),
        ("a: [1", "flow sequence"),
        ("a: @b", "cannot start any token"),
    ],
)
def test_what_is_refused(tmp_path, text, why):
    touched = tmp_path / "touched"
    file = tmp_path / "p.yaml"
    file.write_text(text.replace("{}", str(touched)))
    for read in (
        lambda: safe_yaml.read(file.read_text(), "it"),
        lambda: safe_yaml.read_file(file, "it"),
        lambda: profile.find(str(file)),
    ):
        with pytest.raises(UsageError, match=why):
            read()
    assert not touched.exists()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", None),
        ("a: {b: [1, -2.5, yes, ~, x]}", {"a": {"b": [1, -2.5, True, None, "x"]}}),
        ("day: 2026-01-31", {"day": "2026-01-31"}),
        ("a: !!str 5", {"a": "5"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("'1': x", {"1": "x"}),
        ("[" * 3 + "]" * 3, [[[]]]),
    ],
)
def test_what_is_read(text, values):
    assert safe_yaml.read(text, "it") == values


def test_files_that_cannot_be_read(tmp_path):
    file = tmp_path / "p.yaml"
    for content, why in ((b"a: \xff\xfe", "not UTF-8"), (b"#" * (1 << 20) + b"\n", "the most")):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=why):
            profile.find(str(file))
    with pytest.raises(UsageError, match="cannot read it"):
        safe_yaml.read_file(tmp_path, "it")
    with pytest.raises(UsageError, match="No such file"):
        safe_yaml.read_file(tmp_path / "none", "it")


def test_nothing_is_sent_to_a_shell(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(os, "system", called.append)
    with pytest.raises(UsageError):
        safe_yaml.read("!!python/object/apply:os.system ['true']", "it")
    assert called == []
