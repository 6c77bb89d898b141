"""Writes the results of a calibration: the profile, the tables, and the heat map."""

import json

from longctx.core.common.outputs import Output
from longctx.core.engine.setup import Engine
from longctx.core.measure.calibrate import heat_map, profile_file, report
from longctx.core.measure.calibrate.report import Calibration

HEAT_MAP = "heatmap.svg"


def write(engine: Engine, found: Calibration) -> None:
    """Writes the profile, the tables and the heat map.

    Raises:
        LongctxError: a file cannot be written.
    """
    description = f"heads of longctx calibrate, {found.samples} samples a task"
    given = (found.heads, found.retrieval_heads, found.spans)
    texts = {
        found.profile: profile_file.text(engine, found.folder.stem, description, *given),
        found.folder / "table.json": json.dumps(found.as_dict(), indent=1),
        found.folder / "table.md": report.as_markdown(found),
    }
    for file, text in texts.items():
        Output(file, remedy="Make room, and run again.").write(text)
    heat_map.draw(found.folder / HEAT_MAP, found)
