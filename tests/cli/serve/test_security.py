"""Who may ask, how much may be sent, and how long it may take."""

import socket

import pytest

from longctx.cli.serve.errors import Refused
from longctx.cli.serve.options import Options
from longctx.cli.serve.security import ALWAYS, Rules, is_loopback

TOKEN = "0123456789abcdef"
FIND = {"query": "marmalade"}


def checked(options: Options, path: str = "/v1/models", method: str = "GET", **headers: str):
    """What the rules say of a request: 200, or the status and the code of the refusal."""
    given = {"host": "127.0.0.1:8484", **headers}
    pairs = [(n.replace("_", "-").encode(), v.encode()) for n, v in given.items()]
    try:
        Rules(options).check(method, path, pairs)
    except Refused as refused:
        return refused.status, refused.code
    return 200


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:1", "127.0.0.1:", "localhost:8484", "LOCALHOST.", "localhost.:1"),
        *("[::1]", "[::1]:8484", "[0:0::0:1]:65535"),
    ],
)
def test_names_of_this_machine(host):
    assert checked(Options(), host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "localhost..",
        ".",
        "[::2]",
        "10.0.0.1",
        "2130706433",
    ],
)
def test_a_page_whose_name_points_here_is_refused(host):
    assert checked(Options(), host=host) == (403, "wrong_host")


@pytest.mark.parametrize(
    "host",
    [
        *("", ":8484", "[]", "[::1", "::1", "[::1]evil.example", "[::1].evil.example:80"),
        *("[::1]8484", "[::1]:8484:1", "[localhost]", "[127.0.0.1]", "[1::2::3]", "[::1%lo]"),
        *("localhost:evil.example", "localhost:80:80", "localhost:-1", "localhost:65536"),
        *("localhost:٨٠", "localhost,evil.example", "localhost evil.example", "localhost/"),
        *("me@localhost", "evil.example:80@localhost", "localhost\xe9", "localhost\x00"),
    ],
)
@pytest.mark.parametrize("options", [Options(), Options(host="0.0.0.0")])
def test_a_host_is_read_as_a_whole(host, options):
    assert checked(options, host=host) == (400, "bad_host")


def test_one_host_alone():
    with pytest.raises(Refused, match="one Host"):
        Rules(Options()).check("GET", "/", [(b"host", b"localhost"), (b"host", b"evil.example")])
    with pytest.raises(Refused, match="one Host"):
        Rules(Options()).check("GET", "/", [])


def test_names_that_are_allowed():
    options = Options(hosts=("Box.example",))
    assert checked(options, host="box.example:443") == 200
    assert checked(options, host="other.example") == (403, "wrong_host")


def test_everywhere_has_addresses_and_its_own_name():
    options = Options(host="0.0.0.0", token=TOKEN)
    shown = {"authorization": f"Bearer {TOKEN}"}
    assert checked(options, host="192.168.7.9:8484", **shown) == 200
    assert checked(options, host=socket.gethostname(), **shown) == 200
    assert checked(options, host="evil.example", **shown) == (403, "wrong_host")


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({"origin": "http://127.0.0.1:8484"}, True),
        ({"origin": "http://127.0.0.1:9999"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
        ({"sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "none"}, True),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "same-site"}, False),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, False),
    ],
)
def test_requests_from_other_pages_are_refused(headers, passes):
    for method in ("GET", "POST"):
        expected = 200 if passes else (403, "wrong_origin")
        assert checked(Options(), method=method, **headers) == expected


def test_a_link_may_lead_to_the_page():
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert checked(Options(), path="/", **link) == 200
    assert checked(Options(), path="/", method="POST", **link) == (403, "wrong_origin")


@pytest.mark.parametrize(
    "shown",
    ["", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xe9"],
)
def test_a_wrong_token(shown):
    assert checked(Options(token=TOKEN), authorization=shown) == (401, "invalid_api_key")


def test_what_needs_no_token():
    options = Options(token=TOKEN)
    for path in ("/", "/health", "/static/page.js"):
        assert checked(options, path=path) == 200
        assert checked(options, path=path, method="POST") == (401, "invalid_api_key")
    for path in ("/metrics", "/v1/models", "/api/documents", "/staticx", "/health/x"):
        assert checked(options, path=path) == (401, "invalid_api_key")
        assert checked(options, path=path, authorization=f"bearer {TOKEN}") == 200


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True)]
    + [(host, False) for host in ("0.0.0.0", "", "::", "10.0.0.1", "box.example", "127.0.0.1.x")],
)
def test_what_only_this_machine_reaches(host, is_local):
    assert is_loopback(host) == is_local


# --- over a socket ---


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/nothing", 404),
        ("DELETE", "/health", 405),
        ("POST", "/v1/find", 415),
        ("OPTIONS", "/v1/find", 405),
    ],
)
def test_every_response_has_the_headers(served, method, path, status):
    response = served.http.request(method, path)
    assert response.status_code == status
    assert {name: response.headers.get(name) for name in ALWAYS} == ALWAYS
    assert "access-control-allow-origin" not in response.headers
    assert "server" not in response.headers


def test_refusals_have_them_too(served):
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        response = served.http.post("/v1/find", json=FIND, headers=headers)
        assert response.status_code == 403
        assert response.json()["error"]["type"] == "permission_error"
        assert {name: response.headers.get(name) for name in ALWAYS} == ALWAYS


def test_a_client_with_the_token_is_served(serve):
    served = serve(token=TOKEN)
    assert len([*served.openai.models.list()]) == 3
    refused = served.http.get("/v1/models", headers={"Authorization": "Bearer other"})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert served.http.get("/metrics", headers={"Authorization": ""}).status_code == 401
    assert served.http.get("/health", headers={"Authorization": ""}).status_code == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b"\xff", "not valid JSON"),
        (b'{"query": NaN}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_json_object(served, content, said):
    headers = {"Content-Type": "application/json; charset=utf-8"}
    response = served.http.post("/v1/find", content=content, headers=headers)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


def test_forms_of_other_pages_are_no_json(served):
    response = served.http.post("/v1/find", content=b"{}", headers={"Content-Type": "text/plain"})
    assert response.status_code == 415
