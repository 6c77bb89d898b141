"""The encodings in which text is read: those with a byte order mark, and legacy ones.

Left out: encodings with shift states (a slice of the bytes has no meaning of its own), and those
where one character has codes of two lengths (EUC-JP).
"""

import codecs

BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Candidates of the detector, most common first: the order breaks ties.
LEGACY = (
    *("cp1252", "cp1251", "cp1250", "cp932", "gb18030", "cp949", "big5", "koi8_r"),
    *("cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp866", "cp437", "cp850", "cp874"),
)
ENCODINGS = frozenset([*(encoding for _, encoding in BOMS), *LEGACY])
