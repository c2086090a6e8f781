"""Claims about the providers behind a network: what they are asked, and what becomes of every way to fail."""

from __future__ import annotations

import math
import socket
from array import array

import pytest

from crystal.embedding.chosen_embedder import make_embedder
from crystal.embedding.pending import embed_pending
from crystal.errors import (
    CrystalError,
    DeniedError,
    ModelUnavailableError,
    NotConfiguredError,
    ServerFaultError,
    TextRefusedError,
    UnavailableError,
    UsageError,
    WrongAnswerError,
)
from crystal.provider_http import post
from crystal.provider_http.post import labels, parsed, refusal, retry_after, shown
from crystal.store import Store
from crystal.store.problems import find_problem, list_problems
from crystal.store.search import vectors
from tests.support import providers_server as server
from tests.support.embedding_store import NOW, add_chunk
from tests.support.providers_server import KEY, Providers, providers  # noqa: F401 - the fixture
from tests.support.table import each_row

USUAL = {"openai": 1536, "ollama": 768, "google": 768, "voyage": 512}

every_provider = pytest.mark.parametrize("provider", USUAL)


def embedder(providers: Providers, provider: str, **more):  # noqa: F811
    more = {"base_url": providers.base_url(provider), "key": KEY, **more}
    return make_embedder(provider, **more)


def numbers(held: bytes) -> list[float]:
    return list(array("f", held))


# ------------------------------------------------------------------------------------------------- what is asked


@pytest.mark.slow
@every_provider
def test_documents_come_back_in_order_as_unit_vectors_of_the_usual_dimension(providers, provider):  # noqa: F811
    texts = [f"text {n}" for n in range(5)]
    made = embedder(providers, provider).embed_documents(texts)
    assert [len(v) for v in made] == [4 * USUAL[provider]] * 5
    assert all(math.isclose(math.hypot(*numbers(v)), 1, abs_tol=1e-5) for v in made)
    sent = {"google": "RETRIEVAL_DOCUMENT", "voyage": "document"}.get(provider, "")
    prefix = "search_document: " if provider == "ollama" else ""
    for text, vector in zip(texts, made, strict=True):
        expected = server.vector(prefix + text, USUAL[provider], sent)
        assert numbers(vector) == pytest.approx(expected, abs=1e-5)


@each_row(
    ("provider", "text", "purpose"),
    [
        ("openai", "why", ""),
        ("ollama", "search_query: why", ""),
        ("google", "why", "RETRIEVAL_QUERY"),
        ("voyage", "why", "query"),
    ],
)
def test_a_question_is_embedded_as_a_question(providers, provider, text, purpose):  # noqa: F811
    made = embedder(providers, provider).embed_query("why")
    assert numbers(made) == pytest.approx(server.vector(text, USUAL[provider], purpose), abs=1e-5)


@pytest.mark.slow
@every_provider
def test_many_texts_go_in_several_requests_and_no_texts_in_none(providers, provider):  # noqa: F811
    asked = embedder(providers, provider, dimension=8)
    assert asked.embed_documents([]) == []
    assert providers.asked == []
    assert len(asked.embed_documents([f"text {n}" for n in range(300)])) == 300
    assert len(providers.asked) > 1
    asked.embed_documents(["x" * 30_000] * 9)


@every_provider
def test_blank_texts_surrogates_and_nul_are_sent_as_what_every_provider_takes(providers, provider):  # noqa: F811
    made = embedder(providers, provider).embed_documents(["", " \n", "\ud800 half", "nul \0 byte", "😀"])
    assert len(made) == 5


def test_models_and_dimensions_of_choice_are_asked_for(providers):  # noqa: F811
    for provider, model, dimension, field in (
        ("openai", "text-embedding-3-large", 256, "dimensions"),
        ("voyage", "voyage-3.5", 256, "output_dimension"),
        ("ollama", "nomic-embed-text:v1.5", 256, "dimensions"),
    ):
        made = embedder(providers, provider, model=model, dimension=dimension).embed_query("x")
        assert len(made) == 4 * dimension
        assert providers.asked[-1].body[field] == dimension
        assert providers.asked[-1].body["model"] == model
    made = embedder(providers, "google", model="models/gemini-embedding-001", dimension=768).embed_query("x")
    assert len(made) == 4 * 768
    assert providers.asked[-1].path == "/google/v1beta/models/gemini-embedding-001:batchEmbedContents"
    assert providers.asked[-1].body["requests"][0]["outputDimensionality"] == 768


