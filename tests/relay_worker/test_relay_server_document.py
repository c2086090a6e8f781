"""The relay's OpenAPI document, its specification and its routes say the same."""

import json
import re
from pathlib import Path

import pytest

from relay_worker import crb1, model, settings, tokens
from relay_worker.errors import STATUS
from relay_worker.http import routes
from relay_worker.store import accounts

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = (ROOT / "docs" / "spec" / "relay-http.md").read_text(encoding="utf-8")
DOCUMENT = json.loads((ROOT / "relay_worker" / "openapi.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_document_that_is_served_is_the_one_that_was_written():
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load((ROOT / "relay_worker" / "openapi.yaml").read_text(encoding="utf-8")) == DOCUMENT


def test_every_route_is_described_with_its_methods_and_who_may_ask():
    described = {
        path: {method.upper() for method in operations if method != "parameters"}
        for path, operations in DOCUMENT["paths"].items()
    }
    served = {path: set(methods) for path, methods, _ in routes.ROUTES if not path.startswith("/openapi")}
    assert described == served
    for path, _, schemes in routes.ROUTES:
        for method, operation in DOCUMENT["paths"].get(path, {}).items():
            if method != "parameters":
                named = {name for one in operation.get("security", DOCUMENT["security"]) for name in one}
                assert named == {"token" if one == "bearer" else "claim" for one in schemes}, (path, method)


def test_every_code_and_its_status_is_in_the_specification():
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", SPEC, re.MULTILINE)
    listed = {code: int(status) for status, codes in rows for code in re.findall(r"`([a-z-]+)`", codes)}
    assert listed == STATUS


def test_every_route_is_in_the_specification():
    for path, methods, _ in routes.ROUTES:
        for method in methods:
            assert re.search(rf"`{method} {re.escape(path)}", SPEC), f"{method} {path}"


def test_the_numbers_of_the_specification_are_those_of_the_code():
    defaults = settings.Settings()
    for number in (crb1.MAX_BLOB, defaults.max_blobs, defaults.max_streams, accounts.MAX_TOKENS, 16_384, 65_536):
        assert f"{number:,}" in SPEC
    assert str(model.MAX_NUMBER) in SPEC
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Number"]["maximum"] == model.MAX_NUMBER
    assert schemas["NewToken"]["properties"]["scopes"]["maxItems"] == tokens.MAX_SCOPES
    assert schemas["Label"]["maxLength"] == tokens.MAX_LABEL
    body = DOCUMENT["paths"]["/v1/streams/{stream}/blobs/{seq}"]["put"]["requestBody"]
    assert body["content"]["application/octet-stream"]["schema"]["maxLength"] == crb1.MAX_BLOB
