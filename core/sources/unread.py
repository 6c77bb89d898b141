"""Documents that are not read, by their endings, and what to make of them first.

They are binary, so nothing else would tell them from pictures, which nobody misses.
"""

from pathlib import PurePath

from longctx.core.common.errors import UnreadableInput

_OFFICE = "Open it in Word, Excel, PowerPoint or LibreOffice and save it as "
UNREAD = {  # endings: what they are, and the remedy
    ("doc", "dot", "wpd", "wps"): ("an older text document", f"{_OFFICE}.docx."),
    ("xls", "xlt", "xlsb"): ("an older or binary workbook", f"{_OFFICE}.xlsx."),
    ("ppt", "pps", "pot"): ("an older presentation", f"{_OFFICE}.pptx."),
    ("pages", "numbers", "key"): (
        "a document of Apple's iWork",
        "Export it as PDF, .docx, .xlsx or .pptx.",
    ),
    ("pub", "vsd", "vsdx", "one", "djvu"): ("a document of another format", "Export it as PDF."),
    ("mobi", "azw", "azw3"): ("a Kindle book", "Convert it to EPUB, if it is not protected."),
}
_BY_ENDING = {ending: told for endings, told in UNREAD.items() for ending in endings}


def unread(name: str) -> UnreadableInput | None:
    """The error for a binary file that is a document by its name; None if it is none."""
    told = _BY_ENDING.get(PurePath(name).suffix.lower().removeprefix("."))
    if told is None:
        return None
    what, remedy = told
    return UnreadableInput(f"cannot read '{name}'", f"it is {what}, which is not read", remedy)
