"""Read the address of a repository: without its user and password, and in the one form that identifies its project."""

import re

LOCAL_IDENTITIES = ("commit:", "marker:", "joined:")
"""Beginnings of identities that are no address."""

# Patterns as text: ``re`` compiles each when it is first used.
_SCHEME = r"(?:[A-Za-z0-9+.-]+::)?[A-Za-z][A-Za-z0-9+.-]*://"
_SCP = r"(?s)(?:([^/\\]*)@)?([^@/\\:]+:.*)"
_HOST = r"(?:[\w.~%-]*|\[[0-9A-Fa-f:.%]*\])(?::\d*)?"
_SERVED = r"(?is)(?:https?|ssh|git|git\+ssh|ssh\+git)://(?:[^/@]*@)?([\w.-]+|\[[0-9a-f:.]+\])(?::(\d*))?/(.*)"
_SCP_SERVED = r"(?s)(?![A-Za-z]:)(?:[^/\\@]*@)?([\w.-]+)():([^:].*)"
_OWN_MACHINE = r"localhost|127\.[\d.]+|\[::1\]"
_USUAL_PORTS = ("", "22", "80", "443", "9418")
_SSH_HOSTS = {  # names under which ssh is offered at port 443
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}
_ANY_CASE = frozenset(_SSH_HOSTS.values())  # owners and names of repositories are in any case there
_TOP_FOLDERS = ("srv/", "home/", "var/", "opt/", "mnt/", "usr/", "root/", "Users/", "Volumes/")
"""Folders below ``/``: servers of teams, to which ``h:a/b`` and ``h:/a/b`` are the same, seldom have such owners."""


def repository_identity(address: str) -> str:
    """Return ``https://host/path.git`` for every address of one repository on a server: https, ssh, git, scp's form.

    User, upper case of the host, slashes at the end and ``.git`` make no difference, nor does the port of ssh. Another
    port of http may be another server, as any port of this machine itself. ``h:srv/a`` is in the home folder, and not
    ``h:/srv/a``. Anything else is returned unchanged: a path, a file's address, an identity that is no address.
    """
    match = re.fullmatch(_SERVED, address)
    if match is None and "://" not in address and not address.startswith(LOCAL_IDENTITIES):
        match = re.fullmatch(_SCP_SERVED, address)
    path = "" if match is None else re.sub("/+", "/", match[3]).strip("/")
    if match is None or path.removesuffix(".git") in ("", "."):
        return address
    host, port = match[1].lower().rstrip("."), match[2] or ""
    host = _SSH_HOSTS.get(host, host)
    if port not in _USUAL_PORTS and (address[:4].lower() == "http" or re.fullmatch(_OWN_MACHINE, host)):
        host = f"{host}:{port}"
    if host in _ANY_CASE:
        path = path.lower()
    elif "://" not in address and match[3].startswith(_TOP_FOLDERS):
        path = f"~/{path}"
    return f"https://{host}/{path.removesuffix('.git').rstrip('/')}.git"


def is_same_repository(identity: str | None, other: str | None) -> bool:
    """Return True if two identities are known and mean one project."""
    return None not in (identity, other) and repository_identity(identity or "") == repository_identity(other or "")


def without_credentials(address: str) -> str | None:
    """Return a remote's address without user, password and query; None if they cannot be separated.

    The user ``git`` of an ssh address stays: it is the same for everybody.
    """
    scheme = re.match(_SCHEME, address)
    if scheme is None:
        return _scp_without_user(address)
    rest = address[scheme.end() :]
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if not re.fullmatch(_HOST, host):  # probably a password with a slash: everything before the last @ may be secret
        user, at, rest = rest.rpartition("@")
        if not at:
            return None
        host, slash, path = rest.partition("/")
    if "ssh" in scheme[0].lower():
        keep = "git@" if user.split(":")[0] == "git" else ""
        return f"{scheme[0]}{keep}{host}{slash}{path}"
    return f"{scheme[0]}{host}{slash}{re.split('[?#]', path)[0]}"


def _scp_without_user(address: str) -> str:
    """Remove the user from ``user@host:path``, unless it is ``git``. A path is unchanged."""
    match = re.fullmatch(_SCP, address)
    return address if match is None or match[1] in (None, "git") else match[2]
