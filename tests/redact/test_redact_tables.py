"""Secrets in the columns of tables go; everything else in a table stays."""

from __future__ import annotations

import json

from crystal.redact import Redactor
from tests.support.redact_samples import ALNUM, drawn
from tests.support.table import each_row

SECRET = drawn(ALNUM, 24)
TABLES = (
    "user,password\nada,hunter2\nbob,swordfish\n",
    "password;role\r\nhunter2;P,Q\r\nswordfish;admin\r\n",
    "name\tpassword\nada\thunter2\nbob\tswordfish",
    "     1\tuser,password\n     2\tada,hunter2\n     3\tbob,swordfish\n",
    "$ cat users.csv\nid,email,db_password\n1,ada@b.c,hunter2\n2,b@c.d,swordfish\n\nuser, that is all\n",
    "| user | password |\n|---|:---|\n| ada | hunter2 |\n| a\\|b | `swordfish` |\n",
    "     1→| user | password |\n     2→|---|---|\n     3→| ada | hunter2 |\n     4→| b | swordfish |\n",
    " id | user | password \n----+------+----------\n  1 | ada  | hunter2\n  2 | bob  | swordfish\n(2 rows)\n",
    "+-----+-----------+\n| user| password  |\n+-----+-----------+\n| ada | hunter2   |\n| bob | swordfish |\n+---+\n",
    f"service,api_token\ngit,hunter2\nhub,{SECRET}\n",
    f"User name,Access key ID,Secret access key,Console link\nada,hunter2,{SECRET},https://x\n",
)
INNOCENT = (
    "user,password\n",
    "user,password\nthe end of it\nada;hunter2\n",
    "| Parameter | Password |\n|---|---|\n| rotation | manual |\n| length | at least 8 |\n",
    "| user | password |\n|---|---|\n| ada | `<password>` |\n| bob | ****** |\n| eve | required |\n| x | a.b() |\n",
    "from x import user,password\nfrom y import names,hunter2\n",
    "| model | tokens |\n|---|---|\n| small | 12345 |\n| large | 99.1 % |\n",
    "sort key,user\n8f14e45fceea167a5a36dedd4bea2543,ada\n",
    "call(user,\n    password,\n    email)\n",
    "Forgot password\n---------------\n\nadmin | hunter2\n",
    "user,password" + "-" * 5000 + "x\na,b\n",
)


def at_each_level(text: str) -> list[bytes]:
    inside = json.dumps({"stdout": text, "code": 0})
    return [text.encode(), json.dumps({"a": text}).encode(), json.dumps({"a": inside}, ensure_ascii=False).encode()]


@each_row("text", TABLES)
def test_a_secret_goes_from_the_column_that_tells_of_it(redactor: Redactor, text: str) -> None:
    secrets = [word for word in ("hunter2", "swordfish", SECRET) if word in text]
    if SECRET in text:
        secrets.remove("hunter2")  # it stands in another column, or is not random enough for a token
    for line in at_each_level(text):
        clean, findings = redactor.clean_line(line)
        assert sum(findings.values()) == len(secrets), line
        assert not any(secret.encode() in clean for secret in secrets), line
        assert redactor.clean_line(clean) == (clean, {})
        assert clean.count(b"|") == line.count(b"|")


@each_row("text", INNOCENT)
def test_what_only_looks_like_a_table_of_secrets_stays(redactor: Redactor, text: str) -> None:
    for line in at_each_level(text):
        assert redactor.clean_line(line) == (line, {})


def test_a_string_that_ends_with_a_table_in_nested_json_keeps_its_end(redactor: Redactor) -> None:
    line = json.dumps({"a": json.dumps({"stdout": "user,password\nada,hunter2", "code": 0})}).encode()
    inner = json.loads(json.loads(redactor.clean_line(line)[0])["a"])
    assert inner["stdout"].startswith("user,password\nada,[redacted:password:")
    assert inner["code"] == 0
