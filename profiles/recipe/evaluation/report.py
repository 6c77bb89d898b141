"""From trials to figures: rates by kind, length, haystack and depth, misses, a Markdown table.

Knows nothing of models and of how cases are made.
"""

from collections.abc import Callable, Iterable
from typing import Any

from longctx.core.measure.intervals import wilson
from longctx.core.measure.markdown import table

Trial = dict[str, Any]
ALL = "all"
FIFTHS = ("0-20%", "20-40%", "40-60%", "60-80%", "80-100%")


def retrieval(trials: list[Trial], examples: int) -> dict[str, Any]:
    """Rates by kind, length and haystack, by depth, and by distractors; some misses of each kind.

    Args:
        trials: with `kind`, `length`, `haystack`, `depth`, `distractors` and `right`.
        examples: misses to keep per kind and length.
    """
    every = [{**trial, "haystack": ALL} for trial in trials]
    deep = [{**trial, "depth": FIFTHS[min(int(5 * trial["depth"]), 4)]} for trial in trials]
    return {
        "retrieval": _rates([*every, *trials], ("kind", "length", "haystack")),
        "depths": _rates(deep, ("length", "depth")),
        "distractors": _rates(trials, ("kind", "distractors")),
        "misses": _misses(trials, ("kind", "length"), lambda trial: not trial["right"], examples),
    }


def refusal(trials: list[Trial], examples: int) -> dict[str, Any]:
    """Precision and recall of refusals by length, and the rate of right answers if there is one.

    Args:
        trials: as for `retrieval`, with `absent` and `refused`.
        examples: misses to keep per length.
    """
    rows = []
    for (length,), group in _grouped(trials, ("length",)).items():
        scores = refusals([t["refused"] for t in group], [t["absent"] for t in group])
        present = rate(t["right"] for t in group if not t["absent"])
        rows.append({"length": length, **scores, "present": present})
    keys = ("length", "absent")
    return {
        "refusal": rows,
        "refusal_misses": _misses(trials, keys, lambda trial: not trial["right"], examples),
    }


def squad(trials: list[Trial], examples: int) -> dict[str, Any]:
    """Mean exact match and F1 per setting, and some misses."""
    rows = []
    for (setting,), group in _grouped(trials, ("setting",)).items():
        exact, f1 = (sum(t[name] for t in group) / len(group) for name in ("em", "f1"))
        bounds = rate(bool(t["em"]) for t in group)
        rows.append({"setting": setting, **bounds, "em": exact, "f1": f1})
    missed = _misses(trials, ("setting",), lambda trial: not trial["em"], examples)
    return {"squad": rows, "squad_misses": missed}


def rate(hits: Iterable[bool]) -> dict[str, float]:
    """Count, rate and interval of trials."""
    hits = list(hits)
    right, count = sum(hits), len(hits)
    low, high = wilson(right, count) if count else (0.0, 1.0)
    return {
        "n": count,
        "right": right,
        "rate": right / count if count else 0.0,
        "low": low,
        "high": high,
    }


def refusals(refused: list[bool], absent: list[bool]) -> dict[str, float]:
    """Precision and recall of saying that the document has no answer.

    Args:
        refused: whether the model says so.
        absent: whether that is true.
    """
    true = sum(said and is_so for said, is_so in zip(refused, absent, strict=True))
    return {
        "n": len(refused),
        "absent": sum(absent),
        "refused": sum(refused),
        "precision": true / sum(refused) if any(refused) else 0.0,
        "recall": true / sum(absent) if any(absent) else 0.0,
    }


def markdown(found: dict[str, Any]) -> str:
    """All figures of a report as Markdown tables."""
    parts = [f"Model `{found['model']}`, {found['parameters']:,} parameters, seed {found['seed']}."]
    if "retrieval" in found:
        parts += [_retrieval_table(found["retrieval"]), _depth_table(found["depths"])]
    if "refusal" in found:
        parts.append(_refusal_table(found["refusal"]))
    if "squad" in found:
        rows = [[row["setting"], _cell(row, True), f"{row['f1']:.3f}"] for row in found["squad"]]
        parts.append(table(["natural questions", "EM (95% interval), n", "F1"], rows))
    if "bits_per_byte" in found:
        bits = found["bits_per_byte"]
        rows = [[name, f"{bits[name]:.3f}"] for name in ("model", "ngram") if name in bits]
        parts.append(table([f"bits per byte of {bits['bytes']:,} bytes", ""], rows))
    return "\n\n".join(parts) + "\n"


def _retrieval_table(rows: list[Trial]) -> str:
    """One line per kind; a column per length over all haystacks, then per haystack."""
    columns = list(dict.fromkeys((row["length"], row["haystack"]) for row in rows))
    columns.sort(key=lambda column: (column[1] != ALL, column))
    cells = {(row["kind"], row["length"], row["haystack"]): row for row in rows}
    lines = [
        [kind, *(_cell(cells.get((kind, *column)), column[1] == ALL) for column in columns)]
        for kind in dict.fromkeys(row["kind"] for row in rows)
    ]
    names = [f"{length:,}" + ("" if hay == ALL else f" {hay}") for length, hay in columns]
    return table(["exact match (95% interval), n", *names], lines)


def _depth_table(rows: list[Trial]) -> str:
    lengths = dict.fromkeys(row["length"] for row in rows)
    cells = {(row["length"], row["depth"]): row for row in rows}
    lines = [
        [f"{n:,}", *(_cell(cells.get((n, depth)), False) for depth in FIFTHS)] for n in lengths
    ]
    return table(["tokens, by depth", *FIFTHS], lines)


def _refusal_table(rows: list[Trial]) -> str:
    lines = [
        [
            f"{row['length']:,}",
            f"{row['absent']} of {row['n']}",
            f"{row['precision']:.3f}",
            f"{row['recall']:.3f}",
            _cell(row["present"], True),
        ]
        for row in rows
    ]
    return table(["tokens", "absent", "precision", "recall", "right where present"], lines)


def _cell(row: Trial | None, whole: bool) -> str:
    if row is None:
        return ""
    bounds = f" ({row['low']:.3f}-{row['high']:.3f}), {row['n']}" if whole else ""
    return f"{row['rate']:.3f}{bounds}"


def _grouped(trials: list[Trial], keys: tuple[str, ...]) -> dict[tuple, list[Trial]]:
    groups: dict[tuple, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(tuple(trial[key] for key in keys), []).append(trial)
    return groups


def _rates(trials: list[Trial], keys: tuple[str, ...]) -> list[Trial]:
    return [
        {**dict(zip(keys, values, strict=True)), **rate(trial["right"] for trial in group)}
        for values, group in _grouped(trials, keys).items()
    ]


def _misses(
    trials: list[Trial], keys: tuple[str, ...], missed: Callable[[Trial], bool], count: int
) -> list[Trial]:
    """The first `count` misses of each group."""
    groups = _grouped([trial for trial in trials if missed(trial)], keys)
    return [trial for group in groups.values() for trial in group[:count]]
