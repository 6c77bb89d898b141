"""Which line defines a name: names that a query asks for, and how surely a line defines one.

By their looks alone: `def`, `class`, `#define` and the like, assignments, keys of configuration
files, headings. No program is parsed.
"""

import re
from functools import lru_cache

# Words around a name in a query that asks where it is defined.
_ASKS = frozenset(
    re.findall(
        r"\S+",
        "where what is are was the a an of to in for does do find show how it this that they "
        "define defines defined definition declare declares declared declaration "
        "implement implements implemented implementation set "
        "def class function method variable constant macro struct type module setting option "
        "parameter key",
    )
)
_DEFINES = frozenset(word for word in _ASKS if word.startswith(("defin", "declar", "implement")))
_AROUND = "?!.,:;`'"  # marks around words of a query
_NAME = re.compile(r"-{0,2}[^\W\d]\w*(?:(?:\.|::|-|/)\w+)*")
_IDENTIFIER = re.compile(r"\w_+\w|[^\W\d_A-Z][A-Z]|\w(?:\.|::)\w|^__|[^\W\d_]\d")

_MODIFIERS = (
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|unsafe"
    r"|pub(?:\([^)]*\))?|extern|inline|virtual|override|declare|local|readonly|open|sealed)\s+)*"
)
_KEYWORDS = (
    r"(?:def|class|function\*?|func(?:\s*\([^)]*\))?|fn|fun|sub|struct|enum|union|interface|trait"
    r"|type|typedef|module|namespace|package|macro_rules!|record|protocol|message|service|const"
    r"|let(?:\s+mut)?|var|val|alias|create\s+(?:or\s+replace\s+)?(?:table|view|function|index)"
    r"(?:\s+if\s+not\s+exists)?)"
)
_NO_TYPE = r"(?!(?:return|else|if|elif|while|for|throw|await|yield|print|from|import|assert|raise"
_NO_TYPE += r"|del|not|new|goto|case|delete)\b)"
KEYWORD, ASSIGNED, KEY, ARGUMENT = 4, 3, 2, 1


def name_asked(query: str) -> str:
    """The name whose definition a query asks for; empty if it asks for none.

    It is the whole query, or the only word of it besides words such as `where is ... defined`. A
    word without the look of an identifier has to be alone, or next to `defined` and the like.
    """
    words = [word.strip(_AROUND).removesuffix("()") for word in query.split()]
    names = [word for word in words if word.lower() not in _ASKS]
    if len(words) == 1:
        names = words
    if len(names) != 1 or not _NAME.fullmatch(names[0]):
        return ""
    asked = len(words) == 1 or _DEFINES & {word.lower() for word in words}
    return names[0] if asked or is_identifier(names[0]) else ""


def is_identifier(name: str) -> bool:
    """Whether a name looks like one of a program: `max_size`, `maxSize`, `a.b`, `h264`."""
    return _IDENTIFIER.search(name) is not None


def defines(name: str, line: str, following: str = "") -> int:
    """How surely a line defines a name: KEYWORD, ASSIGNED, KEY (or a heading), ARGUMENT, or 0.

    Args:
        name: as it is spelt in the line.
        line: any.
        following: the next line; a heading may be underlined there.
    """
    if name not in line:
        return 0
    keyword, assigned, key, heading, call = _patterns(name)
    if keyword.match(line):
        return KEYWORD
    if found := assigned.match(line):
        inside = line.rstrip().endswith((",", "(")) and line[:1].isspace() and not found["type"]
        return ARGUMENT if inside else ASSIGNED
    if call.match(line):
        return ASSIGNED
    underlined = re.match(r"\s*([=~^\"'`#*+-])\1{2,}\s*\Z", following) is not None
    return KEY if key.match(line) or heading.match(line) or underlined else 0


@lru_cache(16)
def _patterns(name: str) -> tuple[re.Pattern[str], ...]:
    own = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    ends = r"\s*(?:[(\[<:={;,]|extends\b|implements\b|as\b|\Z)"
    return (
        re.compile(
            rf"\s*(?:{_MODIFIERS}{_KEYWORDS}\s+[\"'`]?{own}[\"'`]?{ends}|#\s*define\s+{own})", re.I
        ),
        re.compile(
            rf"\s*(?P<type>{_NO_TYPE}(?:[^\W\d][\w:<>*&\[\]]*\s+[*&]*){{1,3}})?(?:self\.|this\.|\$)?{own}"
            r"\s*(?::[^=\n(]+)?(?<![=!<>])=(?![=~>])"
        ),
        re.compile(rf"\s*(?:-\s+)?[\"'`]?{own}[\"'`]?\s*(?::(?!:)|=>|\Z)"),
        re.compile(rf"\s*(?:#{{1,6}}\s|={{1,6}}\s|\.\.\s[\w:-]+::\s).*{own}"),
        re.compile(rf"{_NO_TYPE}[A-Za-z_][\w:<>*&, ]*[\s*&]{own}\s*\([^;]*[){{,(]\s*\Z"),
    )
