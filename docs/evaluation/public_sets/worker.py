"""Reads, asks and searches with the longctx of the Python that runs it; for installation.py.

Imports the standard library and `longctx` alone, since the installation may be an older one. Takes
one JSON object a line on standard input and gives one for each on standard output:

    {"do": "start", "library": FOLDER, "model": {...}}      model: arguments of `longctx.Model`
    {"do": "ingest", "paths": [...]}
    {"do": "ask", "documents": [...], "question": ..., "options": {...}}
    {"do": "find", "documents": [...], "question": ..., "options": {...}}

What fails with an error of longctx gives {"error": ..., "exit_code": ...}.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import longctx


def main():
    """Answers requests until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what libraries print must not stand among the answers
    library = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "start":
                library = started(request)
                reply = {"version": longctx.__version__, "code": code()}
            else:
                reply = DO[request["do"]](library, request)
        except longctx.LongctxError as error:
            reply = {"error": str(error), "exit_code": error.exit_code}
        out.write(json.dumps(reply) + "\n")


def started(request):
    """The library, with a model that stays in memory."""
    model = longctx.Model(**request["model"])
    return longctx.Library(request["library"], model=model, on_note=note)


def note(text):
    """Shows what people should know."""
    print(f"  {text}", file=sys.stderr, flush=True)


def ingest(library, request):
    """Reads files into a document that has the name of the first; nothing is done twice."""
    begun = time.perf_counter()
    try:
        document = library.ingest(*request["paths"])
    except longctx.UsageError:
        document = read_before(library, request["paths"])
        if document is None:
            raise
    return {
        "name": document.name,
        "tokens": document.tokens,
        "model": document.model,
        "seconds": round(time.perf_counter() - begun, 3),
    }


def read_before(library, paths):
    """The document that the same model made of the same files; None: there is none.

    longctx does not take a document that has lost text, such as a page that is a picture, for
    unchanged: it would read it once more, and refuses since it exists.
    """
    document = library.standing(*paths)
    if document is None or not all(map(os.path.isfile, paths)):
        return None
    known = document.as_dict()
    kept = [(one.get("origin") or one)["sha256"] for one in known["sources"]]
    if kept != [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths]:
        return None
    line = library.path.parent / "line.txt"  # what is made of it shows how this run reads
    if not line.exists():
        line.write_text("A line.\n", "utf-8")
    try:
        now = library.ingest(str(line)).as_dict()
    except longctx.UsageError:  # an earlier run read it in another way
        return None
    same = all(known[part] == now[part] for part in ("fingerprint", "method", "options"))
    return document if same else None


def ask(library, request):
    """The object of `longctx ask --json`."""
    asked = library.together(*request["documents"])
    return asked.ask(request["question"], **request["options"]).as_dict()


def find(library, request):
    """The object of `longctx find --json`."""
    asked = library.together(*request["documents"])
    return asked.find(request["question"], **request["options"]).as_dict()


def code():
    """SHA-256 of the package's Python files: two installations of one version may differ."""
    root, digest = Path(longctx.__file__).parent, hashlib.sha256()
    for folder in ("cli", "core", "kernels", "profiles"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


DO = {"ingest": ingest, "ask": ask, "find": find}

if __name__ == "__main__":
    main()
