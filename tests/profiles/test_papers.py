"""Documents written for longctx are read with their questions, each in its place."""

import subprocess
import sys

from longctx.profiles.recipe.data import asked
from longctx.profiles.recipe.data.sources import papers

WRITTEN = """\
=== article
The Mill

The mill at Oster was built in 1742 by Jan Brede. It burned in 1801.

A second mill, of 1810, still stands.
---q
? When was the first mill put up? => 1742 || mill at Oster was built
? What destroyed it? => a flood || It burned in 1801

=== log
10:01 pump-3 started
10:02 pump-8 stopped: no oil
---q
? Why did pump-8 stop? => no oil || pump-8 stopped
"""


def test_questions_stand_beside_the_sentence_or_line_that_tells():
    (article, lost), (log, none) = papers.documents(WRITTEN)
    assert (article.kind, log.kind, lost, none) == ("article", "paper", 1, 0)
    (when,), (why,) = article.questions, log.questions
    assert article.text.startswith("The Mill")
    assert "?" not in article.text
    ((a, b),), ((c, d),) = when.evidence, why.evidence
    assert article.text[a:b].strip() == "The mill at Oster was built in 1742 by Jan Brede."
    assert log.text[c:d] == "10:02 pump-8 stopped: no oil"
    assert (when.answer, why.answer) == ("1742", "no oil")


def test_the_command_writes_documents_and_renamed_copies(tmp_path):
    (tmp_path / "papers.txt").write_text(WRITTEN)
    out = tmp_path / "papers.jsonl.xz"
    command = [sys.executable, "-m", papers.__name__, str(tmp_path / "papers.txt"), "--copies", "1"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True)
    assert "2 documents, 2 questions; 1 not placed" in done.stderr
    made = [*asked.read(out)]
    assert [one.kind for one in made] == ["article", "paper"] * 2
    for one in made:
        for question in one.questions:
            ((start, end),) = question.evidence
            assert question.answer in one.text[start:end]
