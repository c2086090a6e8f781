"""Claims about the form of every request and answer: methods, versions, tokens, queries, JSON, errors, and their order."""

import zlib

import httpx
import pytest

from tests.relay_conformance.targets import checked, make_blob, new_stream, refused
from tests.support.table import each_row

S = "00112233445566778899aabbccddeeff"
ROUTES = {
    f"/v1/streams/{S}/blobs/1": {"GET", "HEAD", "PUT"},
    f"/v1/streams/{S}/blobs": {"GET", "HEAD"},
    f"/v1/streams/{S}/ack": {"POST"},
    f"/v1/streams/{S}": {"GET", "HEAD"},
    "/v1/streams": {"GET", "HEAD"},
    f"/v1/objects/{S}": {"GET", "HEAD", "PUT", "DELETE"},
    "/v1/objects": {"GET", "HEAD"},
    "/v1/tokens": {"GET", "HEAD", "POST"},
    "/v1/tokens/0123456789abcdef": {"DELETE"},
    "/v1/pair": {"POST"},
    "/v1/pair/7": {"DELETE"},
    "/v1/pair/7/claim": {"PUT"},
    "/v1/pair/7/a/x": {"GET", "HEAD", "PUT"},
    "/healthz": {"GET", "HEAD"},
    "/readyz": {"GET", "HEAD"},
    "/openapi.json": {"GET", "HEAD"},
    "/openapi.yaml": {"GET", "HEAD"},
}
ASKING = [(method, path) for path, methods in ROUTES.items() for method in sorted(methods) if path.startswith("/v1")]
BEARER = [(method, path) for method, path in ASKING if not path.endswith("/claim")]


@pytest.mark.slow
def test_other_methods_are_405_and_say_which_there_are(relay):
    for path, methods in ROUTES.items():
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "EVIL"):
            if method in methods or (method == "EVIL" and relay.is_fronted):
                continue
            # Even without a token, and with one: the route is what is asked first.
            for token in (None, relay.home):
                answer = relay.ask(method, path, token=token)
                if method == "EVIL" and answer.status_code == 400:
                    continue  # what the server's parser does not know as a method is no HTTP to it
                assert answer.status_code == 405
                assert {one.strip() for one in answer.headers["allow"].split(",")} == methods
                if method != "HEAD":
                    assert answer.json()["code"] == "method-not-allowed"


@each_row(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/v2/streams",
        "/v1/streams/",
        "/V1/streams",
        "//v1/streams",
        "/v1//streams",
        f"/v1/streams/{S}/",
        f"/v1/streams/{S}/blobs/",
        f"/v1/streams/{S}/blobs/1/",
        f"/v1/streams/{S}/blobs/1/2",
        f"/v1/streams/{S}/ack/1",
        "/v1/objects/",
        "/v1/tokens/",
        "/v1/pair/7/a",
        "/v1/pair/7/a/x/y",
        "/metrics",
        "/docs",
        "/favicon.ico",
        "/openapi-json",
        "/.env",
        "/v1/streams/../tokens",
        "/v1/streams/%2e%2e/tokens",
        "/v1/drop/conversations",
    ],
)
def test_there_are_no_other_places(relay, path):
    request = relay.client.build_request("GET", "http://x/")
    # Past httpx, which would tidy the path up.
    request.url = httpx.URL(relay.url).copy_with(raw_path=path.encode())
    request.headers["Host"] = request.url.netloc.decode()
    response = checked(relay.client.send(request))
    if response.status_code == 401:
        assert path == "/v1/streams/../tokens" or (relay.is_fronted and path == "/v1/streams/%2e%2e/tokens")
        return
    refused(response, 404, "not-found")


ANOTHER_VERSION_IS_426 = ["2", "0", "1.x", "10", "-1", "v1", "1,2", "1 2", "\xb9"]


def test_another_version_is_426_before_anything_about_the_token(relay):
    for version in ANOTHER_VERSION_IS_426:
        for token in (None, relay.home):
            answer = relay.ask(
                "GET", "/v1/streams", token=token, headers={"Crystal-Relay-Version": version.encode("latin-1")}
            )
            refused(answer, 426, "unsupported-version")


EVERY_MINOR_VERSION_IS = ["1", "1.0", "1.7"]


def test_every_minor_version_is_understood(relay):
    for version in EVERY_MINOR_VERSION_IS:
        assert relay.ask("GET", "/v1/streams", headers={"Crystal-Relay-Version": version}).status_code == 200


