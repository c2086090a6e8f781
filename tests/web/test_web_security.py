"""Claims of the server: nobody but the user's own browser, from the page itself, reads or changes anything."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.cli.web import _has_windows
from crystal.errors import UnavailableError, UsageError
from crystal.serving.listening import listen
from crystal.serving.peer import is_other_user
from crystal.serving.request_checks import LOCAL_NAMES
from crystal.web.app import ACTIONS, PAGES, STATIC, VIEWS
from crystal.web.security import HEADERS, MAX_FORM_BYTES, STYLE_PATH, Access, Guard
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.exports import SESSION, remember
from tests.support.table import each_row
from tests.support.web_client import BASE, ORIGIN, Client
from tests.support.web_page import serving
from tests.support.whole_memory import wait_until

READ = [view.path for view in VIEWS] + [f"/static/{name}" for name in STATIC] + ["/nothing", "/memory/mem-0", "/forget"]
READ += [path.replace("{id:path}", SESSION) for path in PAGES if path.startswith(("/session", "/markdown"))] + [
    "/turn/1"
]
WRITE = [path.replace("{id}", "mem-0") for path in ACTIONS] + ["/nothing"]
STRANGE_COOKIES = ["", "crystal-8642", "crystal-8642=", "crystal-8642=guess", "other=1; crystal-8642=x", "=;;,\0"]


@pytest.fixture
def client(home):
    remember(home, ["one", "two"])
    return Client()


@pytest.fixture
def kept(client):
    """The id of a memory."""
    return crystal("remember", "we deploy on Fridays").out.split()[2].rstrip(":")


def test_without_the_cookie_no_address_tells_or_changes_anything(home):
    remember(home, ["xylophone"])
    for cookie in part_of(STRANGE_COOKIES, 2):
        stranger = Client(is_inside=False)
        for method, paths in (
            ("GET", [*{*READ} - {STYLE_PATH}]),
            ("HEAD", READ),
            ("POST", WRITE),
            ("PUT", READ),
            ("OPTIONS", READ),
        ):
            for path in paths:
                headers = {**ORIGIN, **({"cookie": cookie.replace("\0", "")} if cookie else {})}
                answer = stranger.request(method, path, headers=headers)
                assert answer.status_code == 403, (method, path, cookie)
                assert "xylophone" not in answer.text
                assert "set-cookie" not in answer.headers
        assert stranger.get(STYLE_PATH).headers["content-type"].startswith("text/css"), "the refusal has a look"


def test_every_answer_has_the_headers_that_keep_others_out(client):
    answers = [client.get(path) for path in READ] + [client.post(path) for path in WRITE]
    answers += [Client(is_inside=False).get("/"), client.get("/", headers={"host": "evil.example"})]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, answer.url
    policy = dict(rule.partition(" ")[::2] for rule in HEADERS["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["frame-ancestors"], policy["base-uri"]) == ("'none'", "'none'", "'none'")
    assert "unsafe" not in str(policy)


@given(st.text(sorted({*map(chr, range(256))} - {*"\r\n\0"}), max_size=40))
def test_no_other_host_is_served(name):
    client = _client_without_memory()
    is_local = re.sub(r":\d+\Z", "", name.strip(" \t").lower()) in LOCAL_NAMES
    answer = client.get("/static/app.js", headers={"host": name.encode("latin-1")})
    assert (answer.status_code == 421) is not is_local
    assert is_local or "listener" not in answer.text


_cached: list[Client] = []


def _client_without_memory() -> Client:
    if not _cached:
        _cached.append(Client())
    return _cached[0]


@each_row(("host", "status"), [
    ("127.0.0.1:8642", 200), ("localhost:1", 200), ("LOCALHOST", 200), ("[::1]:8642", 200), ("127.0.0.1", 200),
    ("evil.example", 421), ("127.0.0.1.evil.example:8642", 421), ("localhost.evil.example", 421), ("", 421),
    ("127.0.0.1:8642.evil.example", 421), ("127.0.0.1:", 421), ("localhost:8642:8642", 421), ("0.0.0.0:8642", 421),
])  # fmt: skip
def test_hosts(client, host, status):
    assert client.get("/", headers={"host": host}).status_code == status, host


def test_two_hosts_are_none(client):
    assert client.get("/", headers=[("host", "127.0.0.1:8642"), ("host", "evil.example")]).status_code == 421


@each_row(("origin", "site", "csrf", "status"), [
    (BASE, "same-origin", "right", 303), (BASE, None, "right", 303), ("null", "same-origin", "right", 303),
    (None, "same-origin", "right", 303), ("null", None, "right", 403), (None, None, "right", 403),
    ("http://evil.example", "cross-site", "right", 403), ("http://evil.example", "same-origin", "right", 403),
    ("http://127.0.0.1:9999", "same-site", "right", 403), (BASE, "cross-site", "right", 403),
    ("https://127.0.0.1:8642", "same-origin", "right", 403), ("http://localhost:8642", "same-origin", "right", 403),
    (BASE, "same-origin", None, 403), (BASE, "same-origin", "", 403), (BASE, "same-origin", "guess", 403),
])  # fmt: skip
def test_an_action_needs_our_own_origin_and_the_token_of_the_form(client, kept, origin, site, csrf, status):
    headers = {name: value for name, value in (("origin", origin), ("sec-fetch-site", site)) if value}
    data = {} if csrf is None else {"csrf": client.access.csrf if csrf == "right" else csrf}
    answer = client.post(f"/memory/{kept}/deprecate", data=data, headers=headers)
    assert answer.status_code == status
    assert (kept in crystal("memories").out) is (status == 403)
    if status == 303:
        assert client.send_form(f"/memory/{kept}/restore").status_code == 303


def test_every_action_refuses_a_missing_or_wrong_token_and_other_forms_of_body(client):
    for path in WRITE:
        for body in (b"", b"csrf=guess", b'{"csrf": 1}', b"csrf=%00", b"\xff" * 100):
            headers = {**ORIGIN, "content-type": "application/x-www-form-urlencoded"}
            assert client.post(path, content=body, headers=headers).status_code == 403
        token = f"csrf={client.access.csrf}".encode()
        for kind in ("text/plain", "application/json", "multipart/form-data", ""):
            assert client.post(path, content=token, headers={**ORIGIN, "content-type": kind}).status_code == 403
    many = b"a=1&" * 1_500
    headers = {**ORIGIN, "content-type": "application/x-www-form-urlencoded"}
    assert client.post(WRITE[0], content=many, headers=headers).status_code == 403
    too_long = b"a=" + b"x" * (MAX_FORM_BYTES + 1)
    assert client.post(WRITE[0], content=too_long, headers=ORIGIN).status_code == 413


def test_no_action_is_reached_by_a_link(client):
    for path in ACTIONS:
        assert client.get(path.replace("{id}", "mem-0")).status_code in (404, 405)


def test_the_link_opens_once_and_its_cookie_is_strict(home):
    remember(home, ["one"])
    client = Client(is_inside=False)
    link = f"/open?token={client.access.link}"
    for guess in ("/open", "/open?token=", "/open?token=guess", f"{link}x"):
        assert client.get(guess).status_code == 403
    answer = client.get(link)
    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0;url=/"' in answer.text, "a redirect would lose the strict cookie"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("crystal-8642=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert client.get(link).status_code == 200, "who is inside already stays inside"
    other = Client(is_inside=False)
    other.access.link = ""
    again = other.get(link)
    assert again.status_code == 403
    assert "run “crystal web” again" in again.text
    assert "set-cookie" not in again.headers


def test_an_empty_token_never_opens():
    access = Access("c")
    assert access.use_link(access.link)
    assert not access.use_link("")
    assert repr(access) == "Access(cookie_name='c')", "no secret in a traceback"


def test_a_websocket_is_refused(home):
    with pytest.raises(ValueError, match="websocket"), Client().websocket_connect("/"):
        pass


def test_it_listens_on_loopback_alone_and_says_if_a_port_is_taken():
    with listen(0, 8642, "crystal web") as first:
        host, port = first.getsockname()
        assert (host, first.family) == ("127.0.0.1", socket.AF_INET)
        with pytest.raises(UnavailableError, match=f"port {port}") as caught:
            listen(port, 8642, "crystal web")
        assert caught.value.hint == "use any free port: crystal web --port 0"
    for number in (-1, 65_536):
        with pytest.raises(UsageError, match=str(number)):
            listen(number, 8642, "crystal web")


def test_the_command_refuses_what_it_cannot_serve(home):
    assert crystal("web").code == 3, "there is no memory yet"
    remember(home, ["one"])
    assert crystal("web", "--port", "x").code == 2
    assert crystal("web", "--port", "70000").code == 2


SOCKETS = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: {own}:A2C2 {own}:21C2 06 00000000:00000000 03:00000000 00000000      0        0 0 3 0
   1: {own}:A2C2 {own}:21C3 01 00000000:00000000 00:00000000 00000000      0        0 1 1 0 20 0 0 10 -1
   2: {own}:A2C2 {own}:21C2 01 00000000:00000000 00:00000000 00000000  {user}        0 1 1 0 20 0 0 10 -1
"""


