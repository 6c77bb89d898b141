"""Writes what a calibration found: the profile, the tables, and the heat map.

Every file is replaced whole.
"""

import json
from pathlib import Path

from longctx.core.calibrate import heat_map, profile_file, report
from longctx.core.calibrate.report import Calibration
from longctx.core.errors import LongctxError, UsageError
from longctx.core.eval import figures
from longctx.core.setup import Engine

HEAT_MAP = "heatmap.png"


def write(engine: Engine, found: Calibration) -> None:
    """The profile, the tables, and the heat map where it can be drawn."""
    description = f"heads of longctx calibrate, {found.samples} samples a task"
    given = (found.heads, found.retrieval_heads, found.spans)
    texts = {
        found.profile: profile_file.text(engine, found.profile.stem, description, *given),
        found.folder / "table.json": json.dumps(found.as_dict(), indent=1),
        found.folder / "table.md": report.as_markdown(found),
    }
    try:
        for file, text in texts.items():
            _replace(file, text)
        if can_draw():
            file = found.folder / HEAT_MAP
            heat_map.draw(file, found)
    except OSError as error:
        why = error.strerror or str(error)
        raise LongctxError(f"cannot write '{file}'", why, "Make room, and run again.") from error


def _replace(file: Path, text: str) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, "utf-8", newline="\n")
    new.replace(file)


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    try:
        figures.require()
    except UsageError:
        return False
    return True
