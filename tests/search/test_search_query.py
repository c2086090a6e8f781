import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.text.query import MAX_TERMS, parse_query, unspaced_pairs
from tests.support.table import each_row


def test_words_that_are_everywhere_are_left_out():
    assert parse_query("how did we fix the login").terms == ("fix", "login")


def test_a_question_of_nothing_else_keeps_them():
    assert parse_query("to be").terms == ("to", "be")
    assert parse_query("What is it?").terms == ("What", "is", "it")


def test_quoted_words_are_a_phrase():
    asked = parse_query('"connection refused" nginx')
    assert asked.phrases == ("connection refused",)
    assert asked.terms == ("nginx",)


@each_row("text", ["\u201cconnection refused\u201d", "\u201econnection refused\u201c", '" connection  refused "'])
def test_quotation_marks_of_other_kinds_work_too(text):
    assert parse_query(text).phrases == ("connection refused",)


def test_an_open_quotation_mark_is_no_phrase():
    asked = parse_query('say "hello')
    assert (asked.phrases, asked.terms) == ((), ("say", "hello"))


@each_row(
    ("text", "compound", "terms"),
    [
        ("foo_bar.baz()", "foo_bar.baz", ("foo", "bar", "baz")),
        ("src/a/b.py", "src/a/b.py", ("src", "b", "py")),
        ("--no-emit-index-url", "no-emit-index-url", ("no", "emit", "index", "url")),
        ("v1.2.3", "v1.2.3", ("v1", "2", "3")),
        ("std::vector<int>", "std::vector<int", ("std", "vector", "int")),
        ("C:\\Users\\me", "C:\\Users\\me", ("C", "Users")),
    ],
)
def test_an_identifier_is_a_phrase_of_its_parts_and_looked_for_literally(text, compound, terms):
    asked = parse_query(text)
    assert (asked.compounds, asked.terms, asked.is_literal) == ((compound,), terms, True)


def test_a_possessive_is_no_compound():
    assert parse_query("Caroline's brother").compounds == ()
    assert parse_query("Caroline\u2019s brother").terms == ("Caroline", "brother")


def test_pairs_of_scripts_without_spaces():
    assert unspaced_pairs("数据库 error ok") == ("数据", "据库")
    assert unspaced_pairs("猫") == ("猫",)
    assert unspaced_pairs("plain") == ()


@pytest.mark.slow
@given(st.text() | st.text(alphabet='"()*^:-+{}ANDORNEAR \x00\ud800é数'))
def test_any_string_can_be_taken_apart(text):
    asked = parse_query(text)
    asked.text.encode()
    assert "\x00" not in asked.text
    assert len(asked.terms) <= MAX_TERMS
    for part in (*asked.phrases, *asked.compounds, *asked.terms):
        assert any(character.isalnum() for character in part)
        assert '"' not in asked.terms


def test_a_pasted_log_is_cut_instead_of_slow():
    asked = parse_query("error line number " * 60_000)
    assert len(asked.text) <= 10_000
    assert asked.terms == ("error", "line", "number")
