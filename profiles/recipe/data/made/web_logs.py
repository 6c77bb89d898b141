"""Logs of web servers: requests of a few visitors to a few pages, in many formats.

Knows nothing of questions: its records have a field for everything that a line says.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from longctx.profiles.recipe.data.made.pages import Line, Page, Record
from longctx.profiles.recipe.data.made.values import MadeValues
from longctx.profiles.recipe.data.made.web_parts import (
    BROWSERS,
    IN_OTHER_WORDS,
    PAGES,
    STATES,
    TOOLS,
    WEIGHTS,
)
from longctx.profiles.recipe.data.made.wordings import Wording, read_wordings


@cache
def wordings() -> dict[str, list[Wording]]:
    """How requests are asked for: by the page, or by its sort where it is the only one."""
    found = read_wordings(Path(__file__).with_name("logs.txt"))["access"]
    sorts = [
        replace(one, text=one.text.replace("{page}", "{sort}"), given=("sort",))
        for one in found
        if one.given == ("page",)
    ]
    return {"access": [*found, *sorts]}


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

    def page(self) -> tuple[str, str, str]:
        """A path, what people call it, and what they call all of its sort."""
        values = self.values
        adj, noun, folder = values.make_adj(), values.make_noun(), values.make_noun()
        number = values.digits(1, 4)
        path, page, sort = self.rng.choice(PAGES)
        parts = {"adj": adj, "noun": noun, "folder": folder, "number": number}
        return path.format(**parts), page.format(**parts), sort

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
        (path, page, sort), (ip, agent) = (
            rng.choice(self.pages[-30:]),
            rng.choice(self.visitors[-14:]),
        )
        state = rng.choices([*STATES], WEIGHTS)[0]
        fields = {
            "ip": ip,
            "path": path,
            "page": page,
            "sort": sort,
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
        return name in IN_OTHER_WORDS or bool(value and value in text)

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
