"""Values to be copied letter by letter: codes, keys, UUIDs, versions, telephone numbers, rooms."""

import string
import uuid

from longctx.profiles.recipe.data.values.names import Names
from longctx.profiles.recipe.data.values.plain import Words


class Codes(Names, Words):
    """Makes codes and keys, some of them of words."""

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

    def make_key(self) -> str:
        """A key of a table: a hyphened pair, a word, a number, a code."""
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
