"""RULER's tasks by name, with RULER's settings."""

from functools import partial

from longctx.core.measure.case import Task
from longctx.core.measure.eval.ruler import counting, niah, qa, tracking
from longctx.core.measure.eval.ruler.making import Materials, task
from longctx.core.measure.eval.ruler.niah import NeedleTask
from longctx.core.measure.eval.ruler.squad import Squad
from longctx.core.measure.eval.scorers import string_match_all

NEEDLES = {
    "niah_single_1": NeedleTask("noise", "word", "number"),
    "niah_single_2": NeedleTask("prose", "word", "number"),
    "niah_single_3": NeedleTask("prose", "word", "uuid"),
    "niah_multikey_1": NeedleTask("prose", "word", "number", keys=4),
    "niah_multikey_2": NeedleTask("needles", "word", "number"),
    "niah_multikey_3": NeedleTask("needles", "uuid", "uuid"),
    "niah_multivalue": NeedleTask("prose", "word", "number", values=4),
    "niah_multiquery": NeedleTask("prose", "word", "number", keys=4, asked=4),
}
QUESTIONS = {"qa_1": "--qa", "qa_2": "--qa2"}  # the option that gives each its file
NAMES = (*NEEDLES, "vt", "cwe", "fwe", *QUESTIONS)
# RULER's limits, except for `vt`: its 30 are for the names alone, after RULER's answer prefix.
NEEDLE_TOKENS, TRACKING_TOKENS, COMMON_TOKENS, FREQUENT_TOKENS = 128, 64, 120, 50


def tasks(materials: Materials, files: dict[str, Squad]) -> dict[str, Task]:
    """The tasks that can be made, by name.

    Args:
        materials: prose and words.
        files: questions of `qa_1` and `qa_2`; tasks without a file are skipped.
    """
    made = {
        name: task(name, partial(niah.make, name, kind, materials), string_match_all, NEEDLE_TOKENS)
        for name, kind in NEEDLES.items()
    }
    track = partial(tracking.make, "vt")
    common = partial(counting.make_common, "cwe", materials.words)
    frequent = partial(counting.make_frequent, "fwe")
    made["vt"] = task("vt", track, string_match_all, TRACKING_TOKENS)
    made["cwe"] = task("cwe", common, string_match_all, COMMON_TOKENS)
    made["fwe"] = task("fwe", frequent, string_match_all, FREQUENT_TOKENS)
    return made | {name: qa.task(name, squad) for name, squad in files.items()}
