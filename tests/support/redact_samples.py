"""Made-up secrets for the tests of crystal.redact, put together when the tests run so that none stands in the repository.

Every function here is pure: the same seed gives the same secret.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

LOWER, UPPER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
ALNUM, HEX = LOWER + UPPER + DIGITS, DIGITS + "abcdef"
URLSAFE = ALNUM + "-_"


def drawn(alphabet: str, count: int, seed: int = 0) -> str:
    """Return ``count`` characters that look random, with a digit and both cases where the alphabet has them."""
    chance = random.Random(f"{alphabet}{count}{seed}")
    must = [chance.choice(kind) for kind in (DIGITS, UPPER, LOWER) if set(kind) <= set(alphabet)]
    rest = [chance.choice(alphabet) for _ in range(count - len(must))]
    chance.shuffle(must)
    return "".join(rest[: count // 2] + must + rest[count // 2 :])


def base64url(text: str) -> str:
    """Return the text in base64url without padding, as in a JWT."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def jwt(seed: int) -> str:
    """Return a signed token of three parts."""
    head = base64url(json.dumps({"alg": "HS256", "typ": "JWT"}, separators=(",", ":")))
    body = base64url(json.dumps({"sub": str(seed), "iat": 1516239022}, separators=(",", ":")))
    return f"{head}.{body}.{drawn(URLSAFE, 43, seed)}"


_ALPHABETS = {
    "a": ALNUM,
    "U": UPPER + DIGITS,
    "L": LOWER + DIGITS,
    "h": HEX,
    "d": DIGITS,
    "l": LOWER,
    "u": UPPER,
}
ROWS = [
    tuple(row.split("\t"))
    for row in (Path(__file__).parent.parent / "data" / "redact" / "format_rows.txt").read_text("utf-8").splitlines()
]
"""For each row of the table of formats: kind, literals, a sample that goes and one that stays, as templates:
``{a20}`` stands for 20 letters and digits. So no token stands in the repository."""


COMMAND_ROWS = [
    tuple(row.split("\t"))
    for row in (Path(__file__).parent.parent / "data" / "redact" / "command_rows.txt").read_text("utf-8").splitlines()
]
"""For each row of the table of commands: its literal, a sample and a near miss; ``{p}`` stands for a password, and
``\\n`` for the end of a line."""


def filled(template: str, seed: int = 7) -> str:
    """Return what a template stands for."""
    return re.sub(
        r"\{(\w)(\d+)\}",
        lambda part: drawn(_ALPHABETS[part[1]], max(3, int(part[2])), seed)[: int(part[2])],
        template,
    )


