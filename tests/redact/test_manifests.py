"""Every value of a Kubernetes Secret goes, whatever stands around it."""

import json

import pytest

from crystal.redact.redactor import Redactor

NESTED = json.dumps({"kind": "Secret", "stringData": {"config.json": '{"a": "quiet river"}', "b": "green lamp"}})
MANIFESTS = {
    "braces in a value": NESTED,
    "the last applied one": json.dumps({"kind": "Secret", "metadata": {"annotations": {"last-applied": NESTED}}}),
    "a block of several lines": "kind: Secret\nstringData:\n  a: |\n    c: quiet river\n\n    quiet river\n  b: green lamp\n",
    "short and empty values": 'kind: Secret\ndata:\n  c: ""\n  d: xy\n  # by hand\n  a: quiet river\n  b: green lamp\n',
    "as kubectl prints a large one": f"data:\n  a: quiet river\n  b: green lamp\n  release: {'SDRzSUFB' * 20_000}\nkind: Secret\n",
    "numbered lines": "1\tkind: Secret\n2\tdata:\n3\t  a: |\n4\t    quiet river\n5\t  b: green lamp\n",
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_value_of_a_secret_goes(name: str) -> None:
    cleaned, _ = Redactor(b"k" * 32).clean_text(f"{MANIFESTS[name]}type: Opaque\n")
    assert "quiet river" not in cleaned
    assert "green lamp" not in cleaned
    assert cleaned.endswith("type: Opaque\n")
