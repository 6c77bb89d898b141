"""A flood of requests does not fill a disk with log lines."""

import logging

import pytest

from longctx.cli.logs import _Collected
from longctx.cli.run import Run
from longctx.cli.serve import log_limit
from longctx.cli.serve.log_limit import BURST, LogLimit
from longctx.cli.serve.options import Options

BAD = b"\0\r\n\r\n"


class Lines(logging.Handler):
    """The lines of a log."""

    def __init__(self):
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record):
        self.lines += self.format(record).splitlines()


@pytest.fixture
def lines(monkeypatch):
    """What is logged while it is limited to what is logged at once."""
    monkeypatch.setattr(log_limit, "RATE", 0.0)
    handler, root = Lines(), logging.getLogger()
    root.addHandler(handler)
    yield handler.lines
    root.removeHandler(handler)


def test_each_kind_has_its_own_limit_and_what_is_left_out_is_counted(lines):
    log = logging.getLogger("longctx.flooded")
    with LogLimit() as limit:
        for number in range(BURST + 7):
            log.warning("refused %d", number)
        log.error("something else")
        assert lines == [*(f"refused {n}" for n in range(BURST)), "something else"]
        limit.report()
        limit.report()
        assert lines[BURST + 1 :] == [f"7 more left out like: refused {BURST + 6}"]
        log.error("after it")
    assert lines[-1] == "after it"
    for _ in range(2 * BURST):
        log.error("not limited any more")
    assert len(lines) == 3 * BURST + 3


def test_a_traceback_counts_as_its_lines(lines):
    log = logging.getLogger("longctx.flooded")
    with LogLimit():
        for number in range(BURST):
            try:
                [int][number > 90]("x")
            except (ValueError, IndexError) as error:
                log.error("failed", exc_info=error)
    told = lines.count("failed")
    assert 1 < told < BURST / 2
    assert len(lines) < 4 * BURST
    assert f"{91 - sum('ValueError' in line for line in lines)} more left out like: failed" in lines


def test_what_a_report_counts_is_not_limited(lines):
    run, root = Run(), logging.getLogger()
    handler = _Collected(run)
    root.addHandler(handler)
    try:
        with LogLimit():
            for _ in range(BURST + 5):
                logging.getLogger("longctx.x").warning("slow", extra={"stages": {"read": 1.0}})
            for _ in range(BURST + 5):
                logging.getLogger("longctx.x").warning("refused")
    finally:
        root.removeHandler(handler)
    assert run.stages == {"read": BURST + 5}
    assert run.warnings.count("refused") == BURST


def test_a_flood_of_bad_requests(lines, documents, run_server):
    with run_server(documents, Options()) as served:
        for _ in range(2 * BURST):
            assert served.exchanged(BAD).startswith(b"HTTP/1.1 400 ")
        served.http.get("/health").raise_for_status()
    assert lines.count("Invalid HTTP request received.") == BURST
    assert f"{BURST} more left out like: Invalid HTTP request received." in lines
