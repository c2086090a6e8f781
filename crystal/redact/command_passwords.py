"""Find passwords in the arguments of commands, and in what is piped into them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crystal.redact.judge import is_stand_in
from crystal.redact.regex_engines import Lazy, compiled, scanner, stretches
from crystal.redact.spans import ADDRESS, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

COMMAND_WORDS = (
    rb"sshpass|redis-cli|(?:\s|\\[nrt])-(?:u|-user|-proxy-user)|(?:mysql|mariadb)[\s-]|login\s",
    rb"chpasswd|requirepass|\s-pass(?:in|out|word)?(?:\s|\\[nrt])+pass:",
    rb"(?:htpasswd|rabbitmqctl|wpa_passphrase|nmcli|ConvertTo-SecureString|sqlplus|expdp|impdp|sqlldr|lftp|cmdkey)\s",
    rb"(?:schtasks|[xl]freerdp3?|7z[az]?|sqlcmd|bcp|osql|unzip|ipmitool|mosquitto_[ps]ub|mongo[a-z]*|[pP]s[eE]xec)\s",
    rb"(?:rdesktop|cqlsh|twine|useradd|usermod|openssl|snmp[a-z]+|smbclient|rpcclient|ldap[a-z]+)\s",
    rb"\bPASSWORD\(\\*['\"]|::add-mask::|jdbc:oracle:|-generic-password|\bbw\s|\b(?i:net)1?(?:\.exe)?\s+user?\s",
    rb"\b(?:zip|https?|sudo)\s|-stdin|passwd\s|--passphrase-fd|vncpasswd|\bkinit\b|cryptsetup|smbpasswd|secret\s+put",
    rb"(?:auth\s*=\s*|BasicAuth)\(",
)
"""Words of which one stands in all that ``COMMAND_HINTS`` find: their automaton stays small, whatever it reads."""

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
    *COMMAND_WORDS[1:5],
)
_VALUE = rb"(?P<v>[^\s\"'\\\x00\xff]{3,})"
_CURL = tuple(b"curl wget http xh lftp ab smbclient https".split())
_LOGIN = tuple(b"docker podman az helm oc skopeo buildah".split())
_USER_OPTION = rb"(?<=\s)(?:-u|--user|--proxy-user)[\s=]{0,64}[\"']?[^\s:\"'=/\x00\xff]{1,80}:" + _VALUE
_CHPASSWD = rb"""(?x) \becho\s{1,64}["']?[\w.-]{1,40}:(?P<v>[^\s"'\\\x00\xff]{3,256})["']?
    \s{0,64}\|\s{0,64}(?:sudo\s{1,64})?chpasswd"""
_AUTH_PAIR = (
    rb"(?:\bauth\s{0,4}=\s{0,4}|BasicAuth)\(\s{0,20}[\"'][^\"'\x00\xff]{1,80}[\"']\s{0,4},\s{0,20}[\"']" + _VALUE
)
_WORD = rb"(?![-<>|&;])" + _VALUE
_ARGUMENT = rb"(?:\"[^\"\n]{0,80}\"|'[^'\n]{0,80}'|[^\s\"'-][^\s\"']{0,120})"
_USER_AND = rb"[\"']?[^\s:\"'=/]{1,80}:"
_ORACLE = rb"(?P<v>[^\s\"'@/\\\x00\xff]{3,})"
_NET_VALUE = (
    rb"(?P<v>(?=[^\s\"']{0,40}[\d!@#$%^&*])[^\s\"'/\\\x00\xff][^\s\"'\\\x00\xff]{2,}"
    rb"|[^\s\"'/\\\x00\xff]{3,}(?=[\"']?\s{1,9}/[a-z]))"
)
_MYSQL = tuple(b"mysql mysqldump mysqladmin mariadb mariadb-dump mariadb-admin 7z 7za 7zz".split())
_MONGO = tuple(
    b"mongosh mongo mongodump mongorestore mongoimport mongoexport psexec PsExec rdesktop cqlsh twine useradd"
    b" usermod".split()
)
_SQLCMD = tuple(b"sqlcmd bcp osql zip unzip ipmitool mosquitto_pub mosquitto_sub".split())
_LDAP = tuple(
    b"ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd add-generic-password add-internet-password".split()
)
_SNMP = tuple(b"snmpwalk snmpget snmpset snmpbulkwalk snmptrap".split())
_WINDOWS = tuple(b"xfreerdp xfreerdp3 wlfreerdp cmdkey schtasks".split())
_HTPASSWD = (
    rb"\bhtpasswd(?=[^|;\n\xff]{0,80}?\s-[A-Za-z]{0,6}b)(?:\s{1,9}-\w{1,9}|\s{1,9}\d{1,3}(?=\s)){1,6}"
    rb"(?:\s{1,9}"
    + _ARGUMENT
    + rb"){1,2}\s{1,9}[\"']?"
    + _WORD
    + rb"[\"'\\]{0,4}(?=[ \t]*(?:$|[|;&>#)}\],`\\\r\n\xff]))"
)
_READER = (
    rb"(?:sudo\s(?:[^|;&\n\xff]{0,80}?\s)?(?:-[A-Za-z]{0,5}S\b|--stdin)|(?:password|token)-stdin|secret\s{1,9}put"
    rb"|passwd\s[^|;&\n\xff]{0,60}?--stdin|vncpasswd|kinit|cryptsetup|smbpasswd|gpg\s[^|;&\n\xff]{0,120}?--passphrase-fd)"
)
"""Commands that read a password from their input."""
_PIPED = (
    rb"\b(?:echo|printf)\s{1,9}(?:-[neE]{1,3}\s{1,9}|[\"']%s(?:\\+n|\n)?[\"']\s{1,9}){0,2}[\"']?(?!-)"
    rb"(?P<v>[^\s\"'\\\x00\xff]{3,256})(?:\\+n|\n)?[\"']?\s{0,9}\|[^|;&\n\xff]{0,200}?(?<![\w-])(?:--)?" + _READER
)
_RABBIT = (
    rb"\brabbitmqctl\s[^|;&\n\xff]{0,80}?(?:add_user|change_password|authenticate_user)\s{1,9}"
    + _ARGUMENT
    + rb"\s{1,9}[\"']?"
    + _WORD
)
COMMANDS: tuple[tuple[bytes, tuple[bytes, ...], bytes, bytes], ...] = (
    (b"sshpass", (), b"", rb"\bsshpass\s+-p\s*[\"']?" + _VALUE),
    (b"-a", (b"redis-cli",), b"\n|;", rb"(?<=\s)-a\s{0,64}[\"']?" + _VALUE),
    (b"-p", _MYSQL, b"\n|;", rb"(?<=\s)-p[\"']?" + _VALUE),
    (b"-u", _CURL, b"|;", _USER_OPTION),
    (b"-p", _LOGIN, b"\n|;", rb"(?<=\s)-p[\s=]{0,64}[\"']?" + _VALUE),
    (b"chpasswd", (), b"", _CHPASSWD),
    (b"pass:", (), b"", rb"(?<=\s)-pass(?:in|out|word)?\s{1,64}pass:" + _VALUE),
    (b"requirepass", (), b"", rb"\brequirepass\s{1,64}[\"']?" + _VALUE),
    (b"(", (), b"", _AUTH_PAIR),
    (b"-p", _MONGO, b"\n|;&", rb"(?<=\s)-p[\s=]{1,64}[\"']?" + _WORD),
    (b"-P", _SQLCMD, b"\n|;&", rb"(?<=\s)-P\s{0,64}[\"']?" + _WORD),
    (b"-w", _LDAP, b"\n|;&", rb"(?<=\s)-w\s{1,64}[\"']?" + _WORD),
    (b"-k", (b"openssl",), b"\n|;&", rb"(?<=\s)-k\s{1,64}[\"']?" + _WORD),
    (b"-A", _SNMP, b"\n|;&", rb"(?<=\s)-[AX]\s{1,64}[\"']?" + _WORD),
    (b"%", (b"smbclient", b"rpcclient"), b"\n|;", rb"(?<=\s)(?:-U|--user)[\s=]{0,9}[\"']?[^\s%\"']{1,80}%" + _VALUE),
    (b"/", _WINDOWS, b"\n|;", rb"(?i)(?<=\s)/(?:p:|pass:|rp\s{1,9})[\"']?" + _WORD),
    (
        b"-a",
        (),
        b"",
        rb"(?<![\w./:])https?\s{1,9}(?:[^\s|;]{1,80}\s{1,9}){0,6}?(?:-a|--auth)[\s=]{1,9}" + _USER_AND + _VALUE,
    ),
    (b"htpasswd", (), b"", _HTPASSWD),
    (b"|", (), b"", _PIPED),
    (b"<<<", (), b"", rb"(?:--|\b)" + _READER + rb"[^|;&\n\xff]{0,120}?<<<\s{0,9}[\"']?" + _WORD),
    (b" user", (), b"", rb"(?i)(?<![.\w-])net1?(?:\.exe)?\s{1,9}user\s{1,9}[^\s/\"']{1,64}\s{1,9}[\"']?" + _NET_VALUE),
    (
        b" use",
        (),
        b"",
        rb"(?i)(?<![.\w-])net1?(?:\.exe)?\s{1,9}use\s{1,9}(?:\S{1,3}\s{1,9})?\\\\{1,4}\S{1,200}\s{1,9}" + _WORD,
    ),
    (b"::add-mask::", (), b"", rb"::add-mask::" + _WORD),
    (b"SecureString", (), b"", rb"(?i)\bConvertTo-SecureString\s{1,9}(?:-String\s{1,9})?[\"']?" + _WORD),
    (b"-u", (b"lftp",), b"\n|", rb"(?<=\s)-u\s{1,9}[\"']?[^\s,:\"']{1,80}," + _VALUE),
    (b"/", (), b"", rb"\b(?:sqlplus|expdp|impdp|sqlldr)\s{1,9}(?:-\w{1,9}\s{1,9}){0,3}[\"']?[\w.$#]{1,40}/" + _ORACLE),
    (b"jdbc:oracle:", (), b"", rb"jdbc:oracle:\w{2,5}:[\w.$#]{1,40}/" + _ORACLE),
    (b"rabbitmqctl", (), b"", _RABBIT),
    (b"password", (b"nmcli",), b"\n|;&", rb"(?<=\s)password\s{1,9}[\"']?" + _WORD),
    (b"wpa_passphrase", (), b"", rb"\bwpa_passphrase\s{1,9}" + _ARGUMENT + rb"\s{1,9}[\"']?" + _WORD),
    (b"login", (), b"", rb"\bbw\s{1,9}login\s{1,9}[^\s@\"']{1,80}@[^\s\"']{1,80}\s{1,9}[\"']?" + _WORD),
    (b"PASSWORD(", (), b"", rb"\bPASSWORD\([\"']" + _VALUE),
    (
        b"passwd",
        (),
        b"",
        rb"\bopenssl\s{1,9}passwd(?:\s{1,9}-salt\s{1,9}\S{1,40}|\s{1,9}-\w{1,9}){1,5}\s{1,9}[\"']?" + _WORD,
    ),
)
"""Each option: a literal of it; the commands of which one stands before it (none: the pattern says it); what would
end the command between them; the pattern."""

_SHORT = 2
"""Letters of a literal that stands in many words, whose pattern fails at once in nearly all of them."""
_BEFORE_OPTION = 240
_OWNER = Lazy(rb"(?:[\d.]+:)?\d+:\d+(?:/\w+)?|\w+:(?:users|staff|root|wheel|\w*group|daemon|www-data|nogroup)")


def command_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the passwords that are given to commands in short options."""
    if scanner(COMMAND_HINTS)(text) is None:
        return
    for start, end in stretches(text, COMMAND_HINTS):
        part = text[start:end]
        work.spend(CALL + 2 * len(part))
        for literal, commands, ends, pattern in COMMANDS:
            if literal not in part and not (literal == b"-u" and b"--" in part):
                continue
            work.spend(24 * len(part) + (part.count(literal) * CALL if len(literal) > _SHORT else 0))
            for found in work.each(compiled(pattern).finditer(text, start, end)):
                work.spend(FINDING)
                before = text[max(0, found.start() - _BEFORE_OPTION) : found.start()]
                if commands and not _is_option_of(commands, ends, before):
                    continue
                if not is_stand_in(found["v"]) and not _OWNER.fullmatch(found.group().split()[-1].strip(b"\"'")):
                    yield Span(*found.span("v"), "password", ADDRESS)


def _is_option_of(commands: tuple[bytes, ...], ends: bytes, before: bytes) -> bool:
    """Return whether one of the commands is what the text before an option belongs to."""
    before = before[max(before.rfind(bytes([end])) for end in ends + b"\xff") + 1 :]
    if commands is _LOGIN and b"login" not in before:
        return False
    return any(re.search(rb"\b" + re.escape(word) + rb"\b", before) for word in commands if word in before)
