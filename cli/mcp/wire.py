"""The protocol's lines on standard input: at most 1 MiB each; what is no message gets an error.

The SDK reads a line of any length into memory, and answers none that it cannot parse.
"""

import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError

LONGEST = 1 << 20  # bytes of a line
TOO_LONG = "-\n"  # stands for a longer one: it is no message either
REFUSED = f"a line must be one JSON-RPC message of at most {LONGEST:,} bytes"
Item = SessionMessage | Exception


class Lines(io.TextIOBase):
    """Lines of a binary file, of which only so much is ever in memory.

    Args:
        file: where they come from.
    """

    def __init__(self, file: BinaryIO):
        self._file = file

    def readline(self, size: int = -1, /) -> str:
        """The next line that is not blank; TOO_LONG for a longer one; empty at the end."""
        while (line := self._file.readline(LONGEST + 1)).isspace():
            pass
        if len(line) <= LONGEST:
            return line.decode("utf-8", "replace")
        while line and not line.endswith(b"\n"):
            line = self._file.readline(LONGEST)
        return TOO_LONG


@asynccontextmanager
async def standard_streams() -> AsyncIterator[tuple[MemoryObjectReceiveStream[Item], Any]]:
    """The messages that come, and where answers are sent; standard input is empty meanwhile."""
    lines: Any = Lines(_taken_standard_input())
    passes, passed = anyio.create_memory_object_stream[Item](0)
    async with (
        stdio_server(stdin=anyio.wrap_file(lines)) as (came, answers),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_pass_messages, came, passes, answers)
        yield passed, answers


async def _pass_messages(
    came: AsyncIterator[Item], passes: MemoryObjectSendStream[Item], answers: Any
) -> None:
    """Passes messages on, and answers what is none with an error."""
    async with passes:
        async for item in came:
            if isinstance(item, Exception):
                error = ErrorData(code=PARSE_ERROR, message=REFUSED)
                item = JSONRPCError(jsonrpc="2.0", id=None, error=error)
                await answers.send(SessionMessage(item))
            else:
                await passes.send(item)


def _taken_standard_input() -> BinaryIO:
    """Standard input under another number; the null device takes its place for everything else."""
    taken = os.fdopen(os.dup(0), "rb", closefd=False)  # a thread may wait for it to the end
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return taken
