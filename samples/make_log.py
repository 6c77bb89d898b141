"""Writes a server log of 20,000 lines with 20 incidents in it, for trying longctx on a log.

    python -m longctx.samples.make_log server.log

The shop, its machines and its troubles are made up. The bytes are the same on every machine, as
samples/questions/server-log.yaml names answers by their line: only whole numbers are drawn, from
one seeded generator. Knows nothing of longctx.
"""

import argparse
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

LINES = 20_000
SEED = 40_417
START = datetime(2031, 3, 3)

NIGHT_TO_NOON = (60, 40, 30, 25, 25, 40, 90, 200, 350, 480, 520, 560)
NOON_TO_NIGHT = (620, 560, 480, 460, 470, 520, 600, 640, 560, 400, 240, 120)
LINES_PER_HOUR = NIGHT_TO_NOON + NOON_TO_NIGHT
HOUR_MS = 3_600_000
BURST_ONE_IN = 400

HOSTS = {
    "gateway": ("edge-1", "edge-2", "edge-3"),
    "auth": ("app-1", "app-2"),
    "orders": ("app-1", "app-2", "app-4"),
    "payments": ("pay-1", "pay-2"),
    "search": ("search-1", "search-2", "search-3"),
    "mailer": ("store-5",),
    "db": ("db-1", "db-2"),
    "scheduler": ("ctl-1",),
}
# A service speaks as often as the number says.
SHARES = {"gateway": 9, "search": 4, "orders": 3, "auth": 3, "payments": 2, "mailer": 2, "db": 2}
SPEAKERS = [*(name for name, share in SHARES.items() for _ in range(share)), "scheduler"]
PATHS = ("/", "/cart", "/search", "/checkout", "/account", "/boots", "/lamps", "/rope", "/help")
WORDS = ("kettle", "wool socks", "storm lamp", "tent peg", "rope 8mm", "enamel mug", "axe", "map")
JOBS = ("prune-sessions", "reprice", "stock-sync", "sitemap", "close-carts", "rotate-logs")
TABLES = ("orders", "customers", "baskets", "stock", "prices")


class Entry(NamedTuple):
    """One line of the log without its time."""

    level: str
    service: str
    host: str
    message: str


def _latency(rng: Random) -> int:
    """Milliseconds: mostly short, at times long."""
    return rng.randrange(3, 30) * rng.choice((1, 1, 1, 2, 2, 3, 5, 12))


def _request(rng: Random) -> str:
    return f"req={rng.randrange(1 << 32):08x}"


def _gateway(rng: Random) -> tuple[str, str]:
    status = rng.choice((200,) * 20 + (204, 302, 304, 304, 404, 429))
    method = rng.choice(("GET", "GET", "GET", "GET", "POST"))
    line = f"{_request(rng)} {method} {rng.choice(PATHS)} {status} {_latency(rng)}ms"
    return ("WARN" if status == 429 else "INFO"), line


def _auth(rng: Random) -> tuple[str, str]:
    customer = f"customer={rng.randrange(10_000, 99_999)}"
    if rng.randrange(9) == 0:
        return "WARN", f"{_request(rng)} wrong password {customer}"
    return "INFO", f"{_request(rng)} session {rng.choice(('opened', 'renewed'))} {customer}"


def _orders(rng: Random) -> tuple[str, str]:
    order = f"order=H-{rng.randrange(10_000, 99_999)}"
    step = rng.choice(("placed", "packed", "sent", "basket saved"))
    return "INFO", f"{_request(rng)} {step} {order} items={rng.randrange(1, 9)}"


def _payments(rng: Random) -> tuple[str, str]:
    amount = f"amount={rng.randrange(4, 240)}.{rng.randrange(100):02d} EUR"
    if rng.randrange(14) == 0:
        return "WARN", f"{_request(rng)} card declined {amount}"
    return "INFO", f"{_request(rng)} captured {amount} {_latency(rng)}ms"


def _search(rng: Random) -> tuple[str, str]:
    hits = rng.randrange(0, 160)
    return "INFO", f"{_request(rng)} query '{rng.choice(WORDS)}' hits={hits} {_latency(rng)}ms"


def _mailer(rng: Random) -> tuple[str, str]:
    kind = rng.choice(("receipt", "parcel sent", "password link"))
    return "INFO", f"delivered '{kind}' in {_latency(rng)}ms queue={rng.randrange(40)}"


def _db(rng: Random) -> tuple[str, str]:
    table = rng.choice(TABLES)
    if rng.randrange(12) == 0:
        return "WARN", f"slow query {rng.randrange(800, 2_400)}ms table={table}"
    return "DEBUG", f"checkpoint table={table} pages={rng.randrange(20, 900)}"


def _scheduler(rng: Random) -> tuple[str, str]:
    return "INFO", f"job {rng.choice(JOBS)} done in {rng.randrange(2, 190)}s"


SAYS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "gateway": _gateway,
    "auth": _auth,
    "orders": _orders,
    "payments": _payments,
    "search": _search,
    "mailer": _mailer,
    "db": _db,
    "scheduler": _scheduler,
}

INTRUDER = "WARN auth app-2 login refused from=203.0.113.77 reason=password"

