"""Which letters are the same but for case: those that `re.IGNORECASE` takes for the same.

They are compared one by one, as in Unicode's simple case folding: a long s is an s, a final sigma
a sigma, the micro sign a mu; dotless and dotted i are an i. Sharp s is not two letters. Folding
keeps every letter in its place.
"""

# Lower-case letters with the capitals of others, each above that other one.
_ODD = (
    "\u0131\u017f\u00b5\u0345\u1fbe\u1fd3\u1fe3\u03d0\u03f5\u03d1\u03f0\u03d6\u03f1\u03c2\u03d5"
    "\u1c80\u1c81\u1c82\u1c83\u1c84\u1c85\u1c86\u1c87\u1c88\u1e9b\ufb05"
)
_PLAIN = (
    "is\u03bc\u03b9\u03b9\u0390\u03b0\u03b2\u03b5\u03b8\u03ba\u03c0\u03c1\u03c3\u03c6"
    "\u0432\u0434\u043e\u0441\u0442\u0442\u044a\u0463\ua64b\u1e61\ufb06"
)
ODD = dict(zip(_ODD, _PLAIN, strict=True))
DOTTED = "\u0130"  # capital I with a dot: its lower case is an i and a dot, which ends a word


def folded(text: str) -> str:
    """A text in lower case, with one letter for all that are the same; as long as the text."""
    if text.isascii():
        return text.lower()
    text = text.replace(DOTTED, "i").lower()
    for odd, plain in ODD.items():
        text = text.replace(odd, plain)
    return text
