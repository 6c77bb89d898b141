"""The journal of a long run: it goes on where it stopped, and mixes no two runs."""

import json

import pytest

from longctx.core.common.errors import Locked, LongctxError, UsageError
from longctx.core.measure.journal import RESULTS, Journal, has_finished
from longctx.core.measure.journal import SETTINGS as SETTINGS_FILE

SETTINGS = {"length": 1000, "kinds": ["number"]}


def test_a_run_goes_on_with_what_was_finished(tmp_path):
    with Journal(tmp_path / "run", SETTINGS) as journal:
        journal.put("a", {"answer": "žluť\n\u2028"})
    with Journal(tmp_path / "run", SETTINGS) as journal:
        assert (journal.get("a"), journal.get("b")) == ({"answer": "žluť\n\u2028"}, None)
        journal.put("b", {"n": 1})
    with Journal(tmp_path / "run", SETTINGS) as journal:
        assert len(journal) == 2


def test_a_line_that_was_cut_off_is_asked_again(tmp_path):
    with Journal(tmp_path, SETTINGS) as journal:
        journal.put("a", {"n": 1})
        journal.put("b", {"n": 2})
    file = tmp_path / RESULTS
    file.write_bytes(file.read_bytes()[:-5])
    with Journal(tmp_path, SETTINGS) as journal:
        assert (journal.get("a"), journal.get("b")) == ({"n": 1}, None)
        journal.put("b", {"n": 3})
    assert [json.loads(line)["name"] for line in file.read_text().splitlines()] == ["a", "b"]


def test_other_settings_are_refused_by_name(tmp_path):
    Journal(tmp_path, SETTINGS).__exit__()
    with pytest.raises(UsageError, match=r"length was 1000 there, and is 2000 now"):
        Journal(tmp_path, SETTINGS | {"length": 2000})
    with Journal(tmp_path, SETTINGS):
        pass


def test_long_settings_are_told_in_short(tmp_path):
    Journal(tmp_path, {"profile": "p" * 5000}).__exit__()
    with pytest.raises(UsageError) as refused:
        Journal(tmp_path, {"profile": "q" * 5000})
    assert len(str(refused.value)) < 500


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="no results of an evaluation"):
        Journal(tmp_path, SETTINGS)


def test_a_second_process_is_refused(tmp_path):
    with Journal(tmp_path, SETTINGS), pytest.raises(Locked):
        Journal(tmp_path, SETTINGS)


@pytest.mark.parametrize("damage", ["not json\n", '{"name": 1}\n', "[]\n"])
def test_damaged_results_are_told(tmp_path, damage):
    with Journal(tmp_path, SETTINGS) as journal:
        journal.put("a", {})
    (tmp_path / RESULTS).write_text(damage)
    with pytest.raises(UsageError, match="damaged"):
        Journal(tmp_path, SETTINGS)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Journal(None, SETTINGS) as journal:
        journal.put("a", {"n": 1})
        assert journal.get("a") == {"n": 1}
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("never_waits")
@pytest.mark.parametrize("no_file", ["pipe", "device"], indirect=True)
@pytest.mark.parametrize("name", [SETTINGS_FILE, RESULTS])
def test_files_that_are_none_are_not_read(tmp_path, no_file, is_opened, name):
    folder = tmp_path / "run"
    with Journal(folder, SETTINGS) as journal:
        journal.put("a", {"n": 1})
    (folder / name).unlink()
    (folder / name).symlink_to(no_file)
    with pytest.raises(LongctxError, match="it is a pipe, a socket or a device"):
        Journal(folder, SETTINGS)
    assert has_finished(folder) is (name == SETTINGS_FILE)
    assert not is_opened(no_file)


def test_lines_that_are_nested_without_end(tmp_path):
    with Journal(tmp_path, SETTINGS):
        (tmp_path / RESULTS).write_text("[" * 200_000 + "\n")
    with pytest.raises(UsageError, match="damaged"):
        Journal(tmp_path, SETTINGS)


def test_what_cannot_be_a_folder_is_a_wrong_option(tmp_path):
    (tmp_path / "story.txt").write_text("once")
    for place in (tmp_path / "story.txt", tmp_path / "story.txt" / "run"):
        with pytest.raises(UsageError, match=r"cannot write .*another --out"):
            Journal(place, SETTINGS)
    with pytest.raises(UsageError, match="it is a file, not a folder"):
        Journal(tmp_path / "story.txt", SETTINGS)