@each_row(("user", "port", "is_other"), [
    (os.getuid() + 1, 0xA2C2, True), (os.getuid(), 0xA2C2, False), (0, 0xA2C2, False), (os.getuid() + 1, 1, False),
])  # fmt: skip
def test_another_user_of_the_machine_is_told_apart(tmp_path, user, port, is_other):
    for own in ("0100007F", "0000000000000000FFFF00000100007F"):
        table = tmp_path / "tcp"
        table.write_text(SOCKETS.format(own=own, user=user))
        assert is_other_user(("127.0.0.1", port), ("127.0.0.1", 0x21C2), (tmp_path / "none", table)) is is_other
    assert not is_other_user(("testclient", port), tables=(table,))
    assert not is_other_user(None)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="starts a program as another user of Linux")
def test_another_user_is_refused_although_he_has_the_link(home):
    remember(home, ["one"])
    ask = "import encodings.idna, os, sys, urllib.request as web; os.setuid(int(sys.argv[1])); web.urlopen(sys.argv[2])"
    with serving() as link:
        assert "HTTP Error 403" in _run(ask, 65_534, link)
        assert _run(ask, 0, link) == ""


def _run(code, *arguments):
    words = [sys.executable, "-I", "-c", code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stderr


BLOCKING_BROWSER = """import pathlib, sys, urllib.request
pathlib.Path(sys.argv[1]).write_bytes(urllib.request.urlopen(sys.argv[2], timeout=20).read())
"""


@pytest.mark.slow
def test_a_browser_that_runs_until_it_is_closed_does_not_keep_the_server_from_starting(home, tmp_path):
    remember(home, ["one"])
    browser, seen = tmp_path / "browser.py", tmp_path / "seen"
    browser.write_text(BLOCKING_BROWSER)
    env = {**os.environ, "BROWSER": f"{shlex.quote(sys.executable)} {browser} {seen} %s"}
    with serving(env, "--port", "0"):
        wait_until(lambda: seen.exists() and "Open crystal" in seen.read_text(), "the browser")


@each_row(("env", "opens"), [
    ({}, sys.platform != "linux"), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "w"}, True), ({"BROWSER": "x"}, True),
])  # fmt: skip
def test_no_browser_takes_the_terminal(monkeypatch, env, opens):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert _has_windows() is opens


def test_the_guard_stands_before_everything(client):
    assert isinstance(client.app, Guard)
