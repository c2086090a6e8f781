"""The routes of tokens. See docs/spec/relay-http.md, section 6."""

from __future__ import annotations

import msgspec

from relay_worker.http.body import read_json
from relay_worker.http.call import Call, Form
from relay_worker.http.reply import NO_CONTENT, Reply, json_reply
from relay_worker.model import Token
from relay_worker.store import tokens
from relay_worker.tokens import ID_BYTES, SECRET_BYTES, check_label, check_scopes, mint

TOKEN_ID = Form("[0-9a-z]{16}", "16 digits and lower-case letters", str)


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a new token is for."""

    label: str
    scopes: list[str]


async def make_token(call: Call) -> Reply:
    """Make a token. Only this answer contains its secret."""
    relay = call.relay
    call.need("home")
    asked = await read_json(call, TokenRequest)
    label, checked = check_label(asked.label), check_scopes(asked.scopes)
    made = mint(relay.random(ID_BYTES), relay.random(SECRET_BYTES))
    new = Token(made.id, call.account, label, checked, made.secret_hash, relay.now())
    await relay.store.write(lambda batch: tokens.add(batch.db, new, batch.limits))
    return json_reply({"id": made.id, "token": made.text, "label": label, "scopes": checked}, 201)


async def list_tokens(call: Call) -> Reply:
    """List the account's tokens, without the hashes of their secrets."""
    call.need("home")
    found = await call.relay.store.read(tokens.list_all, call.account)
    return json_reply({"tokens": [one.public for one in found]})


async def revoke_token(call: Call) -> Reply:
    """Revoke a token."""
    token_id = call.path("token_id", TOKEN_ID)
    call.need("home")
    now = call.relay.now()
    await call.relay.store.write(lambda batch: tokens.revoke(batch.db, call.account, token_id, now))
    return NO_CONTENT