def test_head_is_get_without_a_body(relay):
    stream = new_stream()
    blob = make_blob(stream, 1)
    relay.put(stream, 1, blob)
    relay.ask("PUT", f"/v1/objects/{stream.hex()}", content=b"x")
    for path in (
        f"/v1/streams/{stream.hex()}/blobs/1",
        f"/v1/streams/{stream.hex()}",
        f"/v1/streams/{stream.hex()}/blobs",
        f"/v1/objects/{stream.hex()}",
        "/healthz",
        "/openapi.json",
        f"/v1/streams/{stream.hex()}/blobs/9",
        f"/v1/streams/{stream.hex()}/blobs/x",
    ):
        got, head = relay.ask("GET", path), relay.ask("HEAD", path)
        assert head.status_code == got.status_code
        assert not head.content
        for name in ("content-type", "content-length", "etag", "content-digest"):
            assert head.headers.get(name) == got.headers.get(name), name


# ------------------------------------------------------------------------------------------------------------ tokens


def checksummed(text):
    return f"{text}_{zlib.crc32(text.encode()):08x}"


BAD_TOKENS = {
    "none": "",
    "constructor": "constructor",
    "__proto__": "__proto__",
    "toString": "toString",
    "hasOwnProperty": "hasOwnProperty",
    "null": "null",
    "star": "*",
    "a space": " ",
    "two": "a b",
    "quotes": '"',
    "sql": "' OR 1=1 --",
    "percent": "%00%0a",
    "path": "../../etc/passwd",
    "a stranger's": checksummed("crt_0000000000000000_" + "A" * 43),
    "no checksum": "crt_0000000000000000_" + "A" * 43,
    "short": checksummed("crt_0000000000000000_" + "A" * 42),
    "long": checksummed("crt_0000000000000000_" + "A" * 44),
    "upper": checksummed("CRT_0000000000000000_" + "A" * 43),
    "an id of signs": checksummed("crt_000000000000000%_" + "A" * 43),
    "latin": "t\xf6ken",
    "utf-8": "t\u00f6ken\u202e",
    "tabs": "\tcrt",
}


def authorizations(home):
    for name, token in BAD_TOKENS.items():
        yield name, b"Bearer " + token.encode("utf-8" if name == "utf-8" else "latin-1")
    last = "0" if home[-1] != "0" else "1"
    for name, text in {
        "home's with another checksum": f"Bearer {home[:-1]}{last}",
        "home's without its end": f"Bearer {home[:-1]}",
        "home's and more": f"Bearer {home}x",
        "home's with another secret": "Bearer " + checksummed(home.rpartition("_")[0][:-1] + "_"),
        "home's twice": f"Bearer {home}, Bearer {home}",
        "home's bare": home,
        "home's as basic": f"Basic {home}",
        "home's as claim": f"Claim {home}",
        "home's in quotes": f'Bearer "{home}"',
        "home's id alone": f"Bearer {home.split('_')[1]}",
        "home's upper": f"Bearer {home.upper()}",
        "no scheme": "Bearer",
        "empty": "",
    }.items():
        yield name, text.encode()


