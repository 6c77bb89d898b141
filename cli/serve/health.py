"""`GET /health`, whether it serves, and `GET /metrics`, what it has done, for Prometheus."""

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from longctx.cli.serve.work import Work

KNOWN = ("/", "/health", "/metrics", "/v1/chat/completions", "/v1/responses", "/v1/find")
KNOWN += ("/api/ask", "/api/find", "/api/ingest")
FOLDERS = ("/v1/models", "/api/documents", "/static")


class Counts:
    """What was done since the start: requests by path and status, tokens by kind."""

    def __init__(self) -> None:
        self.began = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.tokens: Counter[str] = Counter()

    def request(self, path: str, status: int) -> None:
        """Counts a response; paths that are none of ours count together."""
        folder = next((f for f in FOLDERS if path == f or path.startswith(f"{f}/")), "other")
        self.requests[path if path in KNOWN else folder, status] += 1

    def answered(self, read: int, made: int) -> None:
        """Counts the tokens of an answer."""
        self.tokens["read"] += read
        self.tokens["answer"] += made


async def health(request: Request) -> JSONResponse:
    """It serves; says nothing else, for anyone may ask."""
    return JSONResponse({"status": "ok"})


async def metrics(request: Request) -> PlainTextResponse:
    """Counts and seconds in Prometheus' text format."""
    state = request.app.state
    text = "".join(_lines(state.counts, state.work))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _lines(counts: Counts, work: "Work") -> list[str]:
    requests = {
        f'path="{path}",status="{status}"': count
        for (path, status), count in sorted(counts.requests.items())
    }
    tokens = {f'kind="{kind}"': count for kind, count in sorted(counts.tokens.items())}
    seconds = {'kind="waited"': round(work.waited_s, 3), 'kind="worked"': round(work.worked_s, 3)}
    return [
        _metric("requests_total", "counter", "Responses by path and status.", requests),
        _metric("tokens_total", "counter", "Tokens read for answers, and of answers.", tokens),
        _metric("seconds_total", "counter", "Seconds that requests waited and worked.", seconds),
        _metric("refused_total", "counter", "Requests told to wait.", {"": work.refused}),
        _metric("waiting", "gauge", "Requests that wait for the model.", {"": work.waiting}),
        _metric("running", "gauge", "Requests that the model works on.", {"": work.running}),
        _metric("memory_bytes", "gauge", "Memory held.", {"": _memory()}),
        _metric("start_time_seconds", "gauge", "When it began.", {"": round(counts.began, 3)}),
    ]


def _metric(name: str, kind: str, text: str, values: Mapping[str, float]) -> str:
    full = f"longctx_{name}"
    lines = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
    lines += [
        f"{full}{{{labels}}} {value}" if labels else f"{full} {value}"
        for labels, value in values.items()
    ]
    return "\n".join(lines) + "\n"


def _memory() -> int:
    """Bytes that this process holds; where that is not told, the most that it has held."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


routes = [
    Route("/health", health, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]
