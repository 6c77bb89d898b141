"""Logs of web servers: requests of a few visitors to a few pages, in many formats.

Knows nothing of questions: its records have a field for everything that a line says.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from longctx.profiles.recipe.data.made.pages import Line, Page, Record
from longctx.profiles.recipe.data.made.values import MadeValues
from longctx.profiles.recipe.data.made.wordings import Wording, read_wordings

STATES = {
    "fine": ["200", "200", "200", "206"],
    "unchanged": ["304"],
    "moved": ["301", "302"],
    "refused": ["403", "403", "401"],
    "missing": ["404", "404", "410"],
    "broken": ["500", "502", "503", "504"],
}
WEIGHTS = [60, 6, 5, 7, 9, 5]
TOOLS = ["curl", "Wget", "python-requests", "Go-http-client", "okhttp", "libwww-perl", "aria2"]
BROWSERS = [
    ("Mozilla/5.0 (X11; Linux x86_64; rv:{v}) Gecko/20100101 Firefox/{v}", "Firefox"),
    ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:{v}) Gecko/20100101 Firefox/{v}", "Firefox"),
    (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
        "Chrome/{v} Safari/537.36",
        "Chrome",
    ),
    ("Opera/9.80 (Windows NT 6.1) Presto/2.12 Version/{v}", "Opera"),
    ("Mozilla/5.0 (compatible; {n}Bot/{v}; +https://{d}/bot.html)", "{n}Bot"),
    ("{n}Reader/{v} ({d})", "{n}Reader"),
    ("{n}-monitor/{v}", "{n}-monitor"),
]


@cache
def wordings() -> dict[str, list[Wording]]:
    """How requests are asked for."""
    return read_wordings(Path(__file__).with_name("logs.txt"))


@dataclass(frozen=True)
class Agent:
    """A visitor's program: as it names itself, its product and version."""

    text: str
    product: str
    version: str


