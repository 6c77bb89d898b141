"""What is tried, case by case, and what must be true after each.

A case is a dictionary that says all: done again it is the same case, but for the order of threads.
"""

import errno
import functools
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from crash.disk import Cut, Disk, Tree, cuts, put, tree_of
from crash.layer import CHANGES, GROWS, Plan, Record, read_journal
from crash.process import Ended, Job, arguments, described
from crash.scenes import SCENES, Content, Scene, Stage, beside, content, documents, named

LOCKS = ("/locks/", "/.lock")
UNFINISHED = "library/unfinished"
USAGE, NOT_FOUND, LOCKED = 2, 10, 11


class Wrong(Exception):
    """What must be true is not."""


def require(true: object, why: str) -> None:
    """Raises Wrong."""
    if not true:
        raise Wrong(why)


def do(case: dict, stage: Stage, scratch: Path) -> dict:
    """Does a case.

    Returns:
        `failed`: why it failed, empty if it did not; and what else is worth telling.
    """
    place = scratch / "case"
    try:
        return KINDS[case["kind"]](case, stage, place) or {}
    except Wrong as wrong:
        return {"failed": str(wrong)}
    finally:
        if not case.get("keep"):
            shutil.rmtree(place, ignore_errors=True)


# --- what must be true ---


def versions(scene: Scene, stage: Stage) -> set[Content]:
    """All that a document may be that the scene touches."""
    worlds = [stage.base(scene.base), stage.left(scene)]
    worlds += [stage.left(SCENES[name]) for name in scene.also]
    found: set[Content] = set()
    for world in worlds:
        there = world / "library" / "documents"
        for name in scene.touched:
            if (there / name).is_dir():
                found.add(content(there / name, named))
    return found


def require_sound(scene: Scene, stage: Stage, world: Path) -> None:
    """Of a library in which the command was cut off: all that was finished is there, and whole."""
    from longctx.core.common.errors import LongctxError
    from longctx.core.store.library import Library

    library = world / "library"
    before = documents(stage.base(scene.base) / "library")
    if scene.base == "empty" and not (library / "library.json").exists():
        try:
            Library.open(library)
        except LongctxError as error:
            require(error.exit_code == NOT_FOUND, f"what is there is no library: {error}")
        return
    store = Library.open(library)
    names = set(store.names())
    for name, was in before.items():
        if name not in scene.touched:
            require(name in names, f"'{name}' is lost")
            require(_content(library, name) == was or scene.base == "garbage", f"'{name}' changed")
            require(_content(library, name, named) == _as_named(was), f"'{name}' changed")
    after = set(documents(stage.left(scene) / "library"))
    allowed = versions(scene, stage)
    for name in scene.touched:
        if name in names:
            store.document(name).verify()
            require(_content(library, name, named) in allowed, f"'{name}' is neither old nor new")
        elif name in before:
            require(name not in after, f"'{name}' is lost")
            new = set(scene.touched) & after - set(before)
            require(new <= names, f"'{name}' is gone and {new} not there")
    require(names <= set(before) | set(scene.touched), f"there are {names}")
    for manifest in store.documents():
        if manifest.status == "reading" and manifest.tokens:
            store.document(manifest.name, partial=True).verify()
        if manifest.status == "damaged":
            there = library / "unfinished" / manifest.name / "manifest.json"
            require(not there.exists(), f"'{manifest.name}' is damaged: {manifest.report}")
    _require_half(scene, stage, library)


def _require_half(scene: Scene, stage: Stage, library: Path) -> None:
    """The reading that was stopped before is what it was."""
    half = stage.base(scene.base) / "library" / "unfinished" / "half"
    if half.exists():
        same = tree_of(half) == tree_of(library / "unfinished" / "half")
        require(same, "the reading that was stopped before has changed")


def _content(library: Path, name: str, names: Callable | None = None) -> Content:
    folder = library / "documents" / name
    return content(folder if folder.is_dir() else library / "unfinished" / name, names)


