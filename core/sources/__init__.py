"""Sources: files, folders, patterns, archives, and formats that are not plain text.

`find.py` turns what a user names into sources, `walk.py` goes through folders, `archive.py` through
archives, `packed.py` unpacks, and `formats/` makes text of what is none, one file for each format.
`limits.py` says where that ends. Nothing here knows of tokens, models or the store.
"""
