"""Addresses of repositories: shown without credentials, and one identity for all spellings of one repository."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crystal.model.repository_address import is_same_repository, repository_identity, without_credentials
from tests.support.table import each_row

SPELLINGS = (
    "https://{host}/{path}",
    "https://{host}/{path}.git/",
    "HTTPS://me:pass@{HOST}:443/{path}.git",
    "http://{host}:80//{path}",
    "git://{host}/{path}.git",
    "ssh://git@{host}/{path}.git",
    "ssh://me@{HOST}:7999/{path}",
    "git+ssh://git@{host}:22/{path}.git",
    "git@{host}:{path}",
    "git@{HOST}:{path}.git",
    "me@{host}:/{path}.git",
    "{host}:{path}",
)
_HOSTS = st.from_regex(r"[a-z][a-z0-9-]{1,8}(\.[a-z][a-z0-9-]{0,5}){0,2}", fullmatch=True)
_PATHS = st.from_regex(r"[A-Za-z0-9][\w.-]{0,6}[a-z](/[A-Za-z0-9][\w-]{0,6}){1,2}", fullmatch=True)


@given(host=_HOSTS, path=_PATHS, spellings=st.tuples(*[st.sampled_from(SPELLINGS)] * 2))
def test_every_spelling_of_one_repository_is_one_identity(host: str, path: str, spellings: tuple[str, str]) -> None:
    one, other = (spelling.format(host=host, HOST=host.upper(), path=path) for spelling in spellings)
    assert is_same_repository(one, other)
    identity = repository_identity(one)
    assert (repository_identity(identity), "pass" in identity.partition("//")[2].rpartition("@")[0]) == (
        identity,
        False,
    )


@given(
    places=st.lists(st.tuples(_HOSTS, _PATHS), min_size=2, max_size=2, unique=True), spelling=st.sampled_from(SPELLINGS)
)
def test_different_repositories_stay_apart(places: list[tuple[str, str]], spelling: str) -> None:
    one, other = (spelling.format(host=host, HOST=host.upper(), path=path) for host, path in places)
    if places[0][1].removesuffix(".git") != places[1][1].removesuffix(".git") or places[0][0] != places[1][0]:
        assert not is_same_repository(one, other)


@each_row(
    ("address", "identity"),
    [
        ("git@GitHub.com:Team/App.git", "https://github.com/team/app.git"),
        ("ssh://git@ssh.github.com:443/team/app.git", "https://github.com/team/app.git"),
        ("git@git.example:Team/App.git", "https://git.example/Team/App.git"),
        ("ssh://git@[::1]:2222/a/b", "https://[::1]:2222/a/b.git"),
        ("http://localhost:3000/a/b", "https://localhost:3000/a/b.git"),
        ("git@h:/srv/r", "https://h/srv/r.git"),
        ("ssh://me@h/srv/r.git", "https://h/srv/r.git"),
        ("git@h:srv/r", "https://h/~/srv/r.git"),  # below the home folder: another repository
        ("ssh://git@h/~/srv/r", "https://h/~/srv/r.git"),
        ("git@h:srvs/r", "https://h/srvs/r.git"),
        ("git@github.com:home/r", "https://github.com/home/r.git"),
        ("http://nas:3000/a/b", "https://nas:3000/a/b.git"),  # another server than that of port 8080
        ("ssh://git@nas:2222/a/b", "https://nas/a/b.git"),
        *[(same, same) for same in ("/srv/a.git", "../a.git", "file:///srv/a.git", "C:\\git\\a", "C:/git/a", "")],
        *[(same, same) for same in ("commit:0a1b2c", "marker:0123456789abcdef", "joined:12345678")],
        *[(same, same) for same in ("ext::touch x", "helper::https://h/a.git", "https://h", "https://h/", "git@h:")],
    ],
)
def test_only_addresses_of_servers_have_another_form(address: str, identity: str) -> None:
    assert repository_identity(address) == identity


def test_identities_that_are_not_known_are_not_the_same() -> None:
    assert not is_same_repository(None, None)
    assert not is_same_repository(None, "commit:1")
    assert is_same_repository("commit:1", "commit:1")


@each_row(
    ("address", "clean"),
    [
        ("https://example.org/a.git", "https://example.org/a.git"),
        ("https://me:secret@example.org/a.git", "https://example.org/a.git"),
        ("https://secret@example.org:8443/a.git", "https://example.org:8443/a.git"),
        ("https://me:se@cr@example.org/a.git", "https://example.org/a.git"),
        ("https://me:se/secret@example.org/a.git", "https://example.org/a.git"),
        ("https://example.org/a.git?private_token=secret#secret", "https://example.org/a.git"),
        ("HTTPS://me:secret@example.org", "HTTPS://example.org"),
        ("https://me:secret", None),
        ("https://[::1]:8080/a.git", "https://[::1]:8080/a.git"),
        ("https://example.org/@scope/a.git", "https://example.org/@scope/a.git"),
        ("git@example.org:team/a.git", "git@example.org:team/a.git"),
        ("secret@example.org:team/a.git", "example.org:team/a.git"),
        ("me:secret@example.org:team/a.git", "example.org:team/a.git"),
        ("ssh://git@example.org:22/a.git", "ssh://git@example.org:22/a.git"),
        ("ssh://git:secret@example.org/a.git", "ssh://git@example.org/a.git"),
        ("git+ssh://me:secret@example.org/a.git", "git+ssh://example.org/a.git"),
        ("helper::https://me:secret@example.org/a.git", "helper::https://example.org/a.git"),
        ("file:///srv/a.git", "file:///srv/a.git"),
        ("/srv/git/a.git", "/srv/git/a.git"),
        ("../a.git", "../a.git"),
        ("./me@home:x", "./me@home:x"),
        ("C:\\git\\a", "C:\\git\\a"),
        ("example.org:a.git", "example.org:a.git"),
        ("example.org:scope/a@2", "example.org:scope/a@2"),
        ("", ""),
    ],
)
def test_a_remote_is_shown_without_user_and_password(address: str, clean: str | None) -> None:
    assert without_credentials(address) == clean


@given(
    scheme=st.sampled_from(["https://", "http://", "ssh://", "ftp://", "x::https://"]),
    before=st.text("a1:@?#%[]", max_size=4),
    after=st.text("a1:@/?#%[]", max_size=6),
)
def test_no_password_survives(scheme: str, before: str, after: str) -> None:
    clean = without_credentials(f"{scheme}me{before}:s3cr3t{after}@example.org/a.git")
    assert clean is None or "s3cr3t" not in clean
