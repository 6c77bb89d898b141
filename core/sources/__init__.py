"""Sources: files, folders, patterns, archives, and formats that are not plain text.

`find.py` turns what a user names into sources, `walk.py` goes through folders, `archive.py` through
archives, `packed.py` decompresses, and `formats/` converts other formats to text, one file each.
`limits.py` holds the limits. Nothing here knows about tokens, models or the store.
"""
