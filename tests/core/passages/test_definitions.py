"""Names whose definition is asked for, and the lines that define them."""

import pytest

from longctx.core.passages.definitions import ARGUMENT, ASSIGNED, KEY, KEYWORD, defines, name_asked


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("max_pool_size", "max_pool_size"),
        ("Where is max_pool_size defined?", "max_pool_size"),
        ("definition of Timeout", "Timeout"),
        ("class HttpServer", "HttpServer"),
        ("read_file()", "read_file"),
        ("storm", "storm"),
        ("the storm", ""),
        ("How large may max_pool_size be?", ""),
        ("max_pool_size min_pool_size", ""),
        ("where is it defined", ""),
        ("C++", ""),
        ("", ""),
    ],
)
def test_the_name_that_a_query_asks_for(query, name):
    assert name_asked(query) == name


@pytest.mark.parametrize(
    ("line", "surely"),
    [
        ("def pool(size):", KEYWORD),
        ("    async def pool(self):", KEYWORD),
        ("export default class pool extends Base {", KEYWORD),
        ("const pool = 4;", KEYWORD),
        ("#define pool 4", KEYWORD),
        ("func (s *Server) pool(n int) {", KEYWORD),
        ("CREATE TABLE pool (", KEYWORD),
        ("pool = 4", ASSIGNED),
        ("    self.pool: int = 4", ASSIGNED),
        ("static int pool = 4;", ASSIGNED),
        ("int pool(int size) {", ASSIGNED),
        ("pool: 4", KEY),
        ('  "pool": 4,', KEY),
        ("pool : int, optional (default=4)", KEY),
        ("## The pool", KEY),
        (".. function:: pool(size)", KEY),
        ("    pool=4,", ARGUMENT),
        ("return pool(4) {", 0),
        ("if pool == 4:", 0),
        ("make(pool, 4)", 0),
        ("G, pool=4, size=5", 0),
        (">>> pool = 4", 0),
        ("carpool = 4", 0),
        ("from x import pool", 0),
        ("A pool of water, and a pool of light.", 0),
    ],
)
def test_how_surely_a_line_defines_a_name(line, surely):
    assert defines("pool", line) == surely


def test_a_heading_may_be_underlined():
    assert defines("pool", "The pool", "--------") == KEY
    assert defines("pool", "The pool", "is deep") == 0
