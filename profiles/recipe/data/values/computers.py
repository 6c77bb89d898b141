"""Values from computers: addresses, hosts, paths, files, names in programs, log levels."""

from longctx.profiles.recipe.data.values.names import Names
from longctx.profiles.recipe.data.values.plain import Words

TOPLEVEL = ["com", "org", "net", "io", "dev", "co.uk", "de", "edu"]
ENDINGS = ["txt", "log", "py", "yaml", "csv", "db", "conf", "json"]
LEVELS = ["INFO", "WARN", "ERROR", "DEBUG", "info", "warning", "notice"]


class Computers(Names, Words):
    """Makes what stands in source files, settings and logs."""

    def make_ip(self) -> str:
        """An address."""
        return ".".join(str(self.rng.randint(1, 254)) for _ in range(4))

    def make_email(self) -> str:
        """A mail address."""
        return f"{self.make_first().lower()}.{self.make_last().lower()}@{self.make_domain()}"

    def make_domain(self) -> str:
        """A host on the net."""
        return f"{self.syllables(1, 2)}.{self.pick(TOPLEVEL)}"

    def make_host(self) -> str:
        """A machine's name."""
        kinds = ["web", "db", "node", "cache", "mail", "worker", self.make_noun()]
        return f"{self.pick(kinds)}-{self.digits(1, 3)}"

    def make_path(self) -> str:
        """A file's path."""
        home = "/home/" + self.make_first().lower()
        folder = self.pick(["/var/log", "/srv", "/etc", home, "src", "data", "/opt"])
        end = self.pick(ENDINGS)
        return f"{folder}/{self.make_noun()}/{self.make_noun()}_{self.make_noun()}.{end}"

    def make_file(self) -> str:
        """A file's name."""
        end = self.pick(["py", "txt", "csv", "json", "md", "cfg"])
        return f"{self.make_noun()}_{self.make_noun()}.{end}"

    def make_const(self) -> str:
        """A constant's name."""
        return "_".join(self.make_noun().upper() for _ in range(self.rng.randint(1, 3)))

    def make_var(self) -> str:
        """A variable's name."""
        if self.rng.random() < 0.35:
            return self.pick(
                [self.letters(self.rng.randint(1, 5)), self.letters(2) + self.digits(1, 2)]
            )
        return "_".join(self.make_noun() for _ in range(self.rng.randint(1, 3)))

    def make_func(self) -> str:
        """A function's name."""
        return f"{self.make_verb()}_{self.make_noun()}"

    def make_level(self) -> str:
        """A log level."""
        return self.pick(LEVELS)
