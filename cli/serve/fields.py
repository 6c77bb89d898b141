"""The JSON object of a request, and its fields, each checked for its kind."""

import json
from typing import Any, NoReturn

from starlette.requests import Request

from longctx.cli.serve.errors import Refused

KINDS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "a boolean",
}
KINDS |= {dict: "an object", list: "a list"}


class Fields:
    """The fields of an object; null is as good as absent.

    Args:
        values: the object.
        within: its own name, for messages; empty: it is the request.
    """

    def __init__(self, values: dict[str, Any], within: str = ""):
        self._values, self._within = values, within

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """A field of any kind; None: it is absent."""
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        """A text."""
        return self._get(name, str)

    def whole(self, name: str) -> int | None:
        """A whole number."""
        return self._get(name, int)

    def number(self, name: str) -> float | None:
        """A number."""
        if isinstance(self._values.get(name), int):
            return self._get(name, int)
        return self._get(name, float)

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        return self._get(name, bool)

    def fields(self, name: str) -> "Fields":
        """An object, empty where it is absent."""
        return Fields(self._get(name, dict) or {}, self._path(name))

    def items(self, name: str) -> list[Any]:
        """A list, empty where it is absent."""
        return self._get(name, list) or []

    def texts(self, name: str) -> tuple[str, ...]:
        """A text, or a list of texts; empty where it is absent."""
        value = self._values.get(name)
        if isinstance(value, str):
            return (value,)
        texts = self.items(name)
        if not all(isinstance(text, str) for text in texts):
            self.refuse(name, "must be a text or a list of texts")
        return tuple(texts)

    def required(self, name: str) -> str:
        """A text that must be there, and not be empty."""
        text = self.text(name)
        if text is None or not text.strip():
            self.refuse(name, "is missing")
        return text

    def require_known(self, *names: str) -> None:
        """Refuses a field of another name.

        Raises:
            Refused: 400.
        """
        for name in self._values.keys() - {*names}:
            self.refuse(name, f"is not known; known are {', '.join(names)}")

    def refuse(self, name: str, why: str) -> NoReturn:
        """Refuses the request for one of its fields.

        Raises:
            Refused: 400.
        """
        path = self._path(name)
        raise Refused(400, f"{path!r} {why}", "invalid_value", path)

    def _get(self, name: str, kind: type) -> Any:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.refuse(name, f"must be {KINDS[kind]}")
        return value

    def _path(self, name: str) -> str:
        return f"{self._within}.{name}" if self._within else name


async def read(request: Request) -> Fields:
    """The object that a request holds.

    Raises:
        Refused: 415 for another kind of content (which pages of other sites may send unasked), 400
            for what is no JSON object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "send JSON, with Content-Type: application/json", "wrong_content_type")
    try:
        values = json.loads(await request.body(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "the request is not valid JSON in UTF-8", "invalid_json") from error
    if not isinstance(values, dict):
        raise Refused(400, "the request must be a JSON object", "invalid_json")
    return Fields(values)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