def _as_named(was: Content) -> Content:
    """Without files that the manifest does not name."""
    manifest = json.loads(dict(was)["manifest.json"])
    kept = {*named(manifest), "manifest.json"}
    return tuple((name, data) for name, data in was if name in kept)


def is_final(
    scene: Scene, stage: Stage, world: Path, names: Callable[[dict], set[str]] | None = None
) -> bool:
    """Whether the documents, and what lies beside the library, are as an undisturbed one left them.

    Args:
        scene, stage: which.
        world: what is looked at.
        names: which files of a document count; None: all.
    """
    expected, found = stage.left(scene), world
    old, new = (documents(world / "library", names) for world in (expected, found))
    return old == new and beside(expected) == beside(found)


def require_again(scene: Scene, stage: Stage, place: Path) -> Ended:
    """The same command again ends as if nothing had been; and nothing is left lying about."""
    world = place / "world"
    was_final = is_final(scene, stage, world) or _is_waiting(scene, stage, world)
    again = stage.job(scene, place).run()
    fine = again.code == 0 or (was_final and again.code in (USAGE, NOT_FOUND))
    require(fine, f"the same command again failed: {described(again)}")
    cleared = stage.command(place, "gc")
    require(cleared.code == 0, f"gc failed: {described(cleared)}")
    if not is_final(scene, stage, world):
        raise Wrong(f"the same command again ends otherwise: {_difference(scene, stage, world)}")
    _require_half(scene, stage, world / "library")
    kept = {"half"} if (stage.base(scene.base) / "library/unfinished/half").exists() else set()
    unfinished = world / "library" / "unfinished"
    left = {path.name for path in unfinished.iterdir()} if unfinished.is_dir() else set()
    require(left == kept, f"unfinished/ has {left}")
    lying = [str(path.relative_to(world)) for path in (world / "library").rglob(".tmp*")]
    require(not lying, f"gc left {lying}")
    return again


def _is_waiting(scene: Scene, stage: Stage, world: Path) -> bool:
    """Whether only the last renaming of a document is left to do, which any command does."""
    library, expected = world / "library", documents(stage.left(scene) / "library")
    waiting = [name for name in scene.touched if (library / "unfinished" / name).is_dir()]
    there = all((library / "unfinished" / n / "manifest.json").is_file() for n in waiting)
    if not waiting or not there:
        return False
    found = {**documents(library), **{name: _content(library, name) for name in waiting}}
    return found == expected


def _difference(scene: Scene, stage: Stage, world: Path) -> str:
    expected = documents(stage.left(scene) / "library")
    found = documents(world / "library")
    told = [f"documents {sorted(found)} not {sorted(expected)}"]
    for name in expected.keys() & found.keys():
        old, new = dict(expected[name]), dict(found[name])
        told += [f"{name}/{f}" for f in old.keys() | new.keys() if old.get(f) != new.get(f)]
    return ", ".join(told)


def require_documented(ended: Ended) -> None:
    """An exit code of ours, with an error of ours."""
    from longctx.cli.exit_codes import EXIT_CODES

    require(ended.code in EXIT_CODES, f"exit code {ended.code}: {described(ended)}")
    for word in ("Traceback", "internal error", "Exception ignored"):
        require(word not in ended.err + ended.out, f"{word}: {described(ended)}")
    require(ended.code == 0 or (ended.err + ended.out).strip(), f"nothing told: {described(ended)}")


# --- kills ---


def kill(case: dict, stage: Stage, place: Path) -> dict:
    """Killed just before an operation, or within it: a write half done, any other just done."""
    scene = SCENES[case["scene"]]
    stage.begin(scene, place)
    number = int(case["at"] * stage.operations(scene))
    mode = "kill_within" if case["within"] else "kill_before"
    killed = stage.job(scene, place, Plan(place / "world", None, mode, number)).run()
    reached = killed.code == -9
    require(reached or killed.code == 0, described(killed))
    require_sound(scene, stage, place / "world")
    require_again(scene, stage, place)
    return {"killed": f"{killed.told.kind} {killed.told.path.rpartition('/')[2]}"}


# --- power ---


