"""Values that do not fit an option: the option, the value and why are named, in our words."""

import pytest

SAID = [
    ("ask x --temperature abc", "'--temperature': 'abc' is not a number."),
    ("ask x --seed abc", "'--seed': 'abc' is no whole number."),
    ("ask x --seed 1.5", "'--seed': '1.5' is no whole number."),
    ("find x --limit 0", "'--limit' / '-k': '0' is too small: 1 is the least."),
    ("niah --bar 2", "'--bar': '2' is too large: 1 is the most."),
    ("bench foo", "'WHAT': 'foo' is not one of 'ingest', 'ask', 'decode'."),
    ("list --progress foo", "'--progress': 'foo' is not one of 'bar', 'json', 'none'."),
    (f"ask x --seed {'a' * 100}", f"'--seed': '{'a' * 59}... is no whole number."),
    ("ingest a --max-size abc", "'--max-size': 'abc' is no size in bytes. Write 500MB"),
    ("ingest a --max-parser-time abc", "'--max-parser-time': 'abc' is no time. Write 90s"),
    ("ingest a --checkpoint abc", "'--checkpoint': 'abc' is neither tokens nor seconds. Write"),
    ("niah --length abc", "'--length': 'abc' is no whole number of tokens. Write 16000"),
    ("niah --lengths 4k,,abc", "'--lengths': 'abc' is no whole number of tokens. Write 16000"),
    ("eval compare --lengths 4k --lengths 8k,abc", "'--lengths': 'abc' is no whole number"),
]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("find x notes.txt", ["`longctx ingest notes.txt` first", "find searches what was read"]),
        ("ask x notes.txt", ["`longctx ingest notes.txt` first", "QUESTION --text notes.txt"]),
        ("find the old map", ["several words in quotes", "--doc NAME"]),
        ("find x --doc notes.txt", ["it is a file", "`longctx ingest notes.txt` reads it"]),
        ("ingest https://a.example/b?c=1", ["fetches nothing", "-LO 'https://a.example/b?c=1'`"]),
    ],
)
def test_where_people_slip_the_error_says_which_command_they_mean(
    longctx, library, tmp_path, monkeypatch, line, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("A boat.", "utf-8")
    result = longctx(*line.split())
    assert result.exit_code in (2, 10)
    assert result.stdout == ""
    assert all(words in " ".join(result.stderr.split()) for words in said), result.stderr


@pytest.mark.parametrize(("line", "said"), SAID, ids=[line[:40] for line, _ in SAID])
def test_option_value_and_reason_are_named(longctx, line, said):
    result = longctx(*line.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: Invalid value for {said}" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("gather", "abc", "'--gather' (from LONGCTX_GATHER): 'abc' is no whole number."),
        ("sources", "maybe", "'--sources' (from LONGCTX_SOURCES): 'maybe' is neither true nor"),
        ("max-memory", "abc", "'--max-memory' (from LONGCTX_MAX_MEMORY): 'abc' is no size"),
    ],
)
def test_a_variable_or_the_config_file_is_named(longctx, monkeypatch, tmp_path, name, value, said):
    with monkeypatch.context() as patch:
        patch.setenv(f"LONGCTX_{name.upper().replace('-', '_')}", value)
        result = longctx("ask", "x")
    assert result.exit_code == 2
    assert f"Invalid value for {said}" in " ".join(result.stderr.split())
    (tmp_path / "config.toml").write_text(f'{name} = "{value}"\n')
    told = longctx("ask", "x").stderr
    assert f"Invalid value for '--{name}': '{value}' is n" in told
    assert "config.toml', line 1" in told
