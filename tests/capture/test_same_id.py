"""A line with a known id is the same line also if other rules of redaction were used on it."""

from __future__ import annotations

import uuid

from crystal.capture.tail import Cleaner
from crystal.redact import Redactor
from tests.support.capture_machine import CaptureMachine, line

SECRET = "AKIA" + "Q3EGRIRTOFZZPPA4"


def test_what_other_rules_take_out_makes_no_other_turn(machine: CaptureMachine) -> None:
    said = line(f"the key is {SECRET} here", ident=str(uuid.uuid4())) + line("and more", ident=str(uuid.uuid4()))
    keeps = Cleaner(Redactor(b"r" * 32, secrets=False).clean_line, b"k" * 32)
    machine.transcript("kept").write_bytes(said)
    machine.capture()._replace(cleaner=keeps).sweep()
    before = machine.texts()
    assert any(SECRET in text for text in before)
    machine.transcript("fork").write_bytes(said)
    machine.capture().sweep()
    assert machine.texts() == before


def test_nor_does_a_secret_that_is_not_taken_out_any_more(machine: CaptureMachine) -> None:
    said = line(f"the key is {SECRET} here", ident=str(uuid.uuid4()))
    machine.transcript("kept").write_bytes(said)
    machine.capture().sweep()
    before = machine.texts()
    assert not any(SECRET in text for text in before)
    keeps = Cleaner(Redactor(b"r" * 32, secrets=False).clean_line, b"k" * 32)
    machine.transcript("fork").write_bytes(said)
    machine.capture()._replace(cleaner=keeps).sweep()
    assert machine.texts() == before


def test_a_line_of_which_nothing_is_left_hides_no_other(machine: CaptureMachine) -> None:
    lines = ("<private>a whole secret</private>", "other words", f"{SECRET}", "and others")
    machine.transcript("s").write_bytes(b"".join(line(text, ident="the same") for text in lines))
    machine.capture().sweep()
    assert {"other words", "and others"} <= {*machine.texts()}
