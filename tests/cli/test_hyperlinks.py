"""Which terminals get links to files, and what the links name."""

import pytest

from longctx.cli.hyperlinks import are_shown, link

KNOWN = [
    {"TERM_PROGRAM": "WezTerm"},
    {"TERM": "xterm-kitty"},
    {"WT_SESSION": "x"},
    {"VTE_VERSION": "5000"},
    {"KONSOLE_VERSION": "201200"},
]
UNKNOWN = [
    {},
    {"TERM": "xterm-256color"},
    {"TERM_PROGRAM": "Apple_Terminal"},
    {"VTE_VERSION": "4999"},
    {"VTE_VERSION": "many"},
    {"TERM_PROGRAM": "WezTerm", "TERM": "dumb"},
    {"TERM_PROGRAM": "WezTerm", "TMUX": "x"},
]


@pytest.mark.parametrize("environment", KNOWN)
def test_a_known_terminal_has_links(environment):
    assert are_shown(environment, True)
    assert not are_shown(environment, False)
    assert not are_shown({**environment, "NO_COLOR": "1"}, True)
    assert not are_shown({**environment, "FORCE_HYPERLINK": "0"}, True)


@pytest.mark.parametrize("environment", UNKNOWN)
def test_another_has_none_unless_it_is_forced(environment):
    assert not are_shown(environment, True)
    assert are_shown({**environment, "FORCE_HYPERLINK": "1"}, False)
    assert not are_shown({**environment, "FORCE_HYPERLINK": "1", "NO_COLOR": "1"}, True)


def test_a_link_names_a_file_and_its_line_in_harmless_characters():
    assert link("/a/b.txt", 7) == "file:///a/b.txt#7"
    assert link("/a b/\x1b]\u202e.txt", None) == "file:///a%20b/%1B%5D%E2%80%AE.txt"
    assert link("/a\ud800", 7) is None  # no file can have this name
    assert link("b.txt", 7) is None
    assert link(None, 7) is None
