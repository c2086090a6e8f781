"""The envelope against vectors: ours, one file a reason, and those that NIST, the RFCs and Wycheproof publish."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

import crystal.sync.envelope
from crystal.sync.envelope.blob import open_blob
from crystal.sync.envelope.link import _expand, keys_of_link, link_keys
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.envelope.refusals import EnvelopeError
from tests.support.docs_blocks import ROOT
from tests.support.envelope_blobs import KNOWN, LINE, MAKE, SECRET, VECTORS, opened, sealed
from tests.support.table import each_row

CASES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((VECTORS / "envelope").glob("*.json"))}
SPEC = ROOT / "docs" / "spec" / "envelope.md"


def open_case(case: dict[str, Any]) -> crystal.sync.envelope.Opened:
    expects = case["expects"]
    return open_blob(
        bytes.fromhex(case["blob"]),
        link_keys(bytes.fromhex(case["device_secret"]), expects["direction"]),
        channel=expects["channel"],
        stream=bytes.fromhex(expects["stream"]),
        seq=int(expects["seq"]),
        prev=None if expects["prev"] is None else bytes.fromhex(expects["prev"]),
    )


# ---------------------------------------------------------------------------------------------------- our own vectors


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["result"] == "valid"])
def test_a_valid_vector_opens_to_what_it_says(name: str) -> None:
    case = CASES[name]
    found = open_case(case)
    assert {
        "kind": found.kind,
        "created_at": str(found.created_at),
        "more": found.header.more,
        "payload_length": len(found.payload),
        "payload_sha256": hashlib.sha256(found.payload).hexdigest(),
    } == case["opened"]
    assert found.tag.hex() == case["blob"][-64:]


@each_row("name", [name for name, case in CASES.items() if case["result"] == "invalid"])
def test_an_invalid_vector_is_refused_for_its_reason(name: str) -> None:
    with pytest.raises(EnvelopeError) as refused:
        open_case(CASES[name])
    assert refused.value.code == CASES[name]["code"]
    assert refused.value.exit_code == 5
    assert refused.value.hint
    assert CASES[name]["device_secret"] not in str(refused.value)


def test_the_vectors_are_what_their_script_writes() -> None:
    made = {name: MAKE["written"](content) for name, content in MAKE["cases"]().items()}
    kept = {path.stem: path.read_text("utf-8") for path in (VECTORS / "envelope").glob("*.json")}
    assert kept == made, "run: python tests/vectors/envelope/make.py"


def raised_codes() -> set[tuple[str, str]]:
    """Class and code of every refusal in the source."""
    source = "".join(path.read_text("utf-8") for path in Path(crystal.sync.envelope.__file__).parent.glob("*.py"))
    return set(re.findall(r'raise (\w+)\(\s*"([a-z-]+)"', source))


def test_every_code_is_in_the_specification_and_has_a_vector() -> None:
    table = re.findall(r"^\| `([a-z-]+)` \| `(\w+)` \|", SPEC.read_text("utf-8"), re.MULTILINE)
    assert {(kind, code) for code, kind in table} == raised_codes()
    assert len(table) == len(raised_codes())
    assert {case["code"] for case in CASES.values() if "code" in case} == {code for _, code in raised_codes()}


def test_the_known_answer_comes_out_exactly() -> None:
    names = KNOWN["keys"]
    keys = link_keys(SECRET, "up")
    assert SECRET.hex() == "212cdfbb41d9c4b9e45d4776390b682cbbae69d5d4a2416fffd8a2541d1926ed"
    info = b"crystal-relay/1 device\0" + bytes.fromhex(names["device_id"]) + names["generation"].to_bytes(4, "big")
    assert _expand(bytes.fromhex(names["root"]), info, 32) == SECRET
    assert keys.link.hex() == "76ba34863f4c135b53b576dcba1286c22e3460d650cd981d044cf84b7b3dcdfc" == names["link"]
    assert keys.key_id.hex() == "2148b85270e6ee0621034ab5fcc04459" == names["key_id"]
    assert keys.mac_key.hex() == "8020f0c107316c47bb119f0034f44354c99a01c4f588c27c64fb6cc541c01e13" == names["mac_key"]
    assert keys_of_link(keys.link) == keys
    blob = sealed(LINE)
    assert len(blob) == 1188
    assert blob[-32:].hex() == "a7e0118f51da3e0cd704de12247fa6d3258143d69dc80dad576a89c24b5a208e" == KNOWN["tag"]
    digest = hashlib.sha256(blob).hexdigest()
    assert digest == "57ccc9b99bf13184208bd4265346db5be6029b05ba725de8f18d89b396abe65c" == KNOWN["blob_sha256"]
    assert blob.hex() == KNOWN["blob"]
    assert (opened(blob).kind, opened(blob).payload) == (PayloadKind.RECORDS, LINE)


def test_every_number_of_the_known_answer_is_in_the_specification() -> None:
    page = SPEC.read_text("utf-8")
    told = [SECRET.hex(), *(str(value) for value in KNOWN["keys"].values()), KNOWN["tag"], KNOWN["blob_sha256"]]
    assert [value for value in told if value not in page] == []


# -------------------------------------------------------------------------------------------------------- primitives


def groups_of(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for group in json.loads((VECTORS / "primitives" / name).read_text("utf-8"))["testGroups"]:
        for test in group["tests"]:
            yield group, test


def fields_of(name: str) -> list[dict[str, str]]:
    """The cases of a NIST or RFC file: blocks that begin with Count, COUNT or Len."""
    text = (VECTORS / "primitives" / name).read_text("utf-8")
    blocks = re.split(r"^(?=(?:Count|COUNT|Len) +=)", text, flags=re.MULTILINE)[1:]
    return [
        {key: value.strip() for key, value in re.findall(r"^(\w+) *=(.*)$", block, re.MULTILINE)}
        | ({"FAIL": "yes"} if re.search(r"^FAIL", block, re.MULTILINE) else {})
        for block in blocks
    ]


def test_aes_gcm_decrypts_as_nist_says() -> None:
    failed = 0
    for case in fields_of("nist-gcm-decrypt-256.rsp"):
        key, nonce, text, aad, tag = (bytes.fromhex(case[name]) for name in ("Key", "IV", "CT", "AAD", "Tag"))
        if "FAIL" in case:
            failed += 1
            with pytest.raises(InvalidTag):
                AESGCM(key).decrypt(nonce, text + tag, aad)
        else:
            assert AESGCM(key).decrypt(nonce, text + tag, aad).hex() == case["PT"]
    assert failed == 75


def test_aes_gcm_encrypts_as_nist_says() -> None:
    cases = fields_of("nist-gcm-encrypt-256.rsp")
    assert len(cases) == 100
    for case in cases:
        key, nonce, text, aad = (bytes.fromhex(case[name]) for name in ("Key", "IV", "PT", "AAD"))
        assert AESGCM(key).encrypt(nonce, text, aad).hex() == case["CT"] + case["Tag"]


def test_aes_gcm_agrees_with_wycheproof() -> None:
    refused = 0
    for group, test in groups_of("wycheproof-aes-gcm-256.json"):
        key, nonce, aad, msg, ct, tag = (bytes.fromhex(test[name]) for name in ("key", "iv", "aad", "msg", "ct", "tag"))
        if not 64 <= group["ivSize"] <= 1024:
            # Nonces that nobody should use; the library takes none of them.
            refused += test["result"] == "valid"
            with pytest.raises((ValueError, InvalidTag)):
                AESGCM(key).decrypt(nonce, ct + tag, aad)
        elif test["result"] == "valid":
            assert AESGCM(key).encrypt(nonce, msg, aad) == ct + tag, test["tcId"]
            assert AESGCM(key).decrypt(nonce, ct + tag, aad) == msg, test["tcId"]
        else:
            with pytest.raises(InvalidTag):
                AESGCM(key).decrypt(nonce, ct + tag, aad)
    assert refused == 9


def test_hmac_is_that_of_rfc_4231() -> None:
    cases = fields_of("rfc-4231-hmac-sha256.txt")
    assert len(cases) >= 6
    for case in cases:
        mac = HMAC(bytes.fromhex(case["Key"]), SHA256())
        mac.update(bytes.fromhex(case["Msg"]))
        mac.copy().verify(bytes.fromhex(case["MD"]))
        wrong = bytearray.fromhex(case["MD"])
        wrong[-1] ^= 1
        with pytest.raises(InvalidSignature):
            mac.verify(bytes(wrong))


def test_our_expand_is_that_of_rfc_5869() -> None:
    cases = fields_of("rfc-5869-hkdf-sha256.txt")
    assert len(cases) == 3
    for case in cases:
        assert _expand(bytes.fromhex(case["PRK"]), bytes.fromhex(case["info"]), int(case["L"])).hex() == case["OKM"]


def test_our_expand_agrees_with_wycheproof() -> None:
    agreed = 0
    for _, test in groups_of("wycheproof-hkdf-sha256.json"):
        salt = bytes.fromhex(test["salt"]) or bytes(32)
        extracted = hmac.new(salt, bytes.fromhex(test["ikm"]), hashlib.sha256).digest()
        if test["result"] == "valid":
            assert _expand(extracted, bytes.fromhex(test["info"]), test["size"]).hex() == test["okm"], test["tcId"]
            agreed += 1
        else:
            with pytest.raises(ValueError, match=r".+"):
                _expand(extracted, bytes.fromhex(test["info"]), test["size"])
    assert agreed > 80
