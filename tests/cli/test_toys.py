"""A policy, a gather source and a format that are one file each, in a folder beside the package."""

import json

import pytest
from in_process import parsed_here
from toys import FORMAT, GATHER_SOURCE, POLICY, toy

from longctx.cli import completion
from longctx.core.decode import policies
from longctx.core.retrieve import gather_by
from longctx.core.sources import formats


@pytest.mark.usefixtures("library")
def test_a_policy(longctx, model_options, tmp_path):
    with toy(policies, "loud_clear", POLICY, tmp_path / "toys"):
        asked = ["ask", "who?", "--json", *model_options, "--decode"]
        result = longctx(*asked, "loud+clear:budget=7")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["policy"]["budget"] == 7
        assert longctx(*asked, "loud+clear:budget=0").exit_code == 2
        assert completion.policies("l") == ["loud+clear"]
    assert longctx(*asked, "loud+clear").exit_code == 2
    assert completion.policies("l") == []


@pytest.mark.usefixtures("library")
def test_a_gather_source(longctx, model_options, tmp_path):
    with toy(gather_by, "twice", GATHER_SOURCE, tmp_path / "toys"):
        for command in ("ask", "find"):
            more = ["--gather-by", "twice", "--json", *model_options]
            result = longctx(command, "the salt", *more)
            assert result.exit_code == 0, result.output
            found = json.loads(result.stdout)
            assert found["state"]["gathered_by"] == "twice"
            assert "salt" in found["passages"][0]["text"]
        assert completion.gathered_by("tw") == ["twice"]
    assert longctx("find", "the salt", "--gather-by", "twice").exit_code == 2


def test_a_format(longctx, model_options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.verses").write_text("The keeper\nwrote\n\nA boat.")
    (tmp_path / "cut.verses").write_text("The keeper")
    with toy(formats, "verses", FORMAT, tmp_path / "toys"), parsed_here():
        formats.names.cache_clear()
        result = longctx("ingest", "a.verses", *model_options)
        assert result.exit_code == 0, result.output
        (passage,) = json.loads(longctx("find", "-e", "boat", "--json").stdout)["passages"]
        assert (passage["source"], passage["place"]) == ("a.verses", "verse 2")
        result = longctx("ingest", "cut.verses", *model_options)
        assert (result.exit_code, result.stdout) == (3, "")
        (told,) = [line for line in result.stderr.splitlines() if "cut.verses" in line]
        assert "damaged, or not what its name says" in told
    formats.names.cache_clear()
