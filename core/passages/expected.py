"""What a question asks for: a number, a name or a value, by its words.

English, German, French, Spanish, Italian, Russian and Japanese question words are known. German
capitals and scripts without letter case do not show names.
"""

import re
from dataclasses import dataclass
from functools import cached_property

_BEGINS = re.compile(  # the first word of a question without its mark
    r"(?:who|whom|whose|what|which|where|when|why|how|do|does|did|is|are|was|were|can|wer|wem|wen"
    r"|wessen|was|wann|wo|woher|wohin|warum|wie|welche[rsmn]?|qui|que|quoi|quels?|quelles?|quand"
    r"|où|combien|comment|pourquoi|qué|quién|cuál|cuándo|dónde|cómo|chi|cosa|quale|dove|perché"
    r"|кто|что|кого|кому|где|куда|откуда|когда|почему|зачем|как|сколько|какой|какая|какое|какие)"
    r"\s+\S+\s+\S",
    re.IGNORECASE,
)
_ENDS = re.compile(r"(?:[?\uff1f\u061f]|か[。.]?)\s*\Z")
_NUMBERS = re.compile(
    r"\b(?:how\s+(?:many|much|long|old|far|high|tall|often|deep|heavy|large|big|wide|fast|late|soon"
    r"|few)|when|(?:what|which)\s+(?:year|time|date|day|month|number|price|age|size|weight|percentage"
    r"|share)|by\s+how|price|telephone|number|torque|mass|percent|cost|charge|version|amount"
    r"|wie\s?(?:viele?|lange?|oft|hoch|weit|alt|groß|schwer|tief|breit|teuer)|wann"
    r"|(?:in\s+)?welche[smn]\s+jahr|combien|quand|quelle\s+(?:année|date|heure|taille|longueur)"
    r"|cuánt[oa]s?|cuándo|qué\s+año|quant[oaie]|quando|che\s+anno|сколько|когда|каком\s+году)\b"
    r"|いつ|何[年月日人個回時分本歳件番]|いくつ|いくら|どのくらい|どれくらい",
    re.IGNORECASE,
)
_NAMES = re.compile(
    r"\b(?:who|whom|whose|where|name|which\s+(?:man|woman|person|lady|officer|town|city|country"
    r"|village|river|street|company))\b|\A\W*(?:qui|où|quién|dónde|chi|dove|кто|кого|кому|где|куда"
    r"|откуда)\b",
    re.IGNORECASE,
)
_VALUES = re.compile(
    r"\b(?:default|setting|option|parameter|value|limit|version|port|timeout|constant|string"
    r"|standardwert|voreinstellung|défaut|valeur|умолчани\w+|значени\w+)\b|既定|初期値",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d[\d.,:]*|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty"
    r"|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|dozen|half|quarter"
    r"|once|twice|first|second|third|\w+th|\w+ieth)\b",
    re.IGNORECASE,
)
# A capital that neither begins a sentence nor a quotation.
_NAME = re.compile(
    '(?<!^)(?<!["\u201c\u2018\u00ab])(?<![.!?"\'\u201c\u201d\u2018]\\s)'
    "\\b(?=[^\\W\\d_a-z])\\w[\\w'\u2019-]+"
)
_VALUE = re.compile(r"[\w\]\"')]\s*[=:]\s*\S")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Expected:
    """What the answer to a question may look like.

    Attributes:
        question: the user's words.
    """

    question: str

    @cached_property
    def is_question(self) -> bool:
        """Whether it ends with a question mark, or begins as a question does."""
        return bool(_ENDS.search(self.question) or _BEGINS.match(self.question.lstrip()))

    def kinds_in(self, text: str) -> int:
        """How many of the expected kinds a text has: a number, a name or a value.

        What the question has itself does not count.
        """
        found = 0
        if self._numbers:
            found += any(not self._is_own(match[0]) for match in _NUMBER.finditer(text))
        if self._names:
            found += any(self._is_name(match[0]) for match in _NAME.finditer(text))
        if self._values:
            found += _VALUE.search(text) is not None
        return found

    def letters_beyond(self, text: str) -> int:
        """How many letters and digits the words of a text have that the question lacks."""
        return sum(len(word) for word in _WORD.findall(text) if not self._is_own(word))

    def _is_own(self, word: str) -> bool:
        return word.lower() in self._words

    def _is_name(self, word: str) -> bool:
        return word[0].isupper() and not self._is_own(word)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_WORD.findall(self.question.lower()))

    @cached_property
    def _numbers(self) -> bool:
        return _NUMBERS.search(self.question) is not None

    @cached_property
    def _names(self) -> bool:
        return _NAMES.search(self.question) is not None

    @cached_property
    def _values(self) -> bool:
        return _VALUES.search(self.question) is not None