class WebLog:
    """One log: its pages, visitors and format are drawn once."""

    def __init__(self, values: MadeValues):
        self.values, self.rng = values, values.rng
        r = self.rng.randint
        self.pages = [self.page() for _ in range(r(3, 9))]
        self.visitors = [(values.make_ip(), self.agent()) for _ in range(r(4, 14))]
        self.users = [values.make_login() for _ in range(r(0, 4))]
        self.time = datetime(r(2001, 2033), r(1, 12), r(1, 28), r(0, 23), r(0, 59), r(0, 59))
        self.pace = self.rng.choice([2, 20, 90, 600, 3000])
        self.referrers = [f"https://{values.make_domain()}/{self.slug()}" for _ in range(r(3, 9))]
        self.format: Callable[[dict[str, str], Agent], str] = self.rng.choice(
            [
                *[self.combined, self.combined, self.combined, self.timed, self.common],
                *[self.object, self.pairs, self.columns],
            ]
        )

    def slug(self) -> str:
        """The end of a page's address."""
        end = self.values.pick(["", ".html", "/", ".php"])
        return f"{self.values.make_noun()}-{self.values.make_noun()}{end}"

    def page(self) -> tuple[str, str]:
        """A path, and what people call it."""
        values = self.values
        adj, noun, folder = values.make_adj(), values.make_noun(), values.make_noun()
        number = values.digits(1, 4)
        return self.rng.choice(
            [
                (f"/{folder}/{adj}-{noun}.pdf", f"the PDF about the {adj} {noun}"),
                (f"/img/{adj}_{noun}.jpg", f"the picture of the {adj} {noun}"),
                (f"/files/{noun}-{folder}.zip", f"the {noun} {folder} archive"),
                (f"/{noun}/{adj}.html", f"the {adj} page about the {noun}"),
                (f"/{noun}-admin/{folder}", f"the {folder} page of the {noun} administration"),
                (f"/{noun}/login", f"the {noun} login"),
                (f"/{adj}-{noun}/feed.xml", f"the feed of the {adj} {noun}"),
                (f"/api/{noun}/{number}", f"{noun} number {number} of the API"),
                (f"/shop/{noun}?id={number}", f"{noun} {number} in the shop"),
                (f"/backup/{adj}-{noun}.sql", f"the backup of the {adj} {noun} database"),
                (f"/video/{noun}_{folder}.mp4", f"the video of {noun} and {folder}"),
                (f"/{folder}/{noun}/settings", f"the {noun} settings of the {folder}"),
            ]
        )

    def agent(self) -> Agent:
        """A browser, a robot or a tool of some version."""
        values, version = self.values, self.values.make_version()
        if self.rng.random() < 0.4:
            product = values.pick(TOOLS)
            return Agent(f"{product}/{version}", product, version)
        text, product = self.rng.choice(BROWSERS)
        name, domain = values.make_name(), values.make_domain()
        fill = {"{v}": version, "{n}": name, "{d}": domain}
        for part, value in fill.items():
            text, product = text.replace(part, value), product.replace(part, value)
        return Agent(text, product, version)

    def record(self) -> Record:
        """The next request."""
        rng, values = self.rng, self.values
        self.time += timedelta(seconds=1 + rng.expovariate(1 / self.pace))
        if rng.random() < 0.4:
            self.pages.append(self.page())
        if rng.random() < 0.1:
            self.visitors.append((values.make_ip(), self.agent()))
        (path, page), (ip, agent) = rng.choice(self.pages[-30:]), rng.choice(self.visitors[-14:])
        state = rng.choices([*STATES], WEIGHTS)[0]
        fields = {
            "ip": ip,
            "path": path,
            "page": page,
            "state": state,
            "status": rng.choice(STATES[state]),
            "method": rng.choices(["GET", "POST", "PUT", "DELETE", "HEAD"], [80, 8, 3, 3, 2])[0],
            "size": self.size(state),
            "user": rng.choice(self.users) if self.users and rng.random() < 0.4 else "",
            "referrer": rng.choice(self.referrers) if rng.random() < 0.5 else "",
            "tool": f"{agent.product}/{agent.version}",
            "product": agent.product,
            "version": agent.version,
            "took": f"{rng.randint(0, 9)}.{rng.randint(0, 999):03}",
            "time": self.time.strftime("%H:%M:%S"),
        }
        if "/Version/" in agent.text or agent.product == "Opera":
            fields["tool"] = "Opera"
        line = Line(self.format(fields, agent))
        said = {name: value for name, value in fields.items() if self.says(name, value, line.text)}
        return Record("access", said, line)

    def size(self, state: str) -> str:
        """How many bytes were sent."""
        if state == "fine":
            return self.values.make_bytes()
        return "0" if state == "unchanged" else self.values.digits(2, 4)

    def says(self, name: str, value: str, text: str) -> bool:
        """Whether the line says a field, in these or other words."""
        return name in {"page", "state"} or bool(value and value in text)

    def combined(self, fields: dict[str, str], agent: Agent) -> str:
        """The combined log format."""
        return f'{self.common(fields, agent)} "{fields["referrer"] or "-"}" "{agent.text}"'

    def common(self, fields: dict[str, str], agent: Agent) -> str:
        """The common log format."""
        stamp = self.time.strftime("%d/%b/%Y:%H:%M:%S +0000")
        request = f"{fields['method']} {fields['path']} HTTP/1.1"
        head = f'{fields["ip"]} - {fields["user"] or "-"} [{stamp}] "{request}"'
        return f"{head} {fields['status']} {fields['size']}"

    def timed(self, fields: dict[str, str], agent: Agent) -> str:
        """The combined format with how long it took."""
        return f"{self.combined(fields, agent)} rt={fields['took']}"

    def object(self, fields: dict[str, str], agent: Agent) -> str:
        """A JSON object."""
        return json.dumps(self.shown(fields, agent))

    def pairs(self, fields: dict[str, str], agent: Agent) -> str:
        """Keys with values."""
        shown = self.shown(fields, agent).items()
        return " ".join(
            f'{key}="{text}"' if " " in text else f"{key}={text}" for key, text in shown
        )

    def columns(self, fields: dict[str, str], agent: Agent) -> str:
        """Columns with a tab between them."""
        return "\t".join(self.shown(fields, agent).values())

    def shown(self, fields: dict[str, str], agent: Agent) -> dict[str, str]:
        """The fields of a format with names."""
        return {
            "ts": self.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "client": fields["ip"],
            "user": fields["user"] or "-",
            "method": fields["method"],
            "uri": fields["path"],
            "status": fields["status"],
            "bytes": fields["size"],
            "duration": fields["took"],
            "referer": fields["referrer"] or "-",
            "agent": agent.text,
        }


def page(values: MadeValues) -> Page:
    """A web server's log of some length."""
    log, size = WebLog(values), int(1500 * 8 ** values.rng.random())
    records = []
    while size > 0:
        records.append(log.record())
        size -= len(records[-1].line.text) + 1
    lines = [record.line for record in records]
    hidden = [log.record() for _ in range(12)]
    return Page("log", lines, records, hidden)
