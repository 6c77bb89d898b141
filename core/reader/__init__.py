"""The reader: an encoder that points at the answer in a passage, or says that it is not there."""
