"""Secrets that an SQL statement puts into columns whose names tell of them."""

from __future__ import annotations

import json

from crystal.redact import Redactor
from tests.support.table import each_row

REDACTOR = Redactor(b"a key of this machine")

GOES = [
    "INSERT INTO users (name, password) VALUES ('ada', '{}');",
    "insert into `users` (`id`, `api_token`)\nvalues (1, '{}'), (now(), 'word')",
    'INSERT OR REPLACE INTO "app"."users" ("password", "age") VALUES (\'{}\', 3)',
    "db.execute(\"INSERT INTO users (id, pwd, note) VALUES (2, '{}', 'it''s')\")",
    "REPLACE INTO users (a, b, secret)\n  VALUES (1, 2, 'x1'), (NULL, f(2), N'{}')",
]
STAYS = [
    "INSERT INTO users (name, password) VALUES (?, ?)",
    "INSERT INTO users (name, password) VALUES ('ada', :password), (%s, $2)",
    "INSERT INTO users (name, password) VALUES ('k3JdQ92mXz81LpQw', 'password')",
    "INSERT INTO users (name, city) VALUES ('ada', 'k3JdQ92mXz81LpQw')",
    "INSERT INTO users (password) SELECT 'k3JdQ92mXz81LpQw' FROM b; VALUES (",
    "INSERT INTO tokens (token, note) VALUES ('cursor', 'a plain word')",
]


@each_row("statement", GOES)
def test_a_secret_goes_from_its_column(statement: str) -> None:
    line = json.dumps({"a": statement.replace("{}", "k3JdQ92mXz81LpQw")}).encode()
    clean, findings = REDACTOR.clean_line(line)
    assert sum(findings.values()) == 1
    assert json.loads(clean)["a"].split("[redacted:")[0] == statement.split("{}", maxsplit=1)[0]
    assert json.loads(clean)["a"].endswith(statement.split("{}")[1])


@each_row("statement", STAYS)
def test_other_columns_and_placeholders_stay(statement: str) -> None:
    assert REDACTOR.clean_text(statement) == (statement, {})
