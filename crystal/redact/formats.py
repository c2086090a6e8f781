"""Keys and tokens that tell what they are by their form, as their vendors publish it.

One row a format: the kind, the literals of which every match holds one (divided by spaces), and the pattern. The rows
are our own, written from the documentation named in docs/adr/0003-redaction-rules.md. Lengths
are lower bounds, some way below the published ones, and a match runs on as long as the alphabet does: a longer token
of next year goes too, whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from crystal.redact.engine import compile_scanner
from crystal.redact.judge import looks_random
from crystal.redact.spans import FORMAT, NEARBY, Span


class Format(NamedTuple):
    """A token format: one of ``literals`` stands in every match; group 1 is the secret, else the whole match is."""

    kind: str
    literals: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


_FREE = rb"(?<![A-Za-z0-9])"
"""Nothing of a longer word before it. Only for prefixes so short that they could end one."""

_APART = rb"(?<![A-Za-z0-9+/])"
"""The same for what pictures in base64 would often hold."""

_APART_RAW = rb"(?:^|[^A-Za-z0-9+/]|\\[nrtbf/]|u[0-9a-fA-F]{4})"

_DIGITS = rb"(?:[MNO][DTjz][AEIMQUYcgk][w-z0-5])"
"""Three decimal digits in base64, as the user id with which a Discord token begins."""

_TABLE: tuple[tuple[str, bytes, bytes], ...] = (
    ("aws-access-key", b"AKIA", rb"AKIA[A-Z0-9]{16}"),
    ("aws-access-key", b"ASIA", rb"ASIA[A-Z0-9]{16}"),
    ("aws-access-key", b"ABIA", rb"ABIA[A-Z0-9]{16}"),
    ("aws-access-key", b"ACCA", rb"ACCA[A-Z0-9]{16}"),
    ("aws-bedrock-key", b"ABSK", _FREE + rb"ABSK[A-Za-z0-9+/]{80,}={0,2}"),
    ("github-token", b"ghp_", rb"ghp_[A-Za-z0-9]{20,}"),
    ("github-token", b"gho_", rb"gho_[A-Za-z0-9]{20,}"),
    ("github-token", b"ghu_", rb"ghu_[A-Za-z0-9]{20,}"),
    ("github-token", b"ghs_", rb"ghs_[A-Za-z0-9_]{20,}(?:\.[\w-]{10,}){0,2}"),
    ("github-token", b"ghr_", rb"ghr_[A-Za-z0-9]{20,}"),
    ("github-token", b"github_pat_", rb"github_pat_[A-Za-z0-9_]{20,}"),
    ("gitlab-token", b"glpat-", rb"glpat-[\w-]{16,}(?:\.[\w-]+)*"),
    (
        "gitlab-token",
        b"gldt- glrt- glrtr- glptt- glft- glagent- gloas- glcbt- glsoat- glimt- glffct- glwt-",
        rb"gl(?:dt|rtr?|ptt|ft|agent|oas|cbt|soat|imt|ffct|wt)-[\w-]{16,}(?:\.[\w-]+)*",
    ),
    ("gitlab-token", b"GR1348941", rb"GR1348941[\w-]{16,}"),
    ("slack-token", b"xox", rb"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}"),
    ("slack-token", b"xapp-", rb"xapp-\d-[A-Za-z0-9-]{20,}"),
    ("slack-webhook", b"hooks.slack.com", rb"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/]{20,})"),
    ("stripe-key", b"k_live_", rb"[prs]k_live_[A-Za-z0-9]{16,}"),
    ("stripe-key", b"k_test_", rb"[rs]k_test_[A-Za-z0-9]{16,}"),
    ("stripe-key", b"whsec_", rb"whsec_[A-Za-z0-9+/]{20,}={0,2}"),
    ("anthropic-key", b"sk-ant-", rb"sk-ant-[\w-]{16,}"),
    ("openai-key", b"sk-proj-", rb"sk-proj-[\w-]{20,}"),
    ("openai-key", b"sk-svcacct-", rb"sk-svcacct-[\w-]{20,}"),
    ("openai-key", b"sk-admin-", rb"sk-admin-[\w-]{20,}"),
    ("openai-key", b"T3BlbkFJ", rb"sk-[\w-]{10,200}T3BlbkFJ[\w-]{10,}"),
    ("openrouter-key", b"sk-or-v1-", rb"sk-or-v1-[0-9a-f]{32,}"),
    ("langfuse-key", b"sk-lf-", rb"sk-lf-[0-9a-f-]{30,}"),
    ("sk-key", b"sk-", _FREE + rb"sk-(?=[\w-]{0,12}[A-Za-z0-9]{20})(?=[\w-]{0,200}\d)[\w-]{20,}"),
    ("google-api-key", b"AIza", rb"AIza[\w-]{30,}"),
    ("google-oauth", b"GOCSPX-", rb"GOCSPX-[\w-]{20,}"),
    ("google-oauth", b"ya29.", rb"ya29\.[\w.-]{20,}"),
    ("google-oauth", b"1//0", _FREE + rb"1//0[\w-]{30,}"),
    ("huggingface-token", b"hf_", _FREE + rb"hf_[A-Za-z0-9]{30,}"),
    ("npm-token", b"npm_", _FREE + rb"npm_[A-Za-z0-9]{30,}"),
    ("pypi-token", b"pypi-", rb"pypi-[\w-]{40,}"),
    ("docker-token", b"dckr_", rb"dckr_[a-z]{3}_[\w-]{20,}"),
    ("digitalocean-token", b"_v1_", rb"do[opr]_v1_[0-9a-f]{32,}"),
    ("sendgrid-key", b"SG.", _FREE + rb"SG\.[\w-]{16,}\.[\w-]{30,}"),
    ("twilio-key", b"SK", _FREE + rb"SK[0-9a-f]{32}(?![0-9A-Za-z])"),
    ("mailgun-key", b"key-", _FREE + rb"key-[0-9a-f]{32}(?![0-9A-Za-z])"),
    ("mailchimp-key", b"-us", _FREE + rb"[0-9a-f]{32}-us\d{1,2}(?!\d)"),
    ("telegram-bot-token", b":AA", _FREE + rb"\d{8,11}:AA[\w-]{32,}"),
    ("discord-bot-token", b"", _DIGITS + rb"{4,}[\w-]{2,12}\.[\w-]{6}\.[\w-]{27,}"),
    ("discord-webhook", b"/api/webhooks/", rb"discord(?:app)?\.com/api/webhooks/\d+/([\w-]{40,})"),
    ("azure-key", b"AccountKey=", rb"AccountKey=([A-Za-z0-9+/]{40,}={0,2})"),
    ("azure-key", b"SharedAccessKey=", rb"SharedAccessKey=([A-Za-z0-9+/]{30,}={0,2})"),
    ("azure-sas", b"sig=", rb"(?<![A-Za-z0-9_])sig=([A-Za-z0-9%+/]{30,}={0,2})"),
    ("azure-client-secret", b"Q~", rb"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~-])"),
    ("jwt", b"eyJ", rb"eyJ[\w-]{8,4096}\.[\w-]{8,}(?:\.[\w-]*){1,3}"),
    ("jwt", b"eyJrIjoi", rb"eyJrIjoi[A-Za-z0-9+/]{40,}={0,2}"),
    ("databricks-token", b"dapi", rb"dapi[0-9a-f]{32}(?:-\d)?"),
    ("linear-key", b"lin_", rb"lin_(?:api|oauth)_[A-Za-z0-9]{30,}"),
    ("notion-token", b"ntn_", _FREE + rb"ntn_[A-Za-z0-9]{36,}"),
    ("notion-token", b"secret_", _FREE + rb"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    ("shopify-token", b"shpat_ shpca_ shppa_ shpss_ shpua_", rb"shp(?:at|ca|pa|ss|ua)_[0-9a-fA-F]{30,}"),
    ("heroku-key", b"HRKU-", rb"HRKU-[\w-]{30,}"),
    ("vault-token", b"hvs. hvb. hvr.", _FREE + rb"hv[sbr]\.[\w-]{20,}"),
    ("age-secret-key", b"AGE-SECRET-KEY-", rb"AGE-SECRET-KEY-(?:PQ-)?1[A-Z0-9]{30,}"),
    ("age-secret-key", b"age-secret-key-", rb"age-secret-key-(?:pq-)?1[a-z0-9]{30,}"),
    ("crystal-token", b"crt_", _FREE + rb"crt_[A-Za-z0-9-]+_[\w-]{32,}"),
    ("terraform-token", b".atlasv1.", rb"[A-Za-z0-9]{10,40}\.atlasv1\.[\w=-]{40,}"),
    ("grafana-token", b"glsa_ glc_", rb"gl(?:sa|c)_[A-Za-z0-9+/_]{32,}={0,2}"),
    ("newrelic-key", b"NRAK- NRII- NRAA- NRRA- NRSP- NRIQ- NRJS-", rb"NR(?:AK|II|AA|RA|SP|IQ|JS)-[A-Za-z0-9_-]{16,}"),
    ("newrelic-key", b"NRAL", _FREE + rb"[0-9a-fA-F]{36}NRAL"),
    ("square-token", b"sq0", rb"sq0[a-z]{3}-[\w-]{20,}"),
    ("square-token", b"EAAA", _APART + rb"EAAA[\w-]{60}(?![\w+/-])"),
    ("facebook-token", b"EAA", _APART + rb"EAA[A-Za-z0-9]{80,}"),
    ("vercel-token", b"vca_ vcc_ vci_ vcp_ vcr_ vck_", _FREE + rb"vc[aciprk]_[\w-]{24,}"),
    ("netlify-token", b"nfb_ nfc_ nfo_ nfp_ nfu_", _FREE + rb"nf[bcopu]_[A-Za-z0-9]{30,}"),
    ("supabase-key", b"sbp_", rb"sbp_[0-9a-f]{32,}"),
    ("supabase-key", b"sb_secret_", rb"sb_secret_[\w-]{20,}"),
    ("cloudflare-token", b"cfk_ cfut_ cfat_", _FREE + rb"cf(?:k|ut|at)_[A-Za-z0-9]{36,}"),
    ("cloudflare-token", b"v1.0-", rb"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}"),
    ("voyage-key", b"pa-", _FREE + rb"(?<!-)pa-(?=[\w-]{0,60}[0-9])(?=[\w-]{0,60}[A-Z])[\w-]{40,}"),
    ("groq-key", b"gsk_", _FREE + rb"gsk_[A-Za-z0-9]{32,}"),
    ("xai-key", b"xai-", _FREE + rb"xai-[A-Za-z0-9]{40,}"),
    ("replicate-token", b"r8_", _FREE + rb"r8_[A-Za-z0-9]{32,}"),
    ("perplexity-key", b"pplx-", rb"pplx-[A-Za-z0-9]{32,}"),
    ("fireworks-key", b"fw_", _FREE + rb"fw_(?=[A-Za-z0-9]{0,40}\d)[A-Za-z0-9]{20,}"),
    ("together-key", b"tgp_v1_", rb"tgp_v1_[\w-]{30,}"),
    ("cerebras-key", b"csk-", _FREE + rb"csk-[a-z0-9]{36,}"),
    ("elevenlabs-key", b"sk_", _FREE + rb"sk_[0-9a-f]{48}(?![0-9a-z])"),
    ("langsmith-key", b"lsv2_", rb"lsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("pinecone-key", b"pcsk_", rb"pcsk_\w{40,}"),
    ("wandb-key", b"wandb_v1_", rb"wandb_v1_\w{40,}"),
    ("jina-key", b"jina_", rb"jina_[\w-]{40,}"),
    ("tavily-key", b"tvly-", rb"tvly-[\w-]{20,}"),
    ("firecrawl-key", b"fc-", _FREE + rb"fc-[0-9a-f]{32}(?![0-9A-Za-z])"),
    ("posthog-key", b"phx_", _FREE + rb"phx_[A-Za-z0-9]{36,}"),
    ("sentry-token", b"sntry", rb"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    ("figma-token", b"figd_ figo_ figu_ figdr_ figor_ figur_", rb"fig[dou]r?_[\w-]{36,}"),
    ("airtable-token", b"pat", rb"(?<![A-Za-z0-9])pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("hubspot-token", b"pat-", rb"pat-(?:na|eu|ap)\d-[0-9a-f-]{36}"),
    ("atlassian-token", b"ATATT3", rb"ATATT3[\w=-]{60,}"),
    ("atlassian-token", b"ATCTT3", rb"ATCTT3[\w=-]{60,}"),
    ("bitbucket-token", b"ATBB", _FREE + rb"ATBB[A-Za-z0-9]{28,}"),
    ("dropbox-token", b"sl.", _FREE + rb"sl\.(?:u\.)?[\w-]{100,}"),
    ("doppler-token", b"dp.", _FREE + rb"dp\.(?:pt|st|ct|sa|said|scim|audit)(?:\.[a-z0-9_-]+)?\.[A-Za-z0-9]{40,}"),
    ("onepassword-token", b"ops_eyJ", rb"ops_eyJ[A-Za-z0-9+/=_-]{100,}"),
    ("fly-token", b"fm", _FREE + rb"fm\d[ar]?_[A-Za-z0-9+/=,_-]{60,}"),
    ("fly-token", b"fo1_", _FREE + rb"fo1_[\w-]{40,}"),
    ("planetscale-token", b"pscale_", rb"pscale_[a-z]+_[\w.=-]{30,}"),
    ("neon-key", b"napi_", _FREE + rb"napi_[a-z0-9]{50,}"),
    ("render-key", b"rnd_", _FREE + rb"rnd_[A-Za-z0-9]{26,}"),
    ("postman-key", b"PMAK-", rb"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("rubygems-key", b"rubygems_", rb"rubygems_[0-9a-f]{48}"),
    ("cratesio-token", b"cio", _APART + rb"cio(?=\w{0,31}\d)(?=\w{0,31}[A-Z])[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("nuget-key", b"oy2", _FREE + rb"oy2[a-z0-9]{43}(?![A-Za-z0-9])"),
    ("pulumi-token", b"pul-", _FREE + rb"pul-[0-9a-f]{40}"),
    ("sonar-token", b"sqa_ sqp_ squ_", _FREE + rb"sq[apu]_[0-9a-f]{40}"),
    ("circleci-token", b"CCIPAT_", rb"CCIPAT_\w{20,}"),
    ("dynatrace-token", b"dt0", rb"dt0[a-z]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{60,}"),
    ("mapbox-token", b"sk.eyJ", rb"sk\.eyJ[\w-]{20,}\.[\w-]{16,}"),
    ("tailscale-key", b"tskey-", rb"tskey-[a-z]+-[\w-]{16,}"),
    ("brevo-key", b"xkeysib-", rb"xkeysib-[0-9a-f]{60,}-[A-Za-z0-9]{14,}"),
    ("alibaba-key", b"LTAI", _FREE + rb"LTAI[A-Za-z0-9]{12,26}(?![A-Za-z0-9])"),
    ("artifactory-key", b"AKCp", _FREE + rb"AKCp[A-Za-z0-9]{60,}"),
    ("contentful-token", b"CFPAT-", rb"CFPAT-[\w-]{40,}"),
    ("adafruit-key", b"aio_", _FREE + rb"aio_[A-Za-z0-9]{28}(?![A-Za-z0-9])"),
    ("clojars-token", b"CLOJARS_", rb"CLOJARS_[a-z0-9]{50,}"),
    ("x-bearer-token", b"AAAAAAAAAAAAAAAAAAAA", rb"A{20,22}(?=[A-Za-z0-9%]{0,200}%[23])[A-Za-z0-9%]{60,}"),
    ("password-hash", b"$2", rb"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}"),
    ("password-hash", b"$argon2", rb"\$argon2(?:id|i|d)\$v=\d+\$[^\s\"'\x00\xff]{30,}"),
    ("password-hash", b"$6$", rb"\$[56]\$(?:rounds=\d+\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{43,}"),
    ("password-hash", b"$5$", rb"\$5\$(?:rounds=\d+\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{43,}"),
    ("password-hash", b"$apr1$", rb"\$apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}"),
    ("password-hash", b"pbkdf2", rb"pbkdf2[:_]sha\d+[:$]\d+\$[^\s$\"'\x00\xff]+\$[A-Za-z0-9+/=]{20,}"),
    ("password-hash", b"$y$", rb"\$y\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{1,86}\$[./A-Za-z0-9]{43}"),
)

FORMATS = tuple(
    Format(kind, tuple(literals.split()) or (b"",), re.compile(pattern)) for kind, literals, pattern in _TABLE
)

_AWS_SECRET = re.compile(rb"(?<![A-Za-z0-9/+=_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])")
_TWILIO_ACCOUNT = re.compile(rb"(?<![A-Za-z0-9])(?:AC|SK)[0-9a-f]{32}(?![A-Za-z0-9])")
_HEX32 = re.compile(rb"(?<![A-Za-z0-9-])[0-9a-f]{32}(?![A-Za-z0-9-])")
_NEAR = 200
_LONG, _AROUND = 64 * 1024, 512
_TOKEN_END = re.compile(rb"[^A-Za-z0-9_.+/=-]")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]+")
_BLOB = re.compile(rb"[A-Za-z0-9+/]{64}")


def _hint(pattern: bytes) -> bytes:
    r"""Loosen a pattern into one that RE2 takes and that matches the raw text of every string the pattern matches.

    Look-arounds go, long counts shrink (a small automaton), and ``/`` may be written ``\/``.
    """
    loose = re.sub(rb"\(\?<?[=!](?:[^()\[\]]|\[[^\]]*\])*\)", b"", pattern)
    loose = re.sub(
        rb"\{(\d+)(,?)\d*\}", lambda count: b"{16,}" if int(count[1]) > 16 else b"{%b%b}" % count.groups(), loose
    )
    return re.sub(
        rb"\[[^\]]*\]|/",
        lambda part: rb"\\*/" if part[0] == b"/" else part[0].replace(b"/", rb"/\\"),
        loose,
    )


_OWN_HINTS = {
    b"-us": rb"-us\d",
    b"NRAL": rb"NRAL",
    b".atlasv1.": rb"\.atlasv1\.",
    b"Q~": rb"Q~[\w~.-]{16}",
    b":AA": rb":AA[\w-]{16}",
    b"sk-": rb"sk-[\w-]{0,12}[A-Za-z0-9]{16}",
    b"T3BlbkFJ": rb"T3BlbkFJ",
    b"EAAA": _APART_RAW + rb"EAAA[\w-]{60}",
    b"EAA": _APART_RAW + rb"EAA[A-Za-z0-9]{80}",
    b"cio": _APART_RAW + rb"cio[A-Za-z0-9]{32}",
    b"sl.": rb"sl\.(?:u\.)?[\w-]{60}",
    b"": _DIGITS + rb"{4}",
    b"AAAAAAAAAAAAAAAAAAAA": rb"A{20}[A-Za-z0-9]+%",
}
"""For patterns that begin with anything at all: RE2 would follow each of them through every word."""

FORMAT_HINTS = tuple(_OWN_HINTS.get(row[1]) or _hint(row[2]) for row in _TABLE)
"""What a raw line must hold for a token of a known format to be in any of its strings."""

_scan_hints = compile_scanner(b"|".join(b"(?:" + hint + b")" for hint in FORMAT_HINTS))

FORMAT_LITERALS = tuple(literal for row in FORMATS for literal in row.literals if len(literal) > 3)
FORMAT_PATTERNS = (
    *(hint for hint, row in zip(FORMAT_HINTS, FORMATS, strict=True) if 0 < min(map(len, row.literals)) <= 3),
    *(_DIGITS.replace(b"[MNO]", letter) + _DIGITS + rb"{3}" for letter in (b"M", b"N", b"O")),
)
"""The same without RE2: literals, and for the formats whose literals are too short to tell, patterns."""


def format_spans(text: bytes) -> Iterator[Span]:
    """Yield the tokens of known formats, and the secrets that stand near an account id."""
    for start, end in _places(text):
        part = text if end - start == len(text) else text[start:end]
        for kind, literals, pattern in FORMATS:
            if any(literal in part for literal in literals):
                group = 1 if pattern.groups else 0
                for found in pattern.finditer(text, start, end):
                    if not _in_base64(text, *found.span(group)):
                        yield Span(*found.span(group), kind, FORMAT)
    yield from _near(text, rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}", _AWS_SECRET, "aws-secret-key")
    yield from _near(text, _TWILIO_ACCOUNT.pattern, _HEX32, "twilio-auth-token")


def _places(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a text that can hold a token: all of it, or of a long one the surroundings of each hint.

    Otherwise a picture in base64, where some hint comes by chance every few MB, would be searched a hundred times.
    """
    if len(text) < _LONG:
        yield 0, len(text)
        return
    begin = stop = 0
    for start, end in _scan_hints(text):
        after = _TOKEN_END.search(text, end + _AROUND, end + _LONG)
        if start - _AROUND > stop:
            if stop:
                yield begin, stop
            begin = start - _AROUND
        stop = after.start() if after else min(end + _LONG, len(text))
    if stop:
        yield max(begin, 0), stop


def _in_base64(text: bytes, start: int, end: int) -> bool:
    """Return whether this is a stretch of a picture or another file in base64, where any letters come by chance."""
    if not _BASE64.fullmatch(text, start, end):
        return False
    return any(_BLOB.fullmatch(text, *side) for side in ((start - 64, start), (end, end + 64)) if side[0] >= 0)


def _near(text: bytes, account: bytes, secret: re.Pattern[bytes], kind: str) -> Iterator[Span]:
    for found in re.finditer(account, text):
        for beside in secret.finditer(text, max(0, found.start() - _NEAR), found.end() + _NEAR):
            if looks_random(beside.group(), 16):
                yield Span(*beside.span(), kind, NEARBY)
