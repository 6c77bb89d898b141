"""Zip files that are one document inside: their members by name, within a budget."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from longctx.core.sources.limits import Share, require_held


@contextmanager
def members_of(
    file: BinaryIO, name: str, share: Share
) -> Iterator[tuple[frozenset[str], Callable[[str], bytes]]]:
    """The names in a zip file, and what reads one of them.

    Raises (there and here):
        TooMuch: more is unpacked than is allowed.
        BadZipFile: it is damaged.
        KeyError: there is none of this name.
    """
    with zipfile.ZipFile(file) as zipped:

        def read(member: str) -> bytes:
            info = zipped.getinfo(member)
            require_held(name, info.file_size)
            share.reach(("member", member), info.file_size)
            return zipped.read(info)

        yield frozenset(zipped.namelist()), read