def test_no_token_but_a_known_one_opens_anything(relay):
    for name, value in authorizations(relay.home):
        for method, path in [("GET", "/v1/streams"), ("PUT", f"/v1/objects/{S}"), ("GET", "/v1/tokens")]:
            answer = relay.ask(method, path, token=None, headers={"Authorization": value.strip()})
            refused(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith("Bearer"), name


def test_every_route_asks_for_a_token_first(relay):
    for method, path in ASKING:
        answer = relay.ask(method, path, token=None, content=b"x" * 10 if method in ("PUT", "POST") else None)
        assert answer.status_code == 401
        # Before the form of path and query, and before the body's.
        bad = path.replace(S, "x").replace("/7", "/x").replace("/1", "/x")
        assert relay.ask(method, bad, token=None, limit="x").status_code == 401


def test_the_token_in_the_query_or_in_a_cookie_is_none(relay):
    for name in ("token", "access_token", "authorization"):
        refused(relay.ask("GET", f"/v1/streams?{name}={relay.home}", token=None), 401, "unauthenticated")
        answer = relay.ask("GET", "/v1/streams", token=None, headers={"Cookie": f"{name}={relay.home}"})
        refused(answer, 401, "unauthenticated")


def test_the_scheme_is_read_in_any_case(relay):
    for scheme in ("bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} {relay.home}"}
        assert relay.ask("GET", "/v1/streams", token=None, headers=headers).status_code == 200


LARGE = {"Content-Length": "8388756"}


WHO_IS_UNKNOWN_IS = [f"/v1/streams/{S}/blobs/1", f"/v1/objects/{S}", "/v1/pair/7/a/x"]


def test_who_is_unknown_is_refused_before_the_body_is_sent(relay):
    for path in WHO_IS_UNKNOWN_IS:
        for headers in ({}, {"Authorization": "Bearer constructor"}):
            status, problem = relay.half("PUT", path, {**headers, **LARGE})
            assert (status, problem["code"]) == (401, "unauthenticated")


def test_who_may_not_is_refused_before_the_body_is_sent(relay):
    token = relay.make_token("pair")
    for path in (f"/v1/streams/{S}/blobs/1", f"/v1/objects/{S}"):
        status, problem = relay.half("PUT", path, {"Authorization": f"Bearer {token}", **LARGE})
        assert (status, problem["code"]) == (403, "forbidden")


def test_what_is_too_long_is_refused_before_the_body_is_sent(relay):
    home = {"Authorization": f"Bearer {relay.home}"}
    for length in ("8388757", "9223372036854775807", "99999999999999999999"):
        for path in (f"/v1/streams/{S}/blobs/1", f"/v1/objects/{S}"):
            status, problem = relay.half("PUT", path, {**home, "Content-Length": length})
            # A length beyond 64 bits is no number to a server's parser.
            expected = {(413, "body-too-large")} | ({(400, "bad-request")} if len(length) > 19 else set())
            assert (status, problem["code"]) in expected
    for path in ("/v1/tokens", f"/v1/streams/{S}/ack"):
        status, problem = relay.half("POST", path, {**home, "Content-Length": "65537"})
        assert (status, problem["code"]) == (413, "body-too-large")


# ----------------------------------------------------------------------------------------------------- path and query


NO_IDS = [
    "0" * 31,
    "0" * 33,
    "0" * 31 + "g",
    "0" * 31 + "A",
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "0" * 31 + "%00",
    "%20" + "0" * 31,
    "\u0660" * 32,
    "0x" + "0" * 30,
    "-" + "0" * 31,
    "null",
    "constructor",
    "__proto__",
    "0" * 5000,
]


@pytest.mark.slow
def test_ids_that_are_none_are_refused(relay):
    for name in NO_IDS:
        for method, path in [
            ("GET", f"/v1/streams/{name}"),
            ("GET", f"/v1/streams/{name}/blobs"),
            ("GET", f"/v1/streams/{name}/blobs/1"),
            ("PUT", f"/v1/streams/{name}/blobs/1"),
            ("POST", f"/v1/streams/{name}/ack"),
            ("GET", f"/v1/objects/{name}"),
            ("PUT", f"/v1/objects/{name}"),
            ("DELETE", f"/v1/objects/{name}"),
            ("DELETE", f"/v1/tokens/{name}"),
        ]:
            answer = relay.ask(method, path, content=b"x" if method == "PUT" else None)
            # What httpx tidies up, or a slash behind a percent sign, is another place.
            assert (answer.status_code, answer.json()["code"]) in [
                (400, "bad-request"),
                (404, "not-found"),
                (405, "method-not-allowed"),
            ]


NUMBERS_THAT_ARE_NONE = [
    "0",
    "-1",
    "+1",
    "01",
    "1.0",
    "1e3",
    "0x1",
    "%201",
    "1%20",
    "1_000",
    "\u0661",
    str(2**53),
    "9" * 400,
    "x",
    "null",
]


def test_numbers_that_are_none_are_refused(relay):
    for seq in NUMBERS_THAT_ARE_NONE:
        for method in ("GET", "PUT"):
            answer = relay.ask(method, f"/v1/streams/{S}/blobs/{seq}", content=make_blob(bytes.fromhex(S), 1))
            refused(answer, 400, "bad-request")


QUERIES_WITHOUT_SENSE_ARE = [
    "after=-1",
    "after=x",
    "after=1.0",
    "after=",
    "after=%2B1",
    f"after={2**53}",
    "after=1&after=1",
    "limit=0",
    "limit=1001",
    "limit=-1",
    "limit=x",
    "limit=1&limit=2",
    "after=" + "9" * 5000,
]


def test_queries_without_sense_are_refused(relay):
    for query in QUERIES_WITHOUT_SENSE_ARE:
        refused(relay.ask("GET", f"/v1/streams/{S}/blobs?{query}"), 400, "bad-request")


def test_an_unknown_parameter_is_passed_over(relay):
    assert relay.ask("GET", f"/v1/streams/{S}/blobs?later=1&later=2&after=0").status_code == 200
