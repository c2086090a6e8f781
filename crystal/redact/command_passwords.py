"""Find passwords in the arguments of commands, and in what is piped into them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path

from crystal.redact.judge import is_quoted_password, is_stand_in
from crystal.redact.regex_engines import Lazy, alternatives, near_stretches, scanner, stretches
from crystal.redact.spans import ADDRESS, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

_REST_RAW = rb"(?:[^>|;\n\\]|\\[^nr])*"
_NEXT_RAW = rb"(?:\\+r|\r)?(?:\\+n|\n)"
_CALLS = (
    rb"\"\s->\s\\*\"|name=\\*\"[\w.-]*(?i:passw(?:or)?d|passphrase|secret|token|api[_-]?key)\\*\""
    + _REST_RAW
    + rb">[^<>\s]",
    rb"(?:NetworkCredentials?|UsernamePassword[A-Z][a-z]+(?:Token)?|PasswordAuthentication|PDO|mysqli(?:_connect)?)\(",
    rb"getConnection\(|@tcp\(|\.(?i:with_?|set_?)?(?i:password)\(|String::from\(|pass(?i:word|phrase)?[-_]?command",
    rb"(?:echo|printf|cat)\s" + _REST_RAW + rb">+\s*\\*[\"']?[\w./~-]*(?:pass|secret|token|cred)",
    rb"tee\s[^\n\\]*(?:pass|secret|token|cred)[^\n\\]*<<|(?i:wi-?fi|wlan)[ -](?i:passw)",
    rb"[$#%>][ \t]+(?:sudo\s)?(?:cat\s[^\n\\]*(?:pass|secret|token|cred)|op\s+read|pass\s+show|security\s+find-)",
    rb"(?:vault\s(?:kv\s+get|read)\s+-field=|gcloud\s+secrets|secretsmanager\s+get|kubectl\s+get\s+secret)",
    rb"(?i:user(?:[ -]?name)?)[ \t]+[^\s:=\\]+[ \t]*" + _NEXT_RAW + rb"[ \t]*(?i:password)[ \t]",
    rb"\s(?:-b|--cookie)[\s=]+\\*[\"']?[^\s=;\"'\\]+=",
    rb"(?i:sess(?:ion)?(?:_?id)?|sid|cookie)\\*\"\s?,(?:\s|\\[nrt])*\\*\"(?i:value)",
    rb"(?i:user)\s+[\w.-]+\s+(?i:on)\s|[0-9]>\s*AUTH\s|redis-cli|AUTH\s[^\n\\]+" + _NEXT_RAW + rb"\s*\+?OK",
    rb"\]:[0-9]{2,5}\s|wpa-psk\s|(?:\b|\\[nrt])psk\s{0,3}=|snmp-server\s|(?i:pwd|password)=\{",
    rb"(?:\b|\\[nrt])PIN(?:(?: code)?(?: is)?:?(?:\s|\\+[nrt])|=)[0-9]{4}|masterauth",
    rb"ssh-keygen\s|ldappasswd\s|\bwandb\s+login|\bngrok\s|cloudflared\s|codecov\s|[uU]nseal\s|BW_SESSION=|unlock\s",
    rb"\bK10[0-9a-f]{8}|sonar\.login=|\bmkpasswd\s|-file=<\(|\bhttps?\s" + _REST_RAW + rb"bearer\s",
    rb"(?:plink|pscp|psftp|putty|signtool|evil-winrm|netexec|nxc)\s|\s-setcookie\s|\bbindpw\s|olcRootPW:|\bgh\s+secret\s+set\s",
    rb"\sname=\\*\"(?i:password|passwd|pwd|secret|token)\\*\"" + _NEXT_RAW + _NEXT_RAW,
    rb"(?i:password|passwd|token|secret|api_?key)<\\*/key>|(?i:password)\s[^<>\n]+>[^<>\s]",
    rb"(?i:set\s+password\s+for)\s",
    rb"-keychain\s|http-basic\.|put-parameter|keyvault\s|secretsmanager\s|\ssecrets\s+set|\brar\s|unrar\s|caddy\s",
    rb"\.login\(|\bjwt\.|\bbcrypt|crypt\.crypt\(|(?:hash|check|verify|make)_?[pP]assword\(",
    rb"(?i:password|passwd)[\\\"'\]]+\)\s*\.(?:fill|type|send|set)|--with-token|\senv\s+add\s",
    rb"(?:\b|\\[nrt])pass\s*[:=]\s*\\*[\"']?[^\s\"',;&\\]*[0-9!@#$%^*]|(?:\b|\\[nrt])send(?:_user)?\s+(?:--\s+)?\\*\"",
)
"""Hints at passwords in calls, in other files of configuration and in sessions of a terminal."""
_WORDS = (
    rb"sshpass|redis-cli|(?:\s|\\[nrt])-(?:u|-user|-proxy-user)|(?:mysql|mariadb)(?:-?dump|-?admin)?\s|login\s",
    rb"chpasswd|requirepass|\s-pass(?:in|out|word)?(?:\s|\\[nrt])+pass:",
    rb"(?:htpasswd|rabbitmqctl|wpa_passphrase|nmcli|ConvertTo-SecureString|sqlplus|expdp|impdp|sqlldr|lftp|cmdkey)\s",
    rb"(?:schtasks|[xl]freerdp3?|(?:\b|\\[nrt])7z[az]?|sqlcmd|bcp|osql|unzip|ipmitool|mosquitto_[ps]ub|mongo[a-z]*|[pP]s[eE]xec)\s",
    rb"(?:rdesktop|cqlsh|twine|useradd|usermod|openssl|snmp[a-z]+|smbclient|rpcclient|ldap[a-z]+)\s",
    rb"\bPASSWORD\(\\*['\"]|::add-mask::|jdbc:oracle:|-generic-password|\bbw\s|\b(?i:net)1?(?:\.exe)?\s+user?\s",
    rb"\b(?:zip|https?|sudo)\s|-stdin|passwd\s|--passphrase-fd|vncpasswd|\bkinit\b|cryptsetup|smbpasswd|secret\s+put",
    rb"(?:auth\s*=\s*|BasicAuth)\(",
    *_CALLS,
)
_NO_PIPE = rb"(?:[^|;\r\n\\]|\\[^nr])*"
"""The rest of a command up to an option, in text whose escapes are not yet undone."""
COMMAND_HINTS = (
    rb"(?:\s|\\[nrt])(?:-u|--user|--proxy-user)(?:\s|=)*\\*[\"']?[^\s:\"'\\\xff]+:[^\s\"'\xff]",
    rb"(?:mysql|mariadb)(?:-?dump|-?admin)?\s" + _NO_PIPE + rb"-p[^\s\xff]",
    rb"(?:docker|podman|az|helm|oc|skopeo|buildah)\s" + _NO_PIPE + rb"login\s" + _NO_PIPE + rb"-p",
    rb"\bbw\s+login|\bzip\s(?:" + _NO_PIPE + rb"\s)?-P|\bhttps?\s(?:" + _NO_PIPE + rb"\s)?(?:-a|--auth)[\s=]",
    rb"\bsudo\s" + _NO_PIPE + rb"(?:-[A-Za-z]*S\b|--stdin)|passwd\s" + _NO_PIPE + rb"--stdin",
    rb"(?:auth\s*=\s*|BasicAuth)\((?:\s|\\+[nrt])*\\*[\"']",
    rb"sshpass|redis-cli|-stdin|--passphrase-fd|vncpasswd|\bkinit\b|cryptsetup|smbpasswd|secret\s+put",
    rb"\bPASSWORD\(\\*['\"]|::add-mask::|jdbc:oracle:|-generic-password|\b(?i:net)1?(?:\.exe)?\s+user?\s",
    *_WORDS[1:5],
    *_CALLS,
)


@cache
def command_words() -> tuple[bytes, ...]:
    """Return words of which whatever ``COMMAND_HINTS`` find has one. Their automaton stays small in any text."""
    return alternatives(_WORDS)


_VALUE = rb"(?P<v>[^\s\"'\\\x00\xff]+)"
_UNUSUAL = rb"(?=[^\s\"']{0,80}[\d!@#$%^&*])"
_COOKIE_NAME = rb"[^=;\s\"'\\]{1,64}="
_COOKIES = (
    rb"(?:" + _COOKIE_NAME + rb"[^;\s\"'\x00\xff]{0,15};\s?){0,20}"
    rb"" + _COOKIE_NAME + rb"(?P<v>[^;\s\"'\x00\xff]{16,}(?:;\s?[^;\s\"'\x00\xff]{1,512}){0,20})"
)
_FILE = (
    rb"[\"']?[\w./~-]{0,80}(?:pass(?:word|wd|phrase)?|secret|token|cred(?:ential)?)s?(?:\.\w{1,12}){0,2}"
    rb"(?=[\"'\s]|$)[\"']?"
)
"""A file whose name tells of a secret."""
_LINE = (
    rb"[ \t]{0,9}\r?\n(?P<v>(?=\S{0,126}\d)(?=\S{0,126}[A-Za-z])[^\s\"'`/(){}\[\]<>=:,;\\\x00\xff]{8,128}={0,2})"
    rb"[ \t]{0,9}(?=[\r\n\xff]|$)"
)
"""The next line, if it is nothing but letters and digits that no word has."""
_READER = (
    rb"(?:sudo\s(?:[^|;&\n\xff]{0,80}?\s)?(?:-[A-Za-z]{0,5}S\b|--stdin)|(?:password|token)-stdin|secret\s{1,9}put"
    rb"|auth\s{1,9}login\s[^|;&\n\xff]{0,60}?--with-token|env\s{1,9}add\s{1,9}[A-Z]"
    rb"|passwd\s[^|;&\n\xff]{0,60}?--stdin|vncpasswd|kinit|cryptsetup|smbpasswd|gpg\s[^"
    rb"|;&\n\xff]{0,120}?--passphrase-fd)"
)
"""Commands that read a password from their input."""
_MACROS = {
    b"<value>": _VALUE,
    b"<word>": rb"(?![-<>|&;])" + _VALUE,
    b"<quoted>": rb"(?P<q>[\"'])(?P<v>[^\"'\\\n\x00\xff]{3,128})(?P=q)",
    b"<argument>": rb"(?:\"[^\"\n]{0,80}\"|'[^'\n]{0,80}'|[^\s\"'-][^\s\"']{0,120})",
    b"<user>": rb"[\"']?[^\s:\"'=/]{1,80}:",
    b"<oracle>": rb"(?P<v>[^\s\"'@/\\\x00\xff]{3,})",
    b"<reader>": _READER,
    b"<string>": rb"[\"'][^\"'\x00\xff]{1,200}[\"']",
    b"<unusual>": _UNUSUAL,
    b"<phrase>": rb"(?=[^\"'\n]{0,80}[\d\x20!@#$%^&*])[^\"'\n\\\x00\xff]{3,128}",
    b"<cookies>": _COOKIES,
    b"<file>": _FILE,
    b"<line>": _LINE,
    b"<heredoc>": rb"<<-?[ \t]?[\"']?\w{1,32}[\"']?",
}


@cache
def command_rows() -> tuple[tuple[bytes, tuple[bytes, ...], bytes, bytes], ...]:
    """Return each option, read when a text first has a command.

    A literal of it; the commands of which one is before it (none: the pattern says it); what would end the command
    between them; the pattern.
    """
    found = []
    for row in Path(__file__).with_name("commands.tsv").read_bytes().splitlines():
        if not row.startswith(b"#"):
            literal, commands, ends, pattern = row.split(b"\t")
            for macro, form in _MACROS.items():
                pattern = pattern.replace(macro, form)
            words = () if commands == b"-" else tuple(commands.split())
            found.append((literal, words, ends.replace(b"-", b"").replace(b"\\n", b"\n"), pattern))
    return tuple(found)


_SHORT = 2
"""Letters of a literal that is in many words, whose pattern fails at once in nearly all of them."""
_BEFORE_OPTION = 240
_OWNER = Lazy(rb"(?:[\d.]+:)?\d+:\d+(?:/\w+)?|\w+:(?:users|staff|root|wheel|\w*group|daemon|www-data|nogroup)")


def command_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the passwords that are given to commands in short options."""
    for start, end in _places(text):
        part, reach = text[start:end], text[max(0, start - _BEFORE_OPTION) : end]
        work.spend(CALL + 2 * len(part))
        for literal, commands, ends, pattern in command_rows():
            if literal not in part and not (literal == b"-u" and b"--" in part):
                continue
            if commands and not any(map(reach.__contains__, commands)):
                continue
            work.spend(24 * len(part) + (part.count(literal) * CALL if len(literal) > _SHORT else 0))
            for found in work.each(work.compiled(pattern).finditer(text, start, end)):
                work.spend(FINDING)
                before = text[max(0, found.start() - _BEFORE_OPTION) : found.start()]
                if commands and not _is_option_of(commands, ends, before):
                    continue
                place = found.start("v"), _end_of_argument(text, found)
                if _is_password(found, text[slice(*place)]):
                    yield Span(*place, "password", ADDRESS)