def test_the_models_own_dimension_is_not_asked_for(providers):  # noqa: F811
    embedder(providers, "voyage", model="voyage-3.5").embed_query("x")
    assert "output_dimension" not in providers.asked[-1].body
    embedder(providers, "openai").embed_query("x")
    assert "dimensions" not in providers.asked[-1].body


def test_an_ollama_host_may_lack_its_scheme_and_end_in_a_slash(providers):  # noqa: F811
    host = providers.ollama.removeprefix("http://") + "/"
    assert len(embedder(providers, "ollama", base_url=host).embed_query("x")) == 4 * 768


def test_the_google_key_is_in_a_header_and_never_in_the_address(providers):  # noqa: F811
    embedder(providers, "google").embed_query("x")
    assert providers.asked[0].headers["x-goog-api-key"] == KEY
    assert KEY not in providers.asked[0].path


def test_a_server_of_ones_own_needs_no_openai_key(providers):  # noqa: F811
    with pytest.raises(DeniedError):  # ours wants one: it was asked without
        embedder(providers, "openai", key=None).embed_query("x")
    assert "authorization" not in providers.asked[0].headers


def test_paid_tokens_are_told_once(providers):  # noqa: F811
    asked = embedder(providers, "voyage")
    assert asked.take_tokens() == 0
    asked.embed_documents(["a", "b"])
    assert (asked.take_tokens(), asked.take_tokens()) == (200, 0)


def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(providers, monkeypatch):  # noqa: F811
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    for provider in USUAL:
        embedder(providers, provider).embed_query("x")


# -------------------------------------------------------------------------------------------------------- failures

FAILURES = {
    "429": (server.status(429), ModelUnavailableError),
    "500": (server.status(500), ServerFaultError),
    "502 with a page": (server.status(502, body="<html>"), ServerFaultError),
    "503": (server.status(503), ModelUnavailableError),
    "529": (server.status(529), ServerFaultError),
    "408": (server.status(408), ModelUnavailableError),
    "401": (server.status(401), DeniedError),
    "403": (server.status(403), DeniedError),
    "402": (server.status(402), DeniedError),
    "400": (server.status(400), TextRefusedError),
    "413": (server.status(413), TextRefusedError),
    "404": (server.status(404), NotConfiguredError),
    "418": (server.status(418), WrongAnswerError),
    "a redirect": (server.status(307, {"Location": "http://127.0.0.1:1/"}), WrongAnswerError),
    "slow": (server.slow, ServerFaultError),
    "dripping": (server.dripping, ServerFaultError),
    "cut off": (server.cut_off, ModelUnavailableError),
    "cut off unnoticed": (server.cut_off_unnoticed, ServerFaultError),
    "hang up": (server.hang_up, ModelUnavailableError),
    "endless": (server.endless, ServerFaultError),
    "not json": (server.not_json, ServerFaultError),
    "json of another kind": (server.answer_with([1, 2]), WrongAnswerError),
    "json null": (server.answer_with(None), WrongAnswerError),
    "an empty object": (server.answer_with({}), WrongAnswerError),
    "data of another kind": (server.answer_with({"data": [None], "embeddings": [None]}), WrongAnswerError),
    "wrong dimension": (server.spoilt(lambda made: [v[:-1] for v in made]), WrongAnswerError),
    "one vector too few": (server.spoilt(lambda made: made[:-1]), WrongAnswerError),
    "one vector too many": (server.spoilt(lambda made: [*made, made[0]]), WrongAnswerError),
    "words for numbers": (server.spoilt(lambda made: [["a"] * len(v) for v in made]), WrongAnswerError),
    "a word for a vector": (server.spoilt(lambda made: ["a" * len(v) for v in made]), WrongAnswerError),
    "nulls": (server.spoilt(lambda made: [[None] * len(v) for v in made]), WrongAnswerError),
    "huge numbers": (server.spoilt(lambda made: [[1e308] * len(v) for v in made]), WrongAnswerError),
    "empty vectors": (server.spoilt(lambda made: [[] for _ in made]), WrongAnswerError),
}


