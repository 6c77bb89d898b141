"""Ctrl-C ends the program also while one computation keeps the main thread for minutes."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from longctx.cli import interrupt

BUSY = """
import hashlib, sys
from longctx.cli.interrupt import within
try:
    with within(lambda: print("told", file=sys.stderr, flush=True), grace=0.2):
        print("ready", flush=True)
        {work}
except KeyboardInterrupt:
    print("left by itself", file=sys.stderr)
    sys.exit(130)
"""
ONE_STEP = "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"  # a quarter of an hour
SMALL_STEPS = "while True: sum(range(1000))"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to one process")
@pytest.mark.parametrize(
    ("work", "said"), [(ONE_STEP, "told\n"), (SMALL_STEPS, "left by itself\n")]
)
def test_ctrl_c(work, said):
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY.format(work=work)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, said)


def test_nothing_happens_without_ctrl_c():
    threads = threading.active_count()
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with interrupt.within(lambda: pytest.fail("told")):
        pass
    assert signal.set_wakeup_fd(before) == before
    assert threading.active_count() == threads


def test_in_another_thread_it_does_nothing():
    def work() -> None:
        with interrupt.within(lambda: pytest.fail("told")):
            done.append(threading.active_count())

    done: list[int] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [threading.active_count() + 1]