def _places(text: bytes) -> Iterator[tuple[int, int]]:
    for begin, stop in near_stretches(text, command_words()):
        part = text[begin:stop]
        if scanner(COMMAND_HINTS)(part) is not None:
            yield from ((begin + start, begin + end) for start, end in stretches(part, COMMAND_HINTS))


_IN_QUOTES = {quote: Lazy(rb"(?:[^%b\n\\\xff]|\\[^nr]){0,256}(?=%b)" % (quote, quote)) for quote in (b'"', b"'")}
_ESCAPED = Lazy(rb"(?:\\[^nrtu\"'\s\xff][^\s\"'\\\xff]{0,256}){0,16}")
_GOES_ON = (b" ", b"\t", b"\\", b'"', b"'")


def _end_of_argument(text: bytes, found: re.Match[bytes]) -> int:
    """Return where the argument ends that a password begins: at its closing quote, or after escaped signs."""
    end = found.end("v")
    if text[end : end + 1] not in _GOES_ON:
        return end
    before = text[found.start() : found.start("v")]
    quote, at = max(((quote, before.rfind(quote)) for quote in _IN_QUOTES), key=itemgetter(1))
    if at >= 0 and before.count(quote) % 2 and not before.endswith(b"\\", 0, at):
        rest = _IN_QUOTES[quote].match(text, end)
    else:
        rest = _ESCAPED.match(text, end)
    return rest.end() if rest else end


def _is_password(found: re.Match[bytes], value: bytes) -> bool:
    if len(value) < _MIN_PASSWORD or _OWNER.fullmatch(found.group().split()[-1].strip(b"\"'")):
        return False
    is_quoted = len(value) > len(found["v"]) or "q" in found.re.groupindex
    return is_quoted_password(value) if is_quoted else not is_stand_in(value)


_MIN_PASSWORD = 3


def _is_option_of(commands: tuple[bytes, ...], ends: bytes, before: bytes) -> bool:
    """Return whether one of the commands is what the text before an option belongs to."""
    before = before[max(before.rfind(bytes([end])) for end in ends + b"\xff") + 1 :]
    if b"docker" in commands and b"login" not in before:
        return False
    return any(re.search(rb"\b" + re.escape(word) + rb"\b", before) for word in commands if word in before)
