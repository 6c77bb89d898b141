"""What a job calls its document, and an observer that hears nothing."""

from pathlib import Path

import pytest

from longctx.core.ingest.job import NOBODY, Job


@pytest.mark.parametrize(
    ("name", "names", "called"),
    [
        (None, ("war", None), "war"),
        ("novel", ("novel", None), "novel"),
        ("War & Peace", ("War---Peace", "War & Peace"), "War & Peace"),
    ],
)
def test_what_the_document_is_called(name, names, called):
    job = Job(Path("library"), ["books/war.txt"], None, name)
    assert (job.names(), job.called) == (names, called)


def test_a_document_after_a_file_whose_name_no_folder_can_have():
    job = Job(Path("library"), ["дом.txt"], None)
    assert job.names()[1] == job.called == "дом"
    assert job.names()[0].isascii()


def test_nobody_hears_anything():
    heard = NOBODY.progress, NOBODY.done, NOBODY.waits, NOBODY.empty
    assert [hear("anything") for hear in heard] == [None] * 4
