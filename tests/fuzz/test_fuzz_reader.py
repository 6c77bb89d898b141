"""Whatever bytes a source has: its text, with the place of each character, or an error of our own.

Also whatever stands in a `.gitignore`.
"""

import io
import tempfile
from pathlib import Path

import pytest
from fuzz_cases import many, of_corpus
from fuzz_texts import MARKS, WORDS, Given, make_repository, require_sound, require_walked
from hypothesis import example, given
from hypothesis import strategies as st

from longctx.core.sources.encodings import ENCODINGS
from longctx.core.sources.reader import Source

READS = st.sampled_from([5, 7, 16, 64, 1 << 20])


def written(word: str, encoding: str) -> bytes:
    return word.encode(encoding, "replace")


pieces = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([*MARKS, b"\n", b"\xff", b"\xc3", b"\x84\x31\x95\x33", b"+/v8", b"\x1b$B"]),
    st.builds(written, st.sampled_from(WORDS), st.sampled_from(sorted(ENCODINGS))),
    st.builds(bytes.__mul__, st.sampled_from([b"the keeper\n", "été ".encode()]), st.just(40)),
)
mixed = st.builds(b"".join, st.lists(pieces, min_size=1, max_size=6))


@many
@given(raw=mixed, read_bytes=READS)
@example(raw=b"\x84\x31\x95\x33", read_bytes=7)
def test_a_source_of_mixed_bytes(raw, read_bytes):
    require_sound(Source("fuzz", None, io.BytesIO(raw)), raw, read_bytes)


@many
@given(raw=st.binary(min_size=1, max_size=64), mark=st.sampled_from([b"", *MARKS]), n=READS)
def test_a_source_of_any_bytes(raw, mark, n):
    require_sound(Source("fuzz", None, io.BytesIO(mark + raw)), mark + raw, n)


@many
@given(raw=mixed | st.binary(max_size=40), encoding=st.sampled_from(sorted(ENCODINGS)), n=READS)
def test_any_bytes_that_are_said_to_be_in_an_encoding(raw, encoding, n):
    require_sound(Source("fuzz", None, made=Given(raw, encoding)), raw, n)


# --- .gitignore ---


@pytest.fixture(scope="module")
def repository():
    """A folder of a few files, which is the top of a repository."""
    with tempfile.TemporaryDirectory() as folder:
        make_repository(Path(folder))
        yield Path(folder)


SIGNS = st.text(st.sampled_from("ab*?[]!/\\# \t.-^z~é\0\r\x85"), max_size=14)
WHERE = st.sampled_from([".gitignore", "b/.gitignore", ".git/info/exclude"])


@many
@given(data=st.binary(max_size=40) | st.lists(SIGNS, max_size=4).map("\n".join), where=WHERE)
def test_an_ignore_file_of_any_bytes(repository, data, where):
    require_walked(repository, where, data.encode() if isinstance(data, str) else data)


@of_corpus("ignore/*")
def test_ignore_files_that_were_found_before(repository, file):
    require_walked(repository, ".gitignore", file.read_bytes())
