"""Values to be copied letter by letter: codes, keys, and values from programs and logs."""

import string
import uuid

from longctx.profiles.recipe.data.values.draws import one_of
from longctx.profiles.recipe.data.values.names import Names, Words

TOPLEVEL = ["com", "org", "net", "io", "dev", "co.uk", "de", "edu"]
ENDINGS = ["txt", "log", "py", "yaml", "csv", "db", "conf", "json"]
LEVELS = ["INFO", "WARN", "ERROR", "DEBUG", "info", "warning", "notice"]


class Codes(Names, Words):
    """Makes codes and keys, some of them from words."""

    def make_code(self) -> str:
        """A code of letters and digits."""
        r = self.rng.randint
        return self.pick(
            [
                f"{self.letters(r(1, 4))}-{self.digits(2, 5)}",
                f"{self.letters(r(2, 3))}{self.digits(2, 5)}",
                f"{self.digits(2, 4)}-{self.letters(r(1, 3))}",
                f"{self.letters(2)}-{self.digits(3, 3)}-{self.letters(2)}",
                f"{self.digits(2, 3)}-{self.digits(2, 4)}",
                self.letters(r(5, 9), string.ascii_uppercase + string.digits),
                f"{self.make_noun()}-{self.digits(1, 3)}",
                f"{self.make_adj()}-{self.make_noun()}",
            ]
        )

    def make_serial(self) -> str:
        """A number or code by which a thing is known: groups of letters, digits or words."""
        count = self.rng.choice([1, 2, 2, 2, 3, 3])
        groups = [self._group(short=count > 1) for _ in range(count)]
        return self.pick(["-", "-", "/", ".", "_", ":", " "]).join(groups)

    def _group(self, short: bool) -> str:
        chance, most = self.rng.random(), 4 if short else 7
        if chance < 0.5:
            return self.digits(1 if short else 3, most)
        if chance < 0.65:
            return self.letters(self.rng.randint(1, 3)) + self.digits(1, most - 1)
        if chance < 0.8:
            return self.letters(self.rng.randint(1 if short else 3, most))
        if chance < 0.88:
            return self.letters(self.rng.randint(4, 8), "0123456789abcdef")
        return self.make_noun() if short else f"{self.make_adj()}-{self.make_noun()}"

    def make_key(self) -> str:
        """A key of a table: a hyphenated pair, a word, a number, a code."""
        pair = f"{self.make_adj()}-{self.make_noun()}"
        return self.pick(
            [
                pair,
                pair,
                self.make_word(),
                self.digits(4, 7),
                self.make_code(),
                self.make_uuid(),
                self.make_name(),
            ]
        )

    def make_uuid(self) -> str:
        """A UUID."""
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def make_hex(self) -> str:
        """Hexadecimal digits."""
        return self.pick(["", "", "0x"]) + self.letters(self.rng.randint(6, 16), "0123456789abcdef")

    def make_version(self) -> str:
        """A version number."""
        return ".".join(str(self.rng.randint(0, 30)) for _ in range(self.rng.randint(2, 3)))

    def make_phone(self) -> str:
        """A telephone number."""
        return (
            f"{self.digits(3, 4)}-{self.digits(3, 4)}"
            if self.rng.random() < 0.6
            else f"+{self.digits(2, 2)} {self.digits(6, 9)}"
        )

    def make_room(self) -> str:
        """A room, seat or gate."""
        return self.pick(
            [
                self.digits(1, 3),
                f"{self.letters(1)}{self.digits(1, 2)}",
                f"{self.digits(1, 2)}{self.letters(1)}",
            ]
        )

    def make_plate(self) -> str:
        """A registration plate."""
        return f"{self.letters(2)} {self.digits(3, 4)} {self.letters(1)}"


class Computers(Names, Words):
    """Makes values found in source files, settings and logs."""

    make_level = one_of(LEVELS)

    def make_ip(self) -> str:
        """An IP address."""
        return ".".join(str(self.rng.randint(1, 254)) for _ in range(4))

    def make_email(self) -> str:
        """An e-mail address."""
        return f"{self.make_first().lower()}.{self.make_last().lower()}@{self.make_domain()}"

    def make_domain(self) -> str:
        """A host on the internet."""
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

    def make_port(self) -> str:
        """A port of a client."""
        return str(self.rng.randint(1025, 65000))