def power(case: dict, stage: Stage, place: Path) -> dict:
    """All states, or one, that a disk may hold after a power cut during a command."""
    scene = SCENES[case["scene"]]
    tree = tree_of(stage.base(scene.base))
    records = _recorded(scene, stage, place)
    wanted, tried, failed = case.get("state"), 0, []
    share, shares = case.get("share", 0), case.get("shares", 1)
    promised = kept_at(tree, records, scene)
    for index, cut in enumerate(cuts(tree, records, promised, case["random"], case["seed"])):
        if (wanted and cut.name != wanted) or (not wanted and index % shares != share):
            continue
        tried += 1
        stage.begin(scene, place)
        put(cut.tree, place / "world")
        try:
            if scene.follows:
                grown = "later.log" if _had_grown(stage, place, cut) else "middle.log"
                shutil.copyfile(stage.sources / grown, place / "growing.log")
            require_sound(scene, stage, place / "world")
            require_kept(scene, stage, place / "world", promised[cut.place], cut.over)
            require_again(scene, stage, place)
        except Exception as wrong:
            failed.append(f"state {cut.name}: {type(wrong).__name__}: {wrong}")
    first = "\n".join(failed[:3])
    told = f"{len(failed)} of {tried} states failed: {first}" if failed else ""
    return {"failed": told, "states": tried, "failed_states": len(failed)}


def _had_grown(stage: Stage, place: Path, cut: Cut) -> bool:
    """Whether the file that is followed had grown by then: surely, if any of the rest is kept."""
    found = (place / "world/library").glob("*/book/manifest.json")  # complete, or still aside
    sources = [source for file in found for source in json.loads(file.read_bytes())["sources"]]
    size = max((source["size"] for source in sources), default=0)
    return size > (stage.sources / "middle.log").stat().st_size or bool(cut.place % 2)


def _recorded(scene: Scene, stage: Stage, place: Path) -> list[Record]:
    """What the undisturbed command did; here, where the file that is followed has its path."""
    if not scene.follows:
        return list(read_journal(stage.journal(scene), stage.root(scene)))
    stage.begin(scene, place)
    journal = place.with_name("journal")
    journal.unlink(missing_ok=True)
    ended = stage.job(scene, place, Plan(place / "world", journal)).run()
    require(ended.code == 0, described(ended))
    return list(read_journal(journal, place / "world"))


def kept_at(tree: Tree, records: list[Record], scene: Scene) -> list[dict[str, int]]:
    """Before each operation, and at the end: tokens of checkpoints that were written till then.

    One is written when the folder with its manifest is synced, which is the last that it does.
    """
    disk, found, promised = Disk(tree), [], {}
    for record in records:
        found.append(dict(promised))
        disk.apply(record)
        place, _, name = (record.path or "").rpartition("/")
        if record.kind == "sync" and place == UNFINISHED and name in scene.touched:
            manifest = disk.seen().get(f"{record.path}/manifest.json")
            promised[name] = json.loads(manifest)["tokens"] if manifest else 0
        if record.kind == "rename" and place == UNFINISHED:  # becomes a document, or steps aside
            promised.pop(name, None)
    return [*found, promised]


def require_kept(
    scene: Scene, stage: Stage, world: Path, promised: dict[str, int], over: bool
) -> None:
    """What was finished or saved before the power failed is there."""
    if over and scene.name != "gc":  # what is not deleted does no harm
        lost = "the command had ended, and what it did is lost"
        require(is_final(scene, stage, world, named), lost)
    after = documents(stage.left(scene) / "library")
    for name, tokens in promised.items():
        there = world / "library" / "unfinished" / name / "manifest.json"
        kept = json.loads(there.read_bytes())["tokens"] if there.exists() else 0
        done = name in after and documents(world / "library").get(name) == after[name]
        if not done:
            require(kept >= tokens, f"of '{name}' {tokens} tokens had been saved, {kept} are there")


# --- faults ---