# Level, service, host and message by line number, counted from 1.
PLANTED: dict[int, str] = {
    731: "INFO scheduler ctl-1 deploy of orders began, version=4.17.3 by=t.hallam",
    748: "INFO scheduler ctl-1 deploy of orders ended, 3 of 3 hosts answer",
    1512: "WARN payments pay-1 reference 'MOTHERS-BOOTS' odd for amount=0.01 EUR",
    2210: "WARN mailer store-5 disk /var/spool is 91% full",
    2388: "WARN mailer store-5 disk /var/spool is 97% full",
    2466: "ERROR mailer store-5 no space left in /var/spool, 318 letters held back",
    2590: "INFO mailer store-5 old bounces removed by=p.quennell, spool is 44% full",
    3307: "WARN orders app-4 coupon FROSTBITE50 redeemed 214 times in 60s, disabled",
    4077: "ERROR db db-1 query took 48613ms: no index on parcel_history.weight",
    5263: "ERROR db db-4 replica fails its checks: flipped bits in memory",
    5266: "WARN scheduler ctl-1 db-4 drained and taken out of the replicas",
    5398: "INFO scheduler ctl-1 db-7 took the place of the broken replica",
    6614: "ERROR search search-2 killed by the kernel: out of memory at 15.8 GiB",
    **dict.fromkeys(range(7301, 7313), INTRUDER),
    7313: "ERROR auth app-2 customer wendeline locked: too many tries, one address",
    9018: "ERROR db db-2 nightly backup failed: bucket ledger-cold refused our key",
    9019: "WARN db db-2 key was rotated at noon by=m.osei, backup not told",
    9076: "WARN db db-1 migration 0093_add_gift_note held a lock for 372s",
    10118: "INFO gateway edge-1 flag tartan-checkout shown to 5% of visitors",
    11204: "ERROR orders app-2 settings refused: no key 'retires', is 'retries' meant?",
    11890: "INFO scheduler ctl-1 deploy of search began, version=2.9.0 by=t.hallam",
    11951: "ERROR gateway edge-2 search answers 31% of requests with 502",
    11958: "WARN scheduler ctl-1 deploy of search undone, back at version=2.8.6",
    12764: "WARN scheduler ctl-1 clock of edge-3 is 7.3s ahead, set right",
    13420: "ERROR payments pay-2 no address for acquirer.quillbank.example: NXDOMAIN",
    14333: "WARN payments pay-1 refund of 1999.00 EUR without second name by=j.abara",
    15512: "ERROR mailer store-5 queue stuck at 48211: template 'spring' has no subject",
    16380: "WARN scheduler ctl-1 rack 6 inlet at 41C: fan tray stopped by a glove",
    17716: "ERROR gateway edge-2 certificate of parcels.vantry.example has expired",
    17977: "INFO gateway edge-2 new certificate from vantry in use, 9 labels reprinted",
    19480: "WARN gateway edge-1 banner on: shop shut for repairs on Sunday, OPS-6613",
}


def planted(number: int) -> Entry:
    """The entry planted at a line."""
    level, service, host, message = PLANTED[number].split(" ", 3)
    return Entry(level, service, host, message)


def ordinary(rng: Random) -> Entry:
    """Something that a healthy shop logs."""
    service = rng.choice(SPEAKERS)
    level, message = SAYS[service](rng)
    return Entry(level, service, rng.choice(HOSTS[service]), message)


def trouble(rng: Random, upstream: str) -> Entry:
    """A line of a burst: the gateway waits for a service that is late."""
    waited = rng.randrange(2_000, 5_000)
    message = f"{_request(rng)} upstream {upstream} late {waited}ms, try {rng.randrange(1, 4)}"
    level = "ERROR" if waited > 4_500 else "WARN"
    return Entry(level, "gateway", rng.choice(HOSTS["gateway"]), message)


def background(rng: Random) -> Iterator[tuple[Entry, int]]:
    """Ordinary lines with a burst now and then, each with what to divide its gap by."""
    while True:
        yield ordinary(rng), 1
        if rng.randrange(BURST_ONE_IN) == 0:
            upstream = rng.choice(("orders", "payments", "search"))
            for _ in range(rng.randrange(15, 60)):
                yield trouble(rng, upstream), 25


def log_lines() -> Iterator[str]:
    """The lines of the log, in order, without line ends."""
    rng = Random(SEED)
    clock = START
    entries = background(rng)
    for number in range(1, LINES + 1):
        entry, hurry = (planted(number), 25) if number in PLANTED else next(entries)
        gap_ms = rng.randrange(1, 2 * HOUR_MS // LINES_PER_HOUR[clock.hour]) // hurry
        clock += timedelta(milliseconds=gap_ms)
        level, service, host, message = entry
        stamp = clock.isoformat(timespec="milliseconds")
        yield f"{stamp}Z {level:<5} {service:<9} {host:<8} {message}"


def main() -> None:
    """Writes the log to the path on the command line."""
    parser = argparse.ArgumentParser(description="Writes a server log of 20,000 lines.")
    parser.add_argument("path", type=Path, help="the file to write, as server.log")
    path = parser.parse_args().path
    path.write_text("".join(f"{line}\n" for line in log_lines()), "utf-8", newline="\n")


if __name__ == "__main__":
    main()