@pytest.mark.slow
@every_provider
@each_row("case", FAILURES)
def test_every_failure_becomes_the_error_that_says_what_to_do(providers, provider, case, monkeypatch):  # noqa: F811
    failure, expected = FAILURES[case]
    if case == "endless":
        monkeypatch.setattr(post, "MAX_ANSWER_BYTES", 1_000_000)
    before = len(providers.asked)
    providers.fail_next(failure)
    if case in ("slow", "dripping"):
        monkeypatch.setattr("crystal.embedding.remote.DOCUMENTS_SECONDS", 0.3)
    asked = embedder(providers, provider)
    with pytest.raises(CrystalError) as caught:
        asked.embed_documents(["the secret text", "another"])
    assert type(caught.value) is expected
    assert len(providers.asked) == before + 1
    said = f"{caught.value.message} {caught.value.hint}"
    assert KEY not in said
    assert "secret text" not in said
    assert provider in said
    monkeypatch.undo()
    assert len(embedder(providers, provider).embed_documents(["x", "y"])) == 2


@every_provider
def test_a_wrong_key_is_denied_without_being_repeated(providers, provider):  # noqa: F811
    if provider == "ollama":
        return
    with pytest.raises(DeniedError) as caught:
        embedder(providers, provider, key="sk-wrong-key").embed_query("x")
    assert "sk-wrong" not in caught.value.message + str(caught.value.hint)


@every_provider
@each_row("key", [None, "", "two words", "line\nbreak", "umläut"])
def test_no_key_or_an_impossible_one_is_not_configured_and_nobody_is_asked(providers, provider, key):  # noqa: F811
    if provider == "ollama":
        return
    asked = make_embedder(provider, base_url=None if not key else providers.base_url(provider), key=key)
    with pytest.raises(NotConfiguredError) as caught:
        asked.embed_query("x")
    assert not key or key not in caught.value.message
    assert providers.asked == []


@every_provider
def test_an_unknown_model_is_named_and_the_hint_says_what_to_do(providers, provider):  # noqa: F811
    with pytest.raises((NotConfiguredError, TextRefusedError)) as caught:
        embedder(providers, provider, model="no-such-model", dimension=8).embed_query("x")
    assert "no-such-model" in caught.value.message
    assert caught.value.hint


@every_provider
def test_nobody_listening_is_unavailable(provider):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnavailableError) as caught:
        make_embedder(provider, base_url=f"http://user:pw@127.0.0.1:{port}/v1", key=KEY).embed_query("x")
    assert f"http://127.0.0.1:{port} " in caught.value.message


@every_provider
@each_row("url", ["gopher://x", "http://", "http://[::1", "http://127.0.0.1:99999", "://", "//"])
def test_an_address_that_is_none_is_a_clear_error(provider, url):
    with pytest.raises(UsageError):
        make_embedder(provider, base_url=url, key=KEY).embed_query("x")


@pytest.mark.slow
def test_nobody_waits_long_for_the_vector_of_a_question(providers, monkeypatch):  # noqa: F811
    monkeypatch.setattr("crystal.embedding.remote.QUERY_SECONDS", 0.3)
    providers.fail_next(server.slow)
    with pytest.raises(ServerFaultError):
        embedder(providers, "ollama").embed_query("x")


def test_retry_after_is_read_in_seconds_in_milliseconds_and_as_a_date(providers):  # noqa: F811
    providers.fail_next(server.status(429, {"Retry-After": "7"}))
    with pytest.raises(ModelUnavailableError) as caught:
        embedder(providers, "voyage").embed_query("x")
    assert caught.value.seconds == 7
    date = {"date": "Fri, 20 Nov 2026 10:00:00 GMT", "retry-after": "Fri, 20 Nov 2026 10:01:30 GMT"}
    assert retry_after(date) == 90
    assert retry_after({"retry-after-ms": "1500", "retry-after": "99"}) == 1.5
    for odd in ({}, {"retry-after": "soon"}, {"retry-after": "-5"}, {"retry-after": "nan"}, {"retry-after": "inf"}):
        assert retry_after(odd) is None
    assert retry_after({**date, "retry-after": "Fri, 20 Nov 2026 09:00:00 GMT"}) == 0