def fault(case: dict, stage: Stage, place: Path) -> dict:
    """An operation fails, once or from there on."""
    scene = SCENES[case["scene"]]
    stage.begin(scene, place)
    mode = "fail_on" if case["on"] else "fail_once"
    kinds = GROWS if case["error"] == "ENOSPC" else CHANGES
    kinds = tuple(case.get("kinds", kinds))
    error = getattr(errno, case["error"])
    world = place / "world"
    ended = stage.job(scene, place, Plan(world, None, mode, case["number"], kinds, error)).run()
    hit = f"{ended.told.kind} {ended.told.path.partition('world/')[2]}"
    try:
        require_documented(ended)
        if ended.code == 0 and ended.told.hits:
            lock = any(word in f"{ended.told.path}" for word in LOCKS)
            harmless = lock or ended.told.kind in ("unlink", "rmdir", "meta", "close")
            require(harmless or ended.told.kind != "sync", f"a failed {hit} is not told")
            require(is_final(scene, stage, world), f"done, it says, after a failed {hit}")
        require_sound(scene, stage, world)
        require_again(scene, stage, place)
    except Wrong as wrong:
        raise Wrong(f"{hit}: {wrong}") from wrong
    return {"hit": bool(ended.told.hits), "code": ended.code, "on": hit, "seen": ended.told.seen}


def memory(case: dict, stage: Stage, place: Path) -> dict:
    """No more memory than so much: an error of ours, or a death that harms nothing."""
    scene = SCENES[case["scene"]]
    stage.begin(scene, place)
    ended = stage.job(scene, place, room=case["room"]).run()
    if ended.code >= 0:
        require_documented(ended)
        require(ended.code or is_final(scene, stage, place / "world"), "done, it says")
    require_sound(scene, stage, place / "world")
    require_again(scene, stage, place)
    return {"code": ended.code}


def full(case: dict, stage: Stage, place: Path) -> dict:
    """On a disk without a free byte, what only deletes does so."""
    scene = SCENES[case["scene"]]
    stage.begin(scene, place)
    plan = Plan(place / "world", None, "fail_on", 0, GROWS, errno.ENOSPC)
    ended = stage.job(scene, place, plan).run()
    require(ended.code == 0, described(ended))
    require(is_final(scene, stage, place / "world"), "not all was deleted")
    return {}


# --- flips ---

QUESTION = "which boat came home on line 7?"
ASKED = ("ask", "find")


def words_of(command: str) -> tuple[str, ...]:
    """A question to the document `book`."""
    if command == "ask":
        return "ask", QUESTION, "--doc", "book"
    return "find", "boat 553", "--doc", "book", "--gather-by", "bm25"


def ask(command: str, stage: Stage, place: Path) -> Ended:
    """Asks `book`."""
    job = stage.job(Scene("", words_of(command)), place)
    if command == "ask":
        job.argv += arguments(stage.model, further=False)
    return job.run()


@functools.cache
def truths(folder: Path, model: Path, place: Path) -> dict[str, str]:
    """What is answered from a library in which nothing is wrong."""
    stage = Stage(folder, model)
    stage.begin(SCENES["ingest"], place)
    found = {command: ask(command, stage, place) for command in ASKED}
    for ended in found.values():
        require(ended.code == 0 and ended.out.strip(), described(ended))
    return {command: ended.out for command, ended in found.items()}


def flip(case: dict, stage: Stage, place: Path) -> dict:
    """A bit of a file flips: whoever reads it gets the truth, or an error."""
    chance = chosen(case["seed"], case["index"])
    true = truths(stage.folder, stage.model, place)
    scene = SCENES["ingest"]
    stage.begin(scene, place)
    library = place / "world" / "library"
    files = [p for p in sorted(library.rglob("*")) if p.is_file() and p.stat().st_size]
    file = chance.choice([p for p in files if "locks" not in p.parts])
    data = bytearray(file.read_bytes())
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    where = f"{file.relative_to(library)} byte {at}"
    checked = stage.command(place, "verify")
    require_documented(checked)
    caught = checked.code != 0
    for command in () if {"other", "half"} & {*file.parts} else ASKED:
        ended = ask(command, stage, place)
        require_documented(ended)
        caught |= ended.code != 0
        fine = ended.code or ended.out == true[command]
        require(fine, f"{where}: {command} answers otherwise: {described(ended)}")
    if "half" in file.parts:
        caught |= _require_half_whole(stage, place, where)
    return {"caught": caught, "file": file.name.partition("-")[0]}


