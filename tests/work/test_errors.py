"""An error is recognised again, whatever of its paths, numbers, times, hashes and colours has changed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.work.errors import MAX_CHARACTERS, error_lines, plain_error
from tests.support.table import each_row


@each_row(
    ("one", "other"),
    [
        ("/home/a/src/cart.py:12: TypeError: cannot add str to int", "C:\\b\\src\\x.py:7: TypeError: cannot add str to int"),
        ("\x1b[31merror\x1b[0m: cannot find value `total` in this scope", "error: cannot find value `total` in this scope"),
        ("fatal: unable to read e53647ba1f1e5203bedff558b482f178db045555", "fatal: unable to read 1a2b3c4d5e6f7a8b"),
        ("2026-01-02T03:04:05Z connection refused by host 10.0.0.1:5432",
         "2025-12-31 23:59:59.123 connection refused by host 10.12.0.7:6543"),
        ("cannot fetch https://a.example/x?y=1 in 20 tries", "cannot fetch http://b.example/ in 3 tries"),
        ("clean.go:221:3: error is not nil (line 219) but it returns nil", "a/b.go:1:9: error is not nil (line 8) but it returns nil"),
        ("panic: invalid address 0xdeadbeef at offset", "panic: invalid address 0x00c0ffee at offset"),
        ("E   ModuleNotFoundError: No module named 'yaml'", "ModuleNotFoundError: No module named 'yaml'"),
        ("bash: line 12: ruff: command not found", "zsh: command not found: ruff"),
        ("(eval):1: command not found: ruff", "/bin/sh: 1: ruff: not found"),
        ('connection to server at "localhost" (127.0.0.1), port 5432 failed: Connection refused',
         'connection to server at "localhost" (10.0.0.5), port 6543 failed: Connection refused'),
        ("2026-02-03T10:11:12Z cmd/x.go:146:2: Error return value is not checked", "Error return value is not checked"),
        ("[12:01:22.5] x.go:7:2: undefined: total in scope", "b.go:7:2: undefined: total in scope"),
        ('vet: ./x.go:1:2: "io" imported and not used', '"io" imported and not used'),
        ("##[error]x.go:7:2: S1023: redundant return statement (staticcheck)", "S1023: redundant return statement (staticcheck)"),
        ("2026-02-03T10:11:12.1234567Z ##[error]Error: x.go:7:2: undefined: total in scope", "x.go:7:2: undefined: total in scope"),
        ("::error file=x.go,line=7,col=2::undefined: total in scope", "undefined: total in scope"),
        ("[lint:go] a/x.go:7:2: undefined: total in scope", "undefined: total in scope"),
        ("web-1  | Error: total is not defined", "Error: total is not defined"),
        ("3:7   error  'total' is assigned a value but never used", "88:11  error  'total' is assigned a value but never used"),
        ("port-db-1: Bind for 0.0.0.0:5432 failed: port is in use", "port-db-2: Bind for 0.0.0.0:80 failed: port is in use"),
        ("x.go:1:2: result of `a.B` is not checked (errcheck)", "b.go:7:2: result of `json.Load` is not checked (errcheck)"),
        ("x.go:1:2: error is unwrapped: sig: func a.B(c int) error (wrapcheck)",
         "b.go:1:2: error is unwrapped: sig: func (*d.E).F() (int, error) (wrapcheck)"),
        ("Error: x.go:1:1: undefined: total in scope", "C:\\b\\x.go:2:1: undefined: total in scope"),
        ("./x.go:1:1: undefined: total", "C:\\b\\x.go:2:1: undefined: total"),
        ("x.go:1:1: no new variables on left side of :=", "b/y.go:22:9: no new variables on left side of :="),
        ("(eval):1: no matches found: src/*.go", "(eval):1: no matches found: /tmp/*.py"),
        ("./a.go:3:3: undefined: total", "pkg/a.go:31:13: undefined: total (typecheck)"),
        ("src/a.ts(12,5): error TS2304: Cannot find name 'foo'.", "src/b.ts:1:55 - error TS2304: Cannot find name 'foo'."),
        ("ERROR tests/a.py - ModuleNotFoundError: No module named 'yaml'", "E   ModuleNotFoundError: No module named 'yaml'"),
        ("requests.exceptions.ConnectionError: Max retries failed", "ConnectionError: Max retries failed"),
        ('npm ERR! Missing script: "build"', 'npm error Missing script: "build"'),
        ("e: file:///a/B.kt:12:5 Unresolved reference: expected", "e: /b/B.kt: (1, 7): Unresolved reference: expected"),
        ("B.java:3: error: missing package com.acme", "[ERROR] /x/B.java:[3,5] missing package com.acme"),
        ("a.c:3:5: error: 'x' undeclared here", "b.c:3:5: error: ‘x’ undeclared here"),
        ("Uncaught (in promise) TypeError: cannot read 'total'", "Unhandled Rejection (TypeError): cannot read 'total'"),
        ("Error: listen: address must be free :::3000", "Error: listen: address must be free 127.0.0.1:80"),
        ("error: foo@v1.4.0-rc.1 needed 1.76.0-nightly of it", "error: foo@1.3 needed 1.75 of it"),
        ("thread 'main' panicked at src/a.rs:3:5: index 9 must fit", "thread 'main' (77) panicked at b.rs:1:1: index 3 must fit"),
        ("no such job 0bb9a2d9-a51e-4d5a-8275-566c766a0ff2 is known", "no such job e7eb742c-bdac-4824-afdb-20b63ca6b6dd is known"),
    ],
)  # fmt: skip
def test_what_differs_each_time_does_not_count(one: str, other: str) -> None:
    assert plain_error(one) == plain_error(other) != ""


@each_row(
    ("one", "other"),
    [
        ("ModuleNotFoundError: No module named 'yaml'", "ModuleNotFoundError: No module named 'toml'"),
        ("undefined: testCommitOptions in this package", "undefined: setStrategyForTest in this package"),
        ("x.go:3:2: undefined: regexp", "x.go:3:2: undefined: strings"),
        ("x.go:3:2: declared and not used: total", "x.go:3:2: declared and not used: sum"),
        ("12:01 is an invalid time for this job", "12:01 is an invalid date for this job"),
        ("error: unknown name `total` in scope", "error: unknown name `sum` in scope"),
        ("error: no package `left` found (needed by `shop`)", "error: no package `right` found (needed by `shop`)"),
        ("a.py:1:2: error: no module `left` (see setup)", "a.py:1:2: error: no module `right` (see setup)"),
        ("fatal: unrecognized argument: --no-stat", "fatal: unrecognized argument: --stat"),
    ],
)
def test_what_an_error_is_about_counts(one: str, other: str) -> None:
    assert plain_error(one) != plain_error(other)


@each_row(
    "line",
    ["", "ok", "Error", "exit status 1", "Exit code 1", "[lint] ERROR task failed", "--- FAIL: TestReset (0.02s)", "FAIL pkg/x 0.3s",
     "warning: this is deprecated and should not be used", "12 passed, 1 failed in 3 s", "All is well with these files.",
     "conflict_test.go:54: Created shadow branch in this folder",
     "error: " + "x" * MAX_CHARACTERS, "Cart.java:7: error: cannot find symbol", "hint: you may need to run git pull first"],
)  # fmt: skip
def test_a_line_that_says_too_little_is_none(line: str) -> None:
    assert error_lines(line) == []


@each_row(
    ("text", "file"),
    [
        ("cart.go:3:1: undefined: total in this scope", "cart.go"),
        ("error[E0308]: mismatched types, expected i32\n   --> src/cart.rs:4:5\n", "cart.rs"),
        ('  File "/a/shop/cart.py", line 3, in total\n    x + 1\nTypeError: unsupported operands, expected int', "cart.py"),
        ("E   TypeError: unsupported operand types for sum\n\ntests/test_cart.py:12: TypeError", "test_cart.py"),
        ("app.ts(12,5): error TS2304: Cannot find name 'total' here.", "app.ts"),
        ("error: context deadline was exceeded by host\n    reset_test.go:87: Expected a message, got none", None),
        ("CONFLICT (content): Merge conflict in cart.go", None),
        ("/w/src/pay.js\n   1:1   warning  no\n   3:7   error  'total' is assigned but never used", "pay.js"),
        ("[ERROR] /w/Cart.java:[22,17] incompatible types: int cannot be converted", "Cart.java"),
        ("TypeError: cannot read properties of undefined\n\n  at x (node:net:1:2)\n  at y (src/cart.js:11:20)", "cart.js"),
        ("Cart.java:7: error: cannot find symbol\n  Basket b;\n  ^\n  symbol:   class Basket", "Cart.java"),
    ],
)  # fmt: skip
def test_an_error_is_about_the_file_that_it_points_into(text: str, file: str | None) -> None:
    assert error_lines(text)[0].file == file


def test_a_panic_has_the_message_that_it_prints_below() -> None:
    for name in ("main", "worker"):
        (found,) = error_lines(f"thread '{name}' panicked at src/cart.rs:7:2:\nindex 3 out of bounds\nnote: run it")
        assert (found.plain, found.file) == ("panicked: <path> index 0 out of bounds", "cart.rs")
    assert error_lines("thread 'main' panicked at src/cart.rs:7:2:") == []


def test_javacs_error_has_the_symbol_that_it_prints_below() -> None:
    one, other = (error_lines(f"A.java:7: error: cannot find symbol\n ^\n symbol: class {name}") for name in ("A", "B"))
    assert one[0].plain.endswith("symbol: class a")
    assert one[0].plain != other[0].plain


@given(st.text())
def test_any_output_has_bounded_errors(text: str) -> None:
    for one in error_lines(text):
        assert plain_error(one.text) == one.plain
        assert len(one.text) <= MAX_CHARACTERS


def test_an_error_is_found_below_a_thousand_lines_that_tell_of_none() -> None:
    assert len(error_lines("tests/test_cart.py ok\n" * 1_000 + "TypeError: cannot add str to int")) == 1


@pytest.mark.slow
def test_hostile_output_costs_little() -> None:
    started = time.process_time()
    for piece in ("error a/", "error a.", "error ab12", "error: 1.", "error -a", 'File "a/', "a.b:1 error"):
        error_lines("\n".join([(piece * MAX_CHARACTERS)[:MAX_CHARACTERS]] * 400))
    assert time.process_time() - started < 3
