"""Logs of services, machines and builds: scenes played at once, their lines mixed by time.

A format, drawn once for a log, says what stands before a line's text.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from longctx.profiles.recipe.data.made.pages import Line, Page, Record
from longctx.profiles.recipe.data.made.scenes import Scene, played, read_scenes, staged
from longctx.profiles.recipe.data.made.values import MadeValues
from longctx.profiles.recipe.data.made.wordings import Wording, read_wordings

FILES = ("services.txt", "machines.txt", "builds.txt")


@cache
def scenes() -> dict[str, list[Scene]]:
    """The scenes of each file."""
    return {name: read_scenes(Path(__file__).with_name(name)) for name in FILES}


@cache
def wordings() -> dict[str, list[Wording]]:
    """How the records of each scene are asked for."""
    told = {scene.name: list(scene.wordings) for part in scenes().values() for scene in part}
    return told | {"entry": read_wordings(Path(__file__).with_name("logs.txt"))["entry"]}


class StageLog:
    """One log: its scenes, machines and format are drawn once."""

    def __init__(self, values: MadeValues):
        self.values, self.rng = values, values.rng
        r, file = self.rng.randint, self.rng.choice(FILES)
        known = scenes()[file]
        self.scenes = self.rng.sample(known, min(len(known), r(4, 12)))
        self.machines = [values.make_host() for _ in range(r(1, 4))]
        self.time = datetime(r(2001, 2033), r(1, 12), r(1, 28), r(0, 23), r(0, 59), r(0, 59))
        self.pace = self.rng.choice([0.4, 2, 20, 90, 600])
        self.stamp = self.rng.choice(["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%H:%M:%S"])
        self.format: Callable[[str, str, str, str], str] = self.rng.choice(
            [self.syslog, self.syslog]
            if file == "machines.txt"
            else [self.plain, self.plain, self.bracketed, self.object, self.pairs, self.syslog]
        )
        self.upper = self.rng.random() < 0.6

    def syslog(self, level: str, module: str, machine: str, text: str) -> str:
        """Mar 12 06:25:24 host module[pid]: text"""
        del level
        stamp = self.time.strftime("%b %d %H:%M:%S")
        return f"{stamp} {machine} {module}[{len(module) * 311 + len(machine)}]: {text}"

    def plain(self, level: str, module: str, machine: str, text: str) -> str:
        """stamp LEVEL module - text"""
        del machine
        return f"{self.time.strftime(self.stamp)} {self.level(level):5} {module} - {text}"

    def bracketed(self, level: str, module: str, machine: str, text: str) -> str:
        """[stamp] [module] LEVEL: text"""
        del machine
        return f"[{self.time.strftime(self.stamp)}] [{module}] {self.level(level)}: {text}"

    def object(self, level: str, module: str, machine: str, text: str) -> str:
        """A JSON object."""
        stamp = self.time.strftime("%Y-%m-%dT%H:%M:%SZ")
        told = {"ts": stamp, "host": machine, "level": level, "logger": module, "msg": text}
        return json.dumps(told, ensure_ascii=False)

    def pairs(self, level: str, module: str, machine: str, text: str) -> str:
        """Keys with values."""
        stamp = self.time.strftime("%Y-%m-%dT%H:%M:%SZ")
        return f'time={stamp} level={level} host={machine} module={module} msg="{text}"'

    def level(self, level: str) -> str:
        """A level in the letters of this log."""
        return level.upper() if self.upper else level

    def play(self, size: int) -> tuple[list[Line], list[Record]]:
        """Lines of about `size` characters, and the records that they say."""
        self.entries: list[Record] = []
        lines: list[Line] = []
        records: list[Record] = []
        running: list[tuple[Scene, Record, list[tuple[str, str]], list[Line], str]] = []
        while size > 0 or running:
            if size > 0 and (len(running) < 2 or self.rng.random() < 0.3):
                scene = self.rng.choice(self.scenes)
                earlier = [one for one in records[-12:] if one.kind == scene.name]
                record, said = played(scene, self.values, earlier)
                machine = self.rng.choice(self.machines)
                running.append((scene, record, said, [], machine))
                records.append(record)
            at = self.rng.randrange(len(running))
            scene, record, said, written, machine = running[at]
            line = self.say(record, said[len(written)], machine, len(written) + 1)
            written.append(line)
            lines.append(line)
            size -= len(line.text) + 1
            if len(written) == len(said):
                staged(scene, record, written)
                del running[at]
        return lines, [*records, *self.entries]

    def say(self, record: Record, said: tuple[str, str], machine: str, number: int) -> Line:
        """One line of a record, with what its format says of it."""
        self.time += timedelta(seconds=self.rng.expovariate(1 / self.pace))
        level, _, module = said[0].partition(" ")
        line = Line(self.format(level, module, machine, said[1]))
        told = {"time": self.time.strftime("%H:%M:%S"), "machine": machine, "module": module}
        shown = {name: value for name, value in told.items() if value in line.text}
        if level in line.text.lower():
            shown["level"] = level
        self.entries.append(Record("entry", {"text": said[1], **shown}, line))
        for name, value in shown.items():
            field = f"at{number}" if name == "time" else name
            record.fields[field] = value
            record.apart.setdefault(field, []).append(line)
        return line


def page(values: MadeValues) -> Page:
    """A log of some length."""
    log = StageLog(values)
    lines, records = log.play(int(1500 * 8 ** values.rng.random()))
    hidden = [one for _ in range(2) for one in log.play(800)[1]]
    return Page("log", lines, records, hidden)