FORMATS: dict[str, Callable[[int], str]] = {
    "aws-access-key": lambda s: "AKI" + "A" + drawn(UPPER + "234567", 16, s),
    "aws-access-key 2": lambda s: "ASI" + "A" + drawn(UPPER + "234567", 16, s),
    "github-token": lambda s: "gh" + "p_" + drawn(ALNUM, 36, s),
    "github-token 2": lambda s: "gh" + "o_" + drawn(ALNUM, 36, s),
    "github-token 3": lambda s: "gh" + "u_" + drawn(ALNUM, 36, s),
    "github-token 4": lambda s: "gh" + "s_" + drawn(ALNUM, 36, s),
    "github-token 5": lambda s: "gh" + "r_" + drawn(ALNUM, 76, s),
    "github-token 6": lambda s: "github" + "_pat_" + drawn(ALNUM, 22, s) + "_" + drawn(ALNUM, 59, s),
    "gitlab-token": lambda s: "gl" + "pat-" + drawn(URLSAFE, 20, s),
    "gitlab-token 2": lambda s: "gl" + "rt-" + drawn(URLSAFE, 20, s),
    "slack-token": lambda s: (
        "xox" + "b-" + drawn(DIGITS, 12, s) + "-" + drawn(DIGITS, 13, s) + "-" + drawn(ALNUM, 24, s)
    ),
    "slack-token 2": lambda s: (
        "xap" + "p-1-A" + drawn(UPPER + DIGITS, 10, s) + "-" + drawn(DIGITS, 13, s) + "-" + drawn(HEX, 64, s)
    ),
    "stripe-key": lambda s: "sk_" + "live_" + drawn(ALNUM, 24, s),
    "stripe-key 2": lambda s: "rk_" + "live_" + drawn(ALNUM, 24, s),
    "stripe-key 3": lambda s: "sk_" + "test_" + drawn(ALNUM, 24, s),
    "openai-key": lambda s: "sk-" + "proj-" + drawn(URLSAFE, 48, s),
    "openai-key 2": lambda s: "sk-" + drawn(ALNUM, 20, s) + "T3Blbk" + "FJ" + drawn(ALNUM, 20, s),
    "sk-key": lambda s: "sk-" + drawn(ALNUM, 48, s),
    "anthropic-key": lambda s: "sk-" + "ant-api03-" + drawn(URLSAFE, 93, s) + "AA",
    "google-api-key": lambda s: "AI" + "za" + drawn(URLSAFE, 35, s),
    "google-oauth": lambda s: "GOC" + "SPX-" + drawn(URLSAFE, 28, s),
    "google-oauth 2": lambda s: "ya" + "29." + drawn(URLSAFE, 60, s),
    "huggingface-token": lambda s: "h" + "f_" + drawn(LOWER + UPPER, 34, s),
    "npm-token": lambda s: "np" + "m_" + drawn(ALNUM, 36, s),
    "pypi-token": lambda s: "py" + "pi-AgEIcHlwaS5vcmc" + drawn(URLSAFE, 60, s),
    "docker-token": lambda s: "dckr" + "_pat_" + drawn(URLSAFE, 27, s),
    "digitalocean-token": lambda s: "dop" + "_v1_" + drawn(HEX, 64, s),
    "sendgrid-key": lambda s: "S" + "G." + drawn(URLSAFE, 22, s) + "." + drawn(URLSAFE, 43, s),
    "twilio-key": lambda s: "S" + "K" + drawn(HEX, 32, s),
    "mailgun-key": lambda s: "ke" + "y-" + drawn(HEX, 32, s),
    "telegram-bot-token": lambda s: drawn(DIGITS, 10, s) + ":A" + "A" + drawn(URLSAFE, 33, s),
    "discord-bot-token": lambda s: (
        base64url("9" + drawn(DIGITS, 17, s)) + "." + drawn(URLSAFE, 6, s) + "." + drawn(URLSAFE, 38, s)
    ),
    "jwt": jwt,
    "databricks-token": lambda s: "da" + "pi" + drawn(HEX, 32, s),
    "linear-key": lambda s: "lin" + "_api_" + drawn(ALNUM, 40, s),
    "notion-token": lambda s: "nt" + "n_" + drawn(DIGITS, 11, s) + drawn(ALNUM, 35, s),
    "notion-token 2": lambda s: "secr" + "et_" + drawn(ALNUM, 43, s),
    "shopify-token": lambda s: "shp" + "at_" + drawn(HEX, 32, s),
    "heroku-key": lambda s: "HR" + "KU-AA" + drawn(URLSAFE, 58, s),
    "vault-token": lambda s: "hv" + "s." + drawn(URLSAFE, 24, s),
    "age-secret-key": lambda s: "AGE-SECRET" + "-KEY-1" + drawn(UPPER + DIGITS, 58, s),
    "crystal-token": lambda s: "cr" + "t_" + drawn(ALNUM, 8, s) + "_" + drawn(URLSAFE, 43, s) + "_" + drawn(HEX, 8, s),
    "terraform-token": lambda s: drawn(ALNUM, 14, s) + ".atlas" + "v1." + drawn(URLSAFE, 67, s),
    "grafana-token": lambda s: "gl" + "sa_" + drawn(ALNUM, 32, s) + "_" + drawn(HEX, 8, s),
    "newrelic-key": lambda s: "NR" + "AK-" + drawn(UPPER + DIGITS, 27, s),
    "square-token": lambda s: "sq" + "0atp-" + drawn(URLSAFE, 22, s),
    "supabase-key": lambda s: "sb" + "p_" + drawn(HEX, 40, s),
    "voyage-key": lambda s: "p" + "a-" + drawn(URLSAFE, 43, s),
    "groq-key": lambda s: "gs" + "k_" + drawn(ALNUM, 52, s),
    "xai-key": lambda s: "xa" + "i-" + drawn(ALNUM, 80, s),
    "replicate-token": lambda s: "r" + "8_" + drawn(ALNUM, 37, s),
    "perplexity-key": lambda s: "pp" + "lx-" + drawn(ALNUM, 48, s),
    "netlify-token": lambda s: "nf" + "p_" + drawn(ALNUM, 36, s),
    "vercel-token": lambda s: "vc" + "p_" + drawn(ALNUM, 56, s),
    "airtable-token": lambda s: "pa" + "t" + drawn(ALNUM, 14, s) + "." + drawn(HEX, 64, s),
    "password-hash": lambda s: "$2" + "b$12$" + drawn(ALNUM + "./", 53, s),
}
"""Kind (a number after it tells two samples of one kind apart) to a maker of samples."""

NESTED_LEVELS = 4


def nested(text: str, levels: int) -> str:
    """Return the text as a string inside of JSON inside of a string, ``levels`` times."""
    for _ in range(levels):
        text = json.dumps({"text": text})
    return text


def pem(kind: str, seed: int) -> str:
    """Return a block such as ``RSA PRIVATE KEY`` with a made-up body of six lines."""
    body = "\n".join(drawn(ALNUM + "+/", 64, seed + line) for line in range(6))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"
