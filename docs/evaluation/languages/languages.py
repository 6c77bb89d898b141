"""How often `find` has the right passage among the first four, in four languages.

    python docs/evaluation/languages/languages.py FOLDER --library NEW [--gather-by bm25]

Sixty questions, fifteen in each language, about manuals from these packages of Debian 12:
debian-reference-de, -fr and -ja (2.100; GPL), developers-reference-de, -ja and -ru (12.18; GPL),
debian-faq-fr (11.1; GPL) and maint-guide-ru (1.2.53; GPL). The other two guides are there to make
the search harder: maint-guide-de, -fr and -ja, and developers-reference-fr. FOLDER has a folder for
each language, with the packages' text files:

    apt-get download debian-reference-de ...; dpkg -x debian-reference-de_2.100_all.deb de.unpacked
    zcat de.unpacked/usr/share/debian-reference/debian-reference.de.txt.gz \
        > FOLDER/de/debian-reference.de.txt
    zcat .../usr/share/developers-reference/de/developers-reference.txt.gz \
        > FOLDER/de/developers-reference.de.txt
    zcat .../usr/share/doc/maint-guide-de/maint-guide.de.txt.gz > FOLDER/de/maint-guide.de.txt
    zcat .../usr/share/doc/debian/FAQ/debian-faq.fr.txt.gz > FOLDER/fr/debian-faq.fr.txt

The folder of each language is one document. A passage is right if it has the byte at which the
answer begins. Prints Markdown, and with `--missed` what was missed.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from longctx.core.measure.intervals import wilson

HERE = Path(__file__).parent
LANGUAGES = ("de", "fr", "ru", "ja")


def longctx(*words: str) -> str:
    """What a command prints on standard output."""
    command = [sys.executable, "-m", "longctx", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def is_right(passage: dict, where: dict) -> bool:
    """Whether a passage has the place of the answer."""
    same = Path(passage["source"]).name == where["path"]
    return same and passage["start"] <= where["byte_offset"] < passage["end"]


def main() -> None:
    """Ingests what the library lacks, asks and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--library", required=True)
    parser.add_argument("--method", default="truncate", help="reading method; by default truncate")
    parser.add_argument("--gather-by", help="what chooses passages; by default the command's")
    parser.add_argument("-k", default=4, type=int, help="passages that count")
    parser.add_argument("--missed", action="store_true", help="print the questions missed")
    given = parser.parse_args()
    os.environ["LONGCTX_LIBRARY"] = given.library
    chosen = ["--gather-by", given.gather_by] if given.gather_by else []
    print(f"| language | right among the first {given.k} | first | 95% |\n|---|---|---|---|")
    counts = []
    for language in LANGUAGES:
        if not (Path(given.library) / "documents" / language).exists():
            texts = sorted(map(str, (given.folder / language).glob("*.txt")))
            longctx("ingest", *texts, "--name", language, "--method", given.method)
        lines = (HERE / f"{language}.questions.jsonl").read_text("utf-8").splitlines()
        ranks = []
        for one in map(json.loads, lines):
            asked = ["find", one["question"], "--doc", language, "--json", "-k", str(given.k)]
            passages = json.loads(longctx(*asked, *chosen))["passages"]
            right = [is_right(passage, one["where"]) for passage in passages]
            ranks.append(right.index(True) if any(right) else None)
            if given.missed and ranks[-1] is None:
                print(f"missed: {one['question']} ({one['answers'][0]})", file=sys.stderr)
        counts += ranks
        print(row(language, ranks))
    print(row("**all**", counts))


def row(name: str, ranks: list[int | None]) -> str:
    """A row of the table."""
    right, total = sum(rank is not None for rank in ranks), len(ranks)
    low, high = wilson(right, total)
    return f"| {name} | {right} of {total} | {ranks.count(0)} | {low:.0%} to {high:.0%} |"


if __name__ == "__main__":
    main()
