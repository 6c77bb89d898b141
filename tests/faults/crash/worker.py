"""A process that does cases: one JSON line each on standard input, one JSON line of its end.

`python -m crash.worker STAGE MODEL SCRATCH`, with the layer preloaded.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path

from crash import process
from crash.cases import do
from crash.scenes import Stage


def main(stage: Path, model: Path, scratch: Path) -> None:
    """Builds the stage where there is none, then does what comes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    process.prepare(model)
    place = Stage(stage, model)
    if not (stage / "ready").exists():
        place.build()
        (stage / "ready").touch()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        case, begun = json.loads(line), time.monotonic()
        try:
            found = do(case, place, scratch)
        except Exception:  # a fault of the case itself is one, too
            found = {"failed": traceback.format_exc()}
        found = {"case": case, "failed": "", "seconds": time.monotonic() - begun, **found}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
