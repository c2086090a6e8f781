"""Claims about the relay's OpenAPI document: what it allows is answered as it says, what it forbids is refused.

schemathesis makes the requests out of the document that the relay itself serves. Nothing that comes out of it may be
a server's error, a status, type, header or body that the document does not know, or a success for what it forbids.
"""

import json
import secrets
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given

import relay_worker
from tests.relay_conformance.targets import OPEN, as_process
from tests.support.examples import examples

DOCUMENT = json.loads((Path(relay_worker.__file__).parent / "openapi.json").read_text("utf-8"))
OPERATIONS = [
    (method.upper(), path)
    for path, item in DOCUMENT["paths"].items()
    for method in item
    if method in ("get", "put", "post", "delete")
]
CHECKS = (
    "not_a_server_error status_code_conformance content_type_conformance response_headers_conformance"
    " response_schema_conformance negative_data_rejection missing_required_header unsupported_method"
    " ignored_auth"
).split()


@pytest.fixture(scope="module")
def schemathesis():
    """Import it where it is used: it takes longer than all tests of this folder take to be collected."""
    return pytest.importorskip("schemathesis")


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    with as_process(tmp_path_factory.mktemp("relay"), **OPEN) as target:
        yield target


@pytest.fixture(scope="module")
def schema(relay, schemathesis):
    """Out of what the relay serves, not of the file."""
    served = relay.ask("GET", "/openapi.json", token=None).json()
    assert served == DOCUMENT
    # Another version is 426, too much is 413: refusals that schemathesis does not count as such by itself.
    refusing = {"negative_data_rejection": {"expected-statuses": ["4XX"]}}
    return schemathesis.openapi.from_dict(served, config=schemathesis.Config.from_dict({"checks": refusing}))


CASES = [
    (method, path, mode)
    for method, path in OPERATIONS
    for mode in ("positive", "negative")
    # Where nothing can be given, nothing can be given wrongly.
    if mode == "positive" or path.startswith("/v1")
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_every_operation_answers_as_it_is_described(relay, schemathesis, schema, method, path, mode):
    operation = schema[path][method]
    checks = [schemathesis.checks.CHECKS.get_one(name) for name in CHECKS]

    @examples(20, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def answered(case):
        hurry(case)
        case.call_and_validate(base_url=relay.url, checks=checks, headers=introduction(case, relay, path), timeout=20)

    answered()


def hurry(case):
    """Nothing happens here that is worth waiting for; what asks for it properly waits a moment."""
    wait = (case.query or {}).get("wait")
    if isinstance(wait, int | float) and not isinstance(wait, bool) and 0 <= wait <= 30:
        case.query["wait"] = 0.01


def introduction(case, relay, path):
    """Say who asks, unless the case is about that: for claiming a mailbox a claim, for all the rest home."""
    given = case.headers or {}
    if given.get("Crystal-Relay-Version") == "":
        # An empty header is none, which is allowed; this is another version for sure.
        case.headers["Crystal-Relay-Version"] = "0"
    if any("Authorization" in str(change) for change in getattr(case.meta.phase.data, "mutations", ())):
        return {}
    claimed = path.endswith("/claim")
    return {"Authorization": "Claim " + secrets.token_urlsafe(32) if claimed else f"Bearer {relay.home}"}
