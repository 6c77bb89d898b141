"""Files that a test writes, opened as sources."""

import pytest
from in_process import parsed_here
from sample_files import put

from longctx.core.sources.find import open_sources
from longctx.core.sources.rules import Rules


@pytest.fixture
def here():
    """Files are parsed in this process, where a test changes limits or measures memory."""
    with parsed_here():
        yield


@pytest.fixture
def opened_all(tmp_path, monkeypatch):
    """f(name, data, **rules): writes one file and opens what is in it."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, data: bytes, **rules):
        put(tmp_path, {name: data})
        return open_sources([name], Rules(**rules))

    return run


@pytest.fixture
def opened(tmp_path):
    """f(name, data, **rules): writes one file, which is one source, and opens it."""

    def run(name: str, data: bytes, **rules):
        put(tmp_path, {name: data})
        (source,) = open_sources([str(tmp_path / name)], Rules(**rules))
        return source

    return run
