"""A literal transcription of how passages are gathered: sets of tokens, and loops.

It knows the rules as docs/commands.md tells them, and nothing of the code.
"""

from collections.abc import Callable

Passage = tuple[int, int, int]  # first token, end, source
Run = tuple[int, int]


def runs_of(tokens: set[int], source_of: Callable[[int], int]) -> list[Run]:
    """Runs of tokens of one source each, in order."""
    found: list[Run] = []
    for token in sorted(tokens):
        if found and found[-1][1] == token and source_of(token) == source_of(token - 1):
            found[-1] = found[-1][0], token + 1
        else:
            found.append((token, token + 1))
    return found


def chosen(
    passages: list[Passage],
    scores: list[float],
    count: int,
    most: int | None,
    size: Callable[[Run], int],
) -> list[Run]:
    """The runs of passages, best first; the best passage fits.

    Passages come best first, of equal ones the first. One that would bring more tokens than `count`
    is passed over, 17 of these in a row are the end, and so is one that would begin a run more than
    the most. Neighbours of one source are one run.
    """
    best_first = sorted(range(len(passages)), key=lambda number: (-scores[number], number))
    source_of = {t: s for first, end, s in passages for t in range(first, end)}.__getitem__
    taken: set[int] = set()
    passed = 0
    kept: list[int] = []
    for number in best_first:
        first, end, source = passages[number]
        before = runs_of(taken, source_of)
        more = taken | set(range(first, end))
        after = runs_of(more, source_of)
        touches = any(a <= end and first <= b and source_of(a) == source for a, b in before)
        if not touches and most is not None and len(before) == most:
            break
        if sum(map(size, after)) <= count:
            taken, passed = more, 0
            kept.append(number)
        else:
            passed += 1
        if passed == 17:
            break
    runs = runs_of(taken, source_of)

    def rank(run: Run) -> int:
        inside = [n for n in kept if run[0] <= passages[n][0] and passages[n][1] <= run[1]]
        return min(best_first.index(number) for number in inside)

    return sorted(runs, key=rank)
