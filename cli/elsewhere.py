"""Commands as other programs call them, for the message about a command that there is not."""

MEANT = {
    **dict.fromkeys(("delete", "del", "remove", "erase", "drop"), "rm"),
    **dict.fromkeys(("search", "grep", "query", "lookup"), "find"),
    **dict.fromkeys(("ls", "documents", "docs", "all"), "list"),
    **dict.fromkeys(("add", "read", "index", "load", "insert"), "ingest"),
    **dict.fromkeys(("chat", "answer", "question", "run"), "ask"),
    **dict.fromkeys(("mv", "move"), "rename"),
    **dict.fromkeys(("info", "inspect", "cat", "stat"), "show"),
    **dict.fromkeys(("check", "fsck", "test"), "verify"),
    **dict.fromkeys(("clean", "prune", "compact", "vacuum"), "gc"),
    **dict.fromkeys(("models", "download", "pull"), "model"),
    **dict.fromkeys(("status", "env", "version", "diagnose"), "doctor"),
    **dict.fromkeys(("save", "backup", "dump"), "export"),
    "restore": "import",
}
