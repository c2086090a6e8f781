// Answers and refusals. See docs/spec/relay-http.md, section 1.

const STATUS = {
  "bad-request": 400, "bad-envelope": 400, "digest-mismatch": 400, unauthenticated: 401, forbidden: 403,
  "not-found": 404, "no-blob": 404, "no-object": 404, "no-token": 404, "no-mailbox": 404, "body-lost": 404,
  "method-not-allowed": 405, "body-timeout": 408, "blob-conflict": 409, "object-conflict": 409, "mail-conflict": 409,
  "mailbox-claimed": 409, "body-too-large": 413, "unsupported-media-type": 415, "unsupported-version": 426,
  "rate-limited": 429, "too-many-mailboxes": 429, internal: 500, unavailable: 503, "stream-full": 507,
  "account-full": 507, "too-many-streams": 507, "too-many-tokens": 507, "mailbox-full": 507,
} as const;

const TITLES: Record<number, string> = {
  400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
  408: "Request Timeout", 409: "Conflict", 413: "Request Entity Too Large", 415: "Unsupported Media Type",
  426: "Upgrade Required", 429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable",
  507: "Insufficient Storage",
};

export type Code = keyof typeof STATUS;
type Headers_ = Record<string, string>;

/** Tells the front that a refused request counts against its client's address. Never leaves the relay. */
export const COUNTS = "x-relay-counts";
export const COUNTED = { [COUNTS]: "1" };
/** Tells the front which body of the bucket is the answer's. Never leaves the relay. */
export const FILE = "x-relay-file";
/** Tells the front what to answer when it has waited in vain. Never leaves the relay. */
export const NOTHING = "x-relay-nothing";

/** A request is refused. `detail` is for people and holds neither secrets nor bodies. */
export class Refusal extends Error {
  constructor(readonly code: Code, readonly detail: string, readonly headers: Headers_ = {}) {
    super(`${code}: ${detail}`);
  }

  /** Return the refusal as an RFC 9457 problem document. */
  reply(): Response {
    const status = STATUS[this.code];
    const problem = { type: "about:blank", title: TITLES[status], status, code: this.code, detail: this.detail };
    return json(problem, status, { "content-type": "application/problem+json", ...this.headers });
  }
}

export function retryAfter(seconds: number): Headers_ {
  return { "retry-after": String(Math.max(1, Math.ceil(seconds))) };
}

export function unauthenticated(): Refusal {
  const headers = { "www-authenticate": 'Bearer realm="crystal-relay"', ...COUNTED };
  return new Refusal("unauthenticated", "the token is unknown or revoked", headers);
}

export function json(value: unknown, status = 200, headers: Headers_ = {}): Response {
  const body = new TextEncoder().encode(JSON.stringify(value));
  return sized(body, status, { "content-type": "application/json", ...headers });
}

export function sized(body: Uint8Array, status: number, headers: Headers_): Response {
  return new Response(body, { status, headers: { ...headers, "content-length": String(body.length) } });
}

export function noContent(headers: Headers_ = {}): Response {
  return new Response(null, { status: 204, headers });
}

/** Answer that something is durable: 201 if it was stored now, 200 if it was there. */
export function stored(isNew: boolean, named: object = {}): Response {
  return json({ ...named, result: isNew ? "created" : "duplicate" }, isNew ? 201 : 200);
}

/** A stored body: inline, or a file of the bucket. Mail has no tag. */
export type Stored = {
  size: number; digest: string; tag: string | null; file: string | null; body: ArrayBuffer | null;
};

/** Answer with bytes, their SHA-256, and their tag as ETag. */
export function bytes(found: Stored): Response {
  const headers: Headers_ = {
    "content-type": "application/octet-stream",
    "content-digest": `sha-256=:${btoa(String.fromCharCode(...unhex(found.digest)))}:`,
  };
  if (found.tag) headers["etag"] = `"${found.tag}"`;
  if (found.file) return new Response(null, { headers: { ...headers, [FILE]: `${found.size} ${found.file}` } });
  return sized(new Uint8Array(found.body ?? new ArrayBuffer(0)), 200, headers);
}

export function hex(value: ArrayBuffer | Uint8Array): string {
  return [...new Uint8Array(value)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function unhex(text: string): Uint8Array {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}
