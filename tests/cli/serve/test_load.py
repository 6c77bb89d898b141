"""The load of `docs/evaluation/serve_load.py`, short and with few clients."""

import runpy
from pathlib import Path

from longctx.cli.serve.options import Options

SCRIPT = Path(__file__).parents[3] / "docs" / "evaluation" / "serve_load.py"


def test_few_clients_for_a_short_time(serve, documents):
    script = runpy.run_path(str(SCRIPT))
    asked = [("notes", "Who kept the lighthouse?"), ("letter", "Who won the regatta?")]
    alone = {(name, words): documents.document(name).ask(words).answer for name, words in asked}
    served = serve(waiting=Options().waiting)
    load = script["together"](served.address, alone, clients=4, seconds=3)
    assert load.is_as_promised, (load.outcomes, load.wrong)
    assert load.outcomes["completed"] == len(load.seconds) >= 4
    assert min(load.memory) > 0


def test_a_wrong_answer_is_noticed(serve, documents):
    script = runpy.run_path(str(SCRIPT))
    alone = {("notes", "Who kept the lighthouse?"): "somebody else altogether"}
    served = serve()
    load = script["together"](served.address, alone, clients=1, seconds=0.1)
    assert load.wrong
    assert not load.is_as_promised