def _require_half_whole(stage: Stage, place: Path, where: str) -> bool:
    """A damaged checkpoint is refused, or gone on with to the same document."""
    whole = stage.left(SCENES["ingest"]) / "library" / "documents" / "new"  # of the same parts
    words = ("ingest", *SCENES["ingest"].argv[1:3], "--name", "half", "--checkpoint", "96")
    ended = stage.command(place, *words, reads=True)
    require_documented(ended)
    if ended.code == 0:
        done = place / "world" / "library" / "documents" / "half"
        require(content(done) == content(whole), f"{where}: goes on to another document")
    return ended.code != 0


# --- pairs ---

TOGETHER = {
    **{name: scene for name, scene in SCENES.items() if name not in ("first", "further")},
    "verify": Scene("verify", ("verify",)),
    "list": Scene("list", ("list",)),
    "show": Scene("show", ("show", "book")),
    "ask": Scene("ask", (*words_of("ask"), "--threads", "1")),
    "find": Scene("find", words_of("find")),
}


def _job(name: str, stage: Stage, place: Path, delay: float = 0.0) -> Job:
    job = stage.job(TOGETHER[name], place, delay=delay)
    if name == "ask":
        job.argv += arguments(stage.model, further=False)[:-2]
    return job


@functools.cache
def one_by_one(
    folder: Path, model: Path, place: Path, first: str, second: str
) -> tuple[tuple[Ended, ...], dict[str, Content]]:
    """What two commands, or one, leave after another; how each ended, and the documents."""
    stage = Stage(folder, model)
    stage.begin(SCENES["gc"], place)
    ended = tuple(_job(name, stage, place).run() for name in (first, second) if name)
    return ended, documents(place / "world" / "library", named)


def pair(case: dict, stage: Stage, place: Path) -> dict:
    """Two commands at once, in a library with garbage: the end is one that some order gives."""
    chance = chosen(case["seed"], case["index"])
    names = case["pair"]
    key = stage.folder, stage.model, place
    orders = [one_by_one(*key, *names), one_by_one(*key, *reversed(names))]
    orders[1] = tuple(reversed(orders[1][0])), orders[1][1]
    stage.begin(SCENES["gc"], place)
    delays = [chance.choice([0.0, chance.uniform(0, 0.5)]) for _ in names]
    jobs = [_job(n, stage, place, d).start() for n, d in zip(names, delays, strict=True)]
    ends = [job.wait() for job in jobs]
    for ended in ends:
        require_documented(ended)
    world = place / "world"
    checked = stage.command(place, "verify")
    require(checked.code == 0, f"afterwards: {described(checked)}")
    found = documents(world / "library", named)
    told = "; ".join(described(ended) for ended in ends)
    codes = [ended.code for ended in ends]
    allowed = [left for order, left in orders if [e.code for e in order] == codes]
    alone = {name: one_by_one(*key, name, "") for name in names}
    if codes[0] and codes[1]:
        allowed.append(one_by_one(*key, "", "")[1])
    for this, other in ((0, 1), (1, 0)):
        if codes[other] and not codes[this]:
            allowed.append(alone[names[this]][1])
    require(allowed, f"no order gives these codes: {told}")
    require(found in allowed, f"no order gives {sorted(found)}: {told}")
    for index, ended in enumerate(ends):
        if names[index] in ASKED and ended.code == 0:
            answers = {order[index].out for order, _ in orders}
            require(ended.out in answers, f"{names[index]} answers otherwise: {described(ended)}")
    return {"codes": codes}


def chosen(seed: int, index: int) -> random.Random:
    """The dice of a case."""
    return random.Random(f"{seed}:{index}")


KINDS = {"kill": kill, "power": power, "fault": fault, "memory": memory, "full": full}
KINDS |= {"flip": flip, "pair": pair}
