"""`longctx eval`: real runs of small documents, what is kept of them, and what is refused."""

import json

import pytest

from longctx.core.measure.eval import evaluation as runs

BABI = "1 Ann went to the hall.\n2 Bob went to the barn.\n3 Where is Ann?\thall\t1\n"
SQUAD = {"context": "The oar is red.", "question": "What is the colour of the oar?"}


@pytest.fixture
def files(tmp_path):
    """A file of stories and one of questions."""
    (tmp_path / "qa1_test.txt").write_text(BABI)
    (tmp_path / "squad.jsonl").write_text(json.dumps({**SQUAD, "answers": ["red"]}))
    return tmp_path


def small(*names: str) -> list[str]:
    return ["eval", *names, "--samples", "1", "--threads", "1", "--dtype", "fp32"]


def test_ruler_keeps_what_it_found_and_goes_on(longctx, files, monkeypatch):
    args = [*small("ruler"), "--length", "300", "--qa", files / "squad.jsonl", "--json"]
    args += ["--out", files / "out", "--tasks"]
    result = longctx(*args, "niah_single_1,qa_1")
    assert result.exit_code == 0, result.stderr
    assert "niah_single_1/300/0, 1 of 2" in result.stderr
    report = json.loads(result.stdout)
    assert (report["suite"], report["seed"], report["complete"]) == ("ruler", 0, True)
    assert [cell["task"] for cell in report["cells"]] == ["niah_single_1", "qa_1"]
    assert [cell["samples"] for cell in report["averages"]] == [2]
    needle, question = report["samples"]
    assert needle["score"] == needle["gathered"] == 1
    assert 250 < needle["tokens"]["document"] <= 300
    assert question["answers"] == ["red"]
    assert question["tokens"]["document"] < 40  # there are no other paragraphs
    monkeypatch.setattr(runs, "opened", None)  # nothing is asked again
    again = longctx(*args, "qa_1,niah_single_1")
    assert json.loads(again.stdout)["samples"] == [question, needle]
    other = longctx(*args, "qa_1", "--seed", "3")
    assert other.exit_code == 2
    assert "seed was 0 there, and is 3 now" in other.stderr
    (files / "squad.jsonl").write_text(json.dumps({**SQUAD, "answers": ["oar"]}))
    changed = longctx(*args, "qa_1")
    assert changed.exit_code == 2
    assert "--qa had other content when the run began" in changed.stderr


def test_documents_of_an_earlier_run_are_told_as_its_own(longctx, files, monkeypatch):
    args = [*small("ruler"), "--length", "300", "--out", files / "out", "--progress", "json"]
    longctx(*args, "--tasks", "vt")
    result = longctx(*args, "--tasks", "niah_single_1,vt")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    told = [line for line in lines if line.get("unit") == "documents"]
    assert [line["what"] for line in told] == ["niah_single_1/300/0, 2 of 2"]
    assert [(line["processed"], line["cache"], line["total"]) for line in told] == [(1, 1, 2)]


def test_babilong_shows_a_table(longctx, files):
    result = longctx(*small("babilong"), files / "qa1_test.txt", "--lengths", "200,260")
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0][:4] == ["task", "length", "samples", "score"]
    assert [row[:3] for row in rows[1:3]] == [["qa1", "200", "1"], ["qa1", "260", "1"]]
    assert [row[:4] for row in rows[3:5]] == [
        ["all", "tasks", length, "1"] for length in ("200", "260")
    ]


def test_ctrl_c_shows_what_is_finished(longctx, files, monkeypatch):
    asked = runs.ask

    def ask(session, query, how):
        if query.kind == "vt":
            raise KeyboardInterrupt
        return asked(session, query, how)

    monkeypatch.setattr(runs, "ask", ask)
    args = [*small("ruler"), "--length", "300", "--tasks", "niah_single_1,vt"]
    result = longctx(*args, "--json", "--out", files / "out")
    assert result.exit_code == 130
    assert "1 samples are finished" in result.stderr
    report = json.loads(result.stdout)
    assert not report["complete"]
    assert [sample["task"] for sample in report["samples"]] == ["niah_single_1"]
    monkeypatch.setattr(runs, "ask", asked)
    again = longctx(*args, "--json", "--out", files / "out")
    assert json.loads(again.stdout)["samples"][0] == report["samples"][0]
    assert "niah_single_1" not in again.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["ruler", "--tasks", "niah"], "'niah': there is no such task"),
        (["ruler", "--tasks", ""], "there is no such task"),
        (["ruler", "--tasks", "qa_2"], "'qa_2': no --qa2 was given"),
        (["ruler", "--qa", "absent.json"], "cannot read 'absent.json'"),
        (["ruler", "--lengths", "4q"], "no whole number of tokens"),
        (["ruler", "--lengths", "50,4k", "--tasks", "vt,niah_single_3"], "50 tokens is too short"),
        (["ruler", "--haystack", "absent"], "cannot read 'absent'"),
        (["ruler", "--samples", "0"], "--samples"),
        (["ruler", "--decode", "fast"], "fast"),
        (["babilong"], "FILE..."),
        (["babilong", "absent.txt"], "cannot read 'absent.txt'"),
    ],
)
def test_wrong_usage_is_2(longctx, args, said):
    result = longctx("eval", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_all_says_what_it_leaves_out(longctx, files, monkeypatch):
    monkeypatch.setattr(runs, "run", lambda *args: iter(()))
    result = longctx(*small("ruler"), "--qa", files / "squad.jsonl", "--json")
    assert json.loads(result.stdout)["left_out"] == {"qa_2": "no --qa2 was given"}
    assert "qa_2 is left out: no --qa2 was given" in result.stderr


def test_the_config_file_counts_for_commands_in_commands(longctx, files):
    (files / "config.toml").write_text('[eval]\nmodel = "no-such-model"\n')
    result = longctx("eval", "babilong", files / "qa1_test.txt")
    assert result.exit_code == 2
    assert "no-such-model" in result.stderr
