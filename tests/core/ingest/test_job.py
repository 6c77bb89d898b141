"""What a job calls its document, and an observer that hears nothing."""

from pathlib import Path

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.ingest.job import NOBODY, Job


@pytest.mark.parametrize(
    ("name", "called"), [(None, "war"), ("novel", "novel"), ("War & Peace", "War & Peace")]
)
def test_what_the_document_is_called(name, called):
    assert Job(Path("library"), ["books/war.txt"], None, name).called == called


def test_a_document_after_a_file_whose_name_no_folder_can_have():
    assert Job(Path("library"), ["дом.txt"], None).called == "дом"


def test_a_name_that_no_document_can_have_is_refused():
    with pytest.raises(UsageError, match="'a/b' cannot be the name"):
        _ = Job(Path("library"), ["x"], None, "a/b").called


def test_nobody_hears_anything():
    heard = NOBODY.progress, NOBODY.done, NOBODY.waits, NOBODY.empty
    assert [hear("anything") for hear in heard] == [None] * 4