def test_error_codes_are_told_but_never_the_providers_sentences():
    held = b'{"error": {"message": "you sent: my diary", "code": "insufficient_quota", "type": "two words"}}'
    assert refusal("openai m", 429, {}, held).message == "openai m answered 429 (insufficient_quota)"
    for odd in (b"", b"[]", b'{"error": "my diary"}', b'{"error": {"code": ["my diary"], "details": "x"}}', b"\xff"):
        assert refusal("m", 500, {}, odd).message == "m answered 500"
    assert labels({"error": {"details": [1, {"reason": "X"}]}}) == "X"


def test_deeply_nested_json_is_an_answer_that_is_none():
    with pytest.raises(ServerFaultError):
        parsed("m", b"[" * 100_000)


def test_addresses_are_shown_without_user_password_and_query():
    assert shown("https://user:secret@host:8080/path?key=secret") == "https://host:8080"


# ------------------------------------------------------------------------------------------------------ the factory


def test_settings_that_cannot_be_are_refused_by_name():
    for more, error in (
        ({"provider": "cohere"}, UsageError),
        ({"provider": "embedded", "model": "bert"}, UsageError),
        ({"provider": "embedded", "dimension": 7}, UsageError),
        ({"provider": "ollama", "model": "my-own"}, NotConfiguredError),
    ):
        with pytest.raises(error) as caught:
            make_embedder(**more)
        assert caught.value.hint


def test_a_change_of_key_model_or_address_changes_the_identity_which_holds_no_key():
    made = [
        make_embedder("openai", key=KEY),
        make_embedder("openai", key=KEY + "2"),
        make_embedder("openai", "text-embedding-3-large", key=KEY),
        make_embedder("openai", key=KEY, base_url="http://x"),
    ]
    assert len({one.identity for one in made}) == 4
    assert made[0].identity == make_embedder("openai", key=lambda: KEY).identity
    assert KEY not in made[0].identity


def test_a_key_is_fetched_only_when_a_text_is_embedded():
    def fetch():
        raise AssertionError("the keyring was asked")

    chosen = make_embedder("openai", key=fetch)
    assert (chosen.provider, chosen.model, chosen.dimension) == ("openai", "text-embedding-3-small", 1536)
    assert chosen.take_tokens() == 0


def test_a_key_that_cannot_be_fetched_is_a_recorded_problem(store: Store):
    def fetch():
        raise NotConfiguredError("the key command failed")

    add_chunk(store, "x")
    report = embed_pending(store, make_embedder("openai", key=fetch), now=NOW)
    assert (report.left, report.problem) == (1, "the key command failed")
    assert find_problem(store, "embedding").message == report.problem


# -------------------------------------------------------------------------------------------------- with the queue


@pytest.mark.slow
@every_provider
def test_the_queue_survives_an_outage_and_heals_by_itself(providers, provider, store: Store):  # noqa: F811
    add_chunk(store, "kept")
    asked = embedder(providers, provider)
    providers.fail_next(server.status(429, {"Retry-After": "1000"}))
    report = embed_pending(store, asked, now=NOW)
    assert report.left == 1
    assert "answered 429" in report.problem
    assert find_problem(store, "embedding").retry_at == NOW + 1_000_000
    embed_pending(store, asked, now=NOW + 999_999)
    assert len(providers.asked) == 1
    assert embed_pending(store, asked, now=NOW + 1_000_000).left == 0
    assert list_problems(store) == []
    query = asked.embed_query("kept")
    assert len(vectors.nearest(store, vectors.serving_generation(store).id, query, 5)) == 1


@pytest.mark.slow
def test_a_text_longer_than_the_model_takes_is_embedded_by_its_beginning(providers, store: Store):  # noqa: F811
    add_chunk(store, "long " * 20_000)
    add_chunk(store, "short")
    report = embed_pending(store, embedder(providers, "openai"), now=NOW)
    assert (report.embedded, report.refused, report.left, report.problem) == (2, 0, 0, None)
    assert store.value("SELECT sum(usd) > 0 FROM costs") == 1
