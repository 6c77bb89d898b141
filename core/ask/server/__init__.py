"""Answers by another server, of OpenAI's chat completions protocol.

`address.py` has where it is, `messages.py` what is sent, `client.py` the connection, `events.py`
what comes back. Only the standard library is used.
"""
