"""What decides the results of a run, for its journal: another model or prompt is another run."""

from dataclasses import asdict

from longctx.core.engine.setup import Engine
from longctx.core.measure.eval.asking import How
from longctx.core.measure.eval.journal import Record


def of_model(engine: Engine) -> Record:
    """The model with its weights, its profile with prompt and sampling, and what computes."""
    return {
        "model": engine.files.name,
        "weights": engine.files.fingerprint().weights,
        "profile": asdict(engine.profile),
        **engine.recorded(),
    }


def of_asking(engine: Engine, how: How) -> Record:
    """The method with its options, and how it is asked."""
    return {
        "method": engine.method_name,
        "options": asdict(engine.options),
        "decode": how.decode or str(engine.decoding),
        "gather": how.gather,
        "gather_by": how.gather_by,
    }
